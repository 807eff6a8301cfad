"""A task's own text as its candidate, for every task of a folder: `python -m tritonsmith.benchmarks.kernelbench.copies FOLDER`.

FOLDER is KernelBench's own with level1, level2 and level3, or any folder of task files. A right judge refuses no copy, and scores each
about 1.0 against eager. Rows are added to a file as they come; tasks that have a row are skipped. `--table` makes the page of the rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tritonsmith.benchmarks.kernelbench.crew import open_crew
from tritonsmith.benchmarks.kernelbench.folder import find_tasks, select_largest, select_tasks
from tritonsmith.benchmarks.kernelbench.held_memory import leave_free
from tritonsmith.benchmarks.kernelbench.options import ROWS, CrewOpener, judge_jobs, make_parser, run_script, split_names, write_command
from tritonsmith.benchmarks.kernelbench.rows.pages import write_copies
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob
from tritonsmith.benchmarks.kernelbench.rows.sheet import RowFile
from tritonsmith.benchmarks.kernelbench.texts import copy_reference
from tritonsmith.evaluator.channel.doorbell import BASELINES
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import PrecisionClass


def make_jobs(
    tasks: dict[str, Path], profile: str = "quick", size: str = "full", precision: str = "", baselines: Sequence[str] = ()
) -> list[JudgeJob]:
    """A job per task: its own text with the class renamed. Raises UsageError for a text without class Model."""
    return [
        JudgeJob(
            name=name, kind="copy", task=str(path), text=copy_reference(path.read_text(encoding="utf-8-sig"), str(path)),
            profile=profile, size=size, precision=precision, baselines=tuple(baselines), expected="accepted",
        )
        for name, path in tasks.items()
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None, opener: CrewOpener = open_crew) -> int:
    """0 when every task has a row and, with --table, every figure is reached; 1 otherwise; 2 for bad input."""
    parser = make_parser("copies", __doc__)
    parser.add_argument("folder", type=Path, help="KernelBench's folder with level1, level2 and level3, or a folder of task files")
    parser.add_argument("--only", default="", help="comma-separated names or numbers: level1/23,level3/43")
    parser.add_argument("--largest", type=int, default=0, help="only so many tasks: those with the most bytes of inputs and outputs")
    parser.add_argument("--profile", default="quick", choices=("quick", "strict"))
    classes = [choice.value for choice in PrecisionClass]
    parser.add_argument("--precision", default="", choices=classes, help="default: the task's own class")
    parser.add_argument("--baselines", default="", help="comma-separated, such as eager: only those; default: four in quick, six in strict")
    parser.add_argument("--card-gb", type=float, help="leave so many GB (10^9 bytes) of the card free; hold the rest")
    options = parser.parse_args(arguments)
    options.rows = options.rows or ROWS / "copies.jsonl"
    return run_script(lambda: _work(options, write_command("copies", arguments), opener), options.rows)


def _work(options: argparse.Namespace, command: str, opener: CrewOpener) -> int:
    baselines = split_names(options.baselines)
    if wrong := set(baselines) - set(BASELINES):
        raise UsageError(f"--baselines {', '.join(sorted(wrong))}: is not one of {', '.join(BASELINES)}")
    tasks = find_tasks(options.folder)
    if options.only:
        tasks = select_tasks(tasks, options.only)
    if options.largest:
        tasks = select_largest(tasks, options.largest, options.rows.with_suffix(".sizes.json"))
    if options.table:
        return 0 if write_copies(RowFile(options.rows).read(), list(tasks), options.results, options.name) else 1
    jobs = make_jobs(tasks, options.profile, options.size, options.precision, baselines)
    with leave_free(options.card_gb, split_names(options.devices)):
        return 1 if judge_jobs(options, jobs, command, opener) else 0


if __name__ == "__main__":
    sys.exit(main())
