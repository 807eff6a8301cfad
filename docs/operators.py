"""Writes docs/operators.md from the kept result of the operators' suite: `python docs/operators.py [--write]`.

Without the option it prints the page. A test compares the two.
"""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.operators.digest import DIGEST

PAGE = Path(__file__).resolve().parent / "operators.md"
WIDTH = 140
"""Characters of a line of names."""
_HEAD = """\
# Operators against PyTorch's own

PyTorch tests its operators with tables of samples (`op_db` in `torch.testing._internal`). The same samples judge the built-in author. Each operator is the whole forward of a module. Its kernel runs in Triton's interpreter, and its results are compared with those of PyTorch on the CPU.

`python -m tritonsmith.benchmarks.operators.suite` judges all of them, and [regions.md](regions.md) says how an operator is written. `python docs/operators.py --write` makes this page.

## What is compared

- **Samples:** PyTorch's own, and for elementwise operators its reference inputs. They have all types of the author, tensors without dimensions and without elements, shapes that broadcast, and negative axes.
- **Not contiguous:** the same values in tensors with gaps.
- **Special values:** NaN, infinities, zeros of both signs, halves, ties, and the smallest and largest numbers of a type. Elementwise operators of two tensors get every pair.
- **Numbers** of the same kinds that stand in the call itself.

Whole numbers, booleans, types and shapes must be equal to the bit. So must places of NaN and of infinities, and signs of zero. Other floating values follow the [rule of the evaluator](correctness.md). For an elementwise operator the rule holds for each element by itself.

## What may differ

- **PyTorch's two codes.** On a CPU PyTorch has one code for vectors, and one for tensors with gaps. Cards have the second one alone. Where they differ, either value is right. `remainder(3e38, 0.5)` is NaN in the first, and 0 in the second.
- **Two zeros.** The larger of 0.0 and -0.0, and their order in a sort, differ between PyTorch's codes for vectors, single elements and cards. So does the sign of zero in running sums and in products of one term. Either is right.
- **Overflow on the way.** Where a sum overflows in its type and not in float64, the order of its terms decides. Such values say nothing and are skipped.
- **Numbers in `pow`.** A card raises fp32 values to the number as fp32 holds it. The CPU keeps its digits. The suite takes numbers that both hold.
- **Places** (indices, classes, sorted boundaries) keep their own values, and so do the coordinates of `grid_sample`.

Operators whose values nobody defines (`empty` and its kin) are left out.
"""


def write_page(result: dict[str, Any]) -> str:
    """The page for a kept result."""
    sums, written = result["sums"], result["written"]
    lines = [
        _HEAD,
        "## Result",
        "",
        f"{result['operators']} operators and variants; {len(written)} have kernels.",
        "",
        "| samples | passed | left to PyTorch | refused with a sentence | wrong |",
        "|--|--|--|--|--|",
        f"| {sums['samples']:,} | {sums['passed']:,} | {sums['left']:,} | {sums['refused']:,} | {sums['wrong']:,} |",
        "",
        "A sample that is *left to PyTorch* is one call of PyTorch in the author's module. One that is *refused* has no module. The sentence says "
        "why: a type that the author does not know, a result whose shape follows from values, or a result without elements.",
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
        "Calls with sparse tensors, functions or generators as arguments, and types that the author does not have:",
        "",
        "```",
        *_wrap(result["without_samples"]),
        "```",
    ]
    return "\n".join(lines) + "\n"


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
    page = write_page(json.loads(DIGEST.read_text(encoding="utf-8")))
    if words:
        PAGE.write_text(page, encoding="utf-8")
    else:
        sys.stdout.write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
