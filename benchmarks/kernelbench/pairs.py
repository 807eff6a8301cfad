"""Candidates that must be accepted or refused: `python -m tritonsmith.benchmarks.kernelbench.pairs --refused TASK=KERNEL ...`.

Each pair names a task file and a kernel file. Rows are added to a file as they come; pairs that have a row are skipped. `--table` makes
the page of the rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tritonsmith.benchmarks.kernelbench.crew import open_crew
from tritonsmith.benchmarks.kernelbench.options import ROWS, CrewOpener, judge_jobs, make_parser, run_script, write_command
from tritonsmith.benchmarks.kernelbench.rows.pages import write_pairs
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob
from tritonsmith.benchmarks.kernelbench.rows.sheet import RowFile
from tritonsmith.evaluator.errors import UsageError

_TITLE = "Right and wrong candidates"
_ABOUT = "Each candidate must be accepted or refused."


def read_pairs(pairs: Iterable[str], expected: str, size: str = "full") -> list[JudgeJob]:
    """A job per `TASK=KERNEL`. Raises UsageError for other words and for files that are not there."""
    jobs = []
    for pair in pairs:
        task, _, kernel = pair.partition("=")
        if not task or not kernel:
            raise UsageError(f"--{expected} {pair}: write TASK=KERNEL, two files with an equals sign between them")
        for path in (Path(task), Path(kernel)):
            if not path.is_file():
                raise UsageError(f"--{expected} {pair}: {path} is no file; name a task file and a kernel file")
        text = Path(kernel).read_text(encoding="utf-8")
        jobs.append(
            JudgeJob(name=Path(task).stem, kind=Path(kernel).stem, task=str(Path(task).resolve()), text=text, size=size, expected=expected)
        )
    return jobs


def main(arguments: Sequence[str] | None = None, opener: CrewOpener = open_crew) -> int:
    """0 when every pair has a row and, with --table, each is as it must be; 1 otherwise; 2 for bad input."""
    parser = make_parser("pairs", __doc__)
    parser.add_argument("--accepted", action="append", default=[], metavar="TASK=KERNEL", help="a kernel that is right")
    parser.add_argument("--refused", action="append", default=[], metavar="TASK=KERNEL", help="a kernel that is wrong")
    options = parser.parse_args(arguments)
    options.rows = options.rows or ROWS / "pairs.jsonl"

    def work() -> int:
        jobs = read_pairs(options.accepted, "accepted", options.size) + read_pairs(options.refused, "refused", options.size)
        if not jobs:
            raise UsageError("nothing to judge; name pairs with --accepted TASK=KERNEL and --refused TASK=KERNEL")
        return judge_or_tabulate(options, jobs, write_command("pairs", arguments), opener, _TITLE, _ABOUT)

    return run_script(work, options.rows)


def judge_or_tabulate(
    options: argparse.Namespace, jobs: Sequence[JudgeJob], command: str, opener: CrewOpener, title: str, about: str
) -> int:
    """Have the jobs judged, or write the page of their rows. The exit code: 0 when all is done, or as it must be."""
    if options.table:
        rows = RowFile(options.rows).read()
        return 0 if write_pairs(title, about, rows, [job.key for job in jobs], options.results / options.name) else 1
    return 1 if judge_jobs(options, jobs, command, opener) else 0


if __name__ == "__main__":
    sys.exit(main())
