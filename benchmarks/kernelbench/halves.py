"""Kernels for 16-bit tasks that add up in fp32, and twins that add up in 16 bits: `python -m tritonsmith.benchmarks.kernelbench.halves`.

The references add up in fp32, so the right kernels must be accepted. A twin's sums have the type of the task's inputs; it must be refused.
Rows are added to a file as they come; candidates that have a row are skipped. `--table` makes the page of the rows.
`--target h200 --size small` tries the way without a card.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tritonsmith.benchmarks.kernelbench.crew import open_crew
from tritonsmith.benchmarks.kernelbench.options import ROWS, CrewOpener, make_parser, run_script, write_command
from tritonsmith.benchmarks.kernelbench.pairs import judge_or_tabulate
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob
from tritonsmith.benchmarks.kernelbench.texts import narrow_sums

HERE = Path(__file__).resolve().parent
TASKS = HERE.parent / "tasks" / "half"
KERNELS = HERE / "half_kernels"
_TITLE = "Right and wrong kernels for 16-bit tasks"
_ABOUT = (
    "The references add up in fp32. A wrong twin adds up in the type of the task's inputs. "
    "Right kernels must be accepted, and twins refused."
)


def make_jobs(size: str = "full") -> list[JudgeJob]:
    """Two jobs per kernel, right and wrong."""
    jobs = []
    for path in sorted(KERNELS.glob("*.py")):
        right, task = path.read_text(encoding="utf-8"), str(TASKS / path.name)
        jobs.append(JudgeJob(name=path.stem, kind="right", task=task, text=right, size=size, expected="accepted"))
        wrong = narrow_sums(right, path.name)
        jobs.append(JudgeJob(name=path.stem, kind="wrong", task=task, text=wrong, size=size, expected="refused"))
    return jobs


def main(arguments: Sequence[str] | None = None, opener: CrewOpener = open_crew) -> int:
    """0 when every candidate has a row and, with --table, each is as it must be; 1 otherwise; 2 for bad input."""
    options = make_parser("halves", __doc__).parse_args(arguments)
    options.rows = options.rows or ROWS / "halves.jsonl"
    command = write_command("halves", arguments)
    return run_script(lambda: judge_or_tabulate(options, make_jobs(options.size), command, opener, _TITLE, _ABOUT), options.rows)


if __name__ == "__main__":
    sys.exit(main())
