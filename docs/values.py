"""Writes what each operator of the author's compiler means into docs/values.md: `python docs/values.py [--write]`.

Without the option it prints that part of the page. It is made from the table of operators, and a test compares the two.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tritonsmith.author.compiler.ir.operators import Operator
from tritonsmith.benchmarks.pages import run_page_script

PAGE = Path(__file__).resolve().parent / "values.md"
BEGIN, END = "<!-- operators: begin -->", "<!-- operators: end -->"


def table() -> str:
    """What stands between the marks of docs/values.md."""
    lines = [BEGIN, "", "| operator | in a kernel | in PyTorch | at its corners |", "|--|--|--|--|"]
    for operator in Operator:
        form = operator.value
        written = form.template + (f", in float64 {form.wide}" if form.wide else "")
        corners = form.corners.replace("|", "\\|")
        written = written.replace("|", "\\|")
        lines.append(f"| {operator.name} | `{written}` | {f'`{form.torch}`' if form.torch else ''} | {corners} |")
    return "\n".join([*lines, "", END])


def main(words: list[str]) -> int:
    """Entry point; returns the exit code."""
    return run_page_script(words, str(__doc__), PAGE, [table()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
