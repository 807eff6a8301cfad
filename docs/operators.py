"""Writes results of the operators' suite and of random modules into docs/operators.md: `python docs/operators.py [--write]`.

Without the option it prints those parts of the page. Tests compare the two.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.operators.digest import DIGEST
from tritonsmith.benchmarks.pages import run_page_script
from tritonsmith.benchmarks.random_modules.digest import DIGEST as RANDOM

PAGE = Path(__file__).resolve().parent / "operators.md"
BEGIN, END = "<!-- operators: begin -->", "<!-- operators: end -->"
RANDOM_BEGIN, RANDOM_END = "<!-- random: begin -->", "<!-- random: end -->"
_FATES = ("right", "open", "left", "refused", "wrong", "crashed", "slow")
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


def write_modules(result: dict[str, Any]) -> str:
    """What stands between the marks of random modules, for kept counts."""
    rows = []
    kinds = {
        "before": "as first judged, without faults of the rule itself", "after": "seeds that nobody had looked at, by the code of that day"
    }  # fmt: skip
    for name, words in kinds.items():
        counts = result[name]
        figures = " | ".join(f"{counts['per_thousand'].get(fate, 0):g}" for fate in _FATES)
        rows.append(f"| {words} | {counts['modules']:,} | {figures} |")
    refusals = ", ".join(f"{count} {_escape(sentence)}" for sentence, count in result["after"]["refusals"].items())
    return "\n".join([
        RANDOM_BEGIN,
        "",
        f"| per thousand | modules | {' | '.join(_FATES)} |",
        f"|--|--|{'--|' * len(_FATES)}",
        *rows,
        "",
        f"Sentences of refusals at the end: {refusals or 'none'}.",
        "",
        RANDOM_END,
    ])  # fmt: skip


def read_modules() -> dict[str, Any]:
    """The kept counts of random modules."""
    result: dict[str, Any] = json.loads(RANDOM.read_text(encoding="utf-8"))
    return result


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
    return run_page_script(words, str(__doc__), PAGE, [write_result(read_result()), write_modules(read_modules())])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
