"""Writes the result of the operators' suite into docs/operators.md: `python docs/operators.py [--write]`.

Without the option it prints that part of the page. A test compares the two.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.operators.digest import DIGEST

PAGE = Path(__file__).resolve().parent / "operators.md"
BEGIN, END = "<!-- operators: begin -->", "<!-- operators: end -->"
WIDTH = 110
"""Characters of a line of names."""


def write_result(result: dict[str, Any]) -> str:
    """What stands between the marks of docs/operators.md for a kept result."""
    sums, written = result["sums"], result["written"]
    lines = [
        BEGIN,
        "",
        "## Result",
        "",
        f"{result['operators']} operators and variants; {len(written)} have kernels.",
        "",
        "| samples | passed | left to PyTorch | refused with a sentence | wrong |",
        "|--|--|--|--|--|",
        f"| {sums['samples']:,} | {sums['passed']:,} | {sums['left']:,} | {sums['refused']:,} | {sums['wrong']:,} |",
        "",
        "## Operators with kernels",
        "",
        "| operator | types | samples | passed | left to PyTorch | refused | wrong |",
        "|--|--|--|--|--|--|--|",
        *(_write_row(name, row) for name, row in written.items()),
        "",
        "## Left to PyTorch",
        "",
        "The author writes no kernel for any sample of these:",
        "",
        "```",
        *_wrap(result["left"]),
        "```",
        "",
        "## Refused",
        "",
        "| operator | sentence |",
        "|--|--|",
        *(f"| `{name}` | {_escape(reason)} |" for name, reason in result["refused"].items()),
        "",
        "## Without a sample that can be written",
        "",
        "Their arguments are sparse tensors, functions or generators, or of types that the author does not have:",
        "",
        "```",
        *_wrap(result["without_samples"]),
        "```",
        "",
        END,
    ]
    return "\n".join(lines)


def read_result() -> dict[str, Any]:
    """The kept result."""
    result: dict[str, Any] = json.loads(DIGEST.read_text(encoding="utf-8"))
    return result


def _write_row(name: str, row: dict[str, Any]) -> str:
    figures = (row[key] for key in ("samples", "passed", "left", "refused", "wrong"))
    return f"| `{name}` | {' '.join(row['types'])} | {' | '.join(map(str, figures))} |"


def _wrap(names: list[str]) -> list[str]:
    text = "; ".join(names) if any("," in name for name in names) else " ".join(names)
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False) or ["none"]


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main(words: list[str]) -> int:
    """Entry point; returns the exit code."""
    if words not in ([], ["--write"]):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    table = write_result(read_result())
    if words:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(text.partition(BEGIN)[0] + table + text.partition(END)[2], encoding="utf-8")
    else:
        sys.stdout.write(table + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
