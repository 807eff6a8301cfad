"""A right kernel and its wrong twin for twelve tasks with tensors above 2 GB: `python -m tritonsmith.benchmarks.kernelbench.large`.

The right kernel must be accepted. Its twin makes one value in a million 1 % too large (`texts.make_wrong`) and must be refused.
Rows are added to a file as they come; candidates that have a row are skipped. `--table` makes the page of the rows.
`--target h200 --size small` tries the way without a card.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tritonsmith.benchmarks.kernelbench.crew import open_crew
from tritonsmith.benchmarks.kernelbench.folder import find_tasks, select_tasks
from tritonsmith.benchmarks.kernelbench.options import ROWS, CrewOpener, make_parser, run_script, write_command
from tritonsmith.benchmarks.kernelbench.pairs import judge_or_tabulate
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob
from tritonsmith.benchmarks.kernelbench.texts import WRONG_EVERY, make_wrong

HERE = Path(__file__).resolve().parent
TASKS = HERE / "tasks"
KERNELS = HERE / "kernels"
_TITLE = "Right and wrong kernels on large tensors"
_ABOUT = (
    f"Twelve tasks with tensors above 2 GB. A wrong twin multiplies one result in {WRONG_EVERY:,} by 1.01. "
    "Right kernels must be accepted, and twins refused."
)


def make_jobs(only: str = "", size: str = "full") -> list[JudgeJob]:
    """Two jobs per task, right and wrong. Raises UsageError for a name that is not there."""
    tasks = find_tasks(TASKS)
    jobs = []
    for name, path in (select_tasks(tasks, only) if only else tasks).items():
        right = (KERNELS / path.name).read_text(encoding="utf-8")
        wrong = make_wrong(right, path.name)
        jobs.append(JudgeJob(name=name, kind="right", task=str(path), text=right, size=size, expected="accepted"))
        jobs.append(JudgeJob(name=name, kind="wrong", task=str(path), text=wrong, size=size, expected="refused"))
    return jobs


def main(arguments: Sequence[str] | None = None, opener: CrewOpener = open_crew) -> int:
    """0 when every candidate has a row and, with --table, each is as it must be; 1 otherwise; 2 for bad input."""
    parser = make_parser("large", __doc__)
    parser.add_argument("--only", default="", help="comma-separated names of tasks: gelu,softmax")
    options = parser.parse_args(arguments)
    options.rows = options.rows or ROWS / "large.jsonl"
    command = write_command("large", arguments)
    return run_script(
        lambda: judge_or_tabulate(options, make_jobs(options.only, options.size), command, opener, _TITLE, _ABOUT), options.rows
    )


if __name__ == "__main__":
    sys.exit(main())
