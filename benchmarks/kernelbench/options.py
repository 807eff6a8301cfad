"""Options that the scripts share, and what they do with jobs and rows."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tritonsmith.benchmarks.host import print_line, spell_command
from tritonsmith.benchmarks.kernelbench.crew import JobAsker, close_crew, open_crew, share_work
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob, JudgeRow, Ruling
from tritonsmith.benchmarks.kernelbench.rows.sheet import RowFile, select_open
from tritonsmith.evaluator.errors import TritonsmithError, UsageError

RESULTS = Path(__file__).resolve().parents[1] / "results"
ROWS = Path("runs") / "kernelbench"
"""Where rows are gathered."""
LIMIT_SECONDS = 900.0
"""The longest that a question may take."""
CrewOpener = Callable[[str, Sequence[str], float], Sequence[JobAsker]]


def make_parser(script: str, about: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every script has."""
    parser = argparse.ArgumentParser(prog=f"python -m tritonsmith.benchmarks.kernelbench.{script}", description=about)
    parser.add_argument("--rows", type=Path, help=f"the file that rows are added to; default {ROWS}/{script}.jsonl")
    parser.add_argument("--devices", default="", help="cards of this host that share the work, such as 0,1; default: the first one")
    parser.add_argument("--seconds", type=float, default=1e9, help="take no further task after so many seconds")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="give a question up after so many seconds")
    parser.add_argument("--again", default="", help="ask again where the row says so: `refused`, `not judged` (comma-separated)")
    parser.add_argument("--target", default="auto", help="as for tritonsmith evaluate: auto, or a card's name for the path without a card")
    parser.add_argument("--size", default="full", choices=("full", "small"))
    parser.add_argument("--table", action="store_true", help="judge nothing, and write the results' page and data from the rows")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the page and the data")
    parser.add_argument("--name", default=f"kernelbench_{script}", help="name of the page and the data, without suffix")
    parser.set_defaults(card_gb=None)  # all of the card, unless a script lets it be chosen
    return parser


def judge_jobs(options: argparse.Namespace, jobs: Sequence[JudgeJob], command: str, opener: CrewOpener = open_crew) -> int:
    """Have the jobs without a row judged and their rows kept. Returns how many are left. Raises UsageError."""
    rows = RowFile(options.rows)
    waiting = select_open(jobs, rows.read(), read_again(options))
    print_line(f"{len(jobs) - len(waiting)} of {len(jobs)} have a row in {options.rows}; {len(waiting)} to judge")
    if not waiting:
        return 0
    done, keeping = 0, threading.Lock()

    def answer(worker: JobAsker, number: int) -> None:
        nonlocal done
        coming = number + len(crew)
        row = worker.ask(waiting[number], waiting[coming] if coming < len(waiting) else None)
        with keeping:
            done += 1
            rows.add(row.model_copy(update={"command": command, "card_gb": options.card_gb}))
            print_line(f"[{done}/{len(waiting)}] {describe_row(row)}")

    crew = opener(options.target, split_names(options.devices), options.limit)
    try:
        left = share_work([partial(answer, worker) for worker in crew], range(len(waiting)), options.seconds)
    finally:
        close_crew(crew)
    if left:
        print_line(f"{left} tasks are left; the same command goes on")
    return left


def read_again(options: argparse.Namespace) -> list[str]:
    """The rulings that are asked for again. Raises UsageError for what is none."""
    again = split_names(options.again)
    if wrong := set(again) - {ruling.value for ruling in Ruling}:
        raise UsageError(f"--again {', '.join(sorted(wrong))}: is not one of {', '.join(ruling.value for ruling in Ruling)}")
    return again


def split_names(text: str) -> list[str]:
    """The names that an option's value holds, such as the cards of `--devices`."""
    return [name.strip() for name in text.split(",") if name.strip()]


def describe_row(row: JudgeRow) -> str:
    """A row on one line of the screen."""
    score = f"{row.score_eager:.4f}x eager" if row.score_eager is not None else row.message[:120]
    peak = f", peak {row.card_bytes_peak / 1e9:.1f} GB" if row.card_bytes_peak else ""
    return f"{row.name} {row.kind}: {row.ruling.value} {row.status} {score}, {row.seconds:.1f} s{peak}"


def write_command(script: str, arguments: Sequence[str] | None) -> str:
    """The command as it was typed, without folders of this host."""
    return spell_command(f"kernelbench.{script}", sys.argv[1:] if arguments is None else arguments)


def run_script(work: Callable[[], int], rows: Path) -> int:
    """The exit code of a script: that of its work, 2 for bad input, 1 for a failure, 130 when interrupted."""
    try:
        return work()
    except (TritonsmithError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, UsageError | OSError) else 1
    except KeyboardInterrupt:
        sys.stderr.write(f"Interrupted; rows so far are in {rows}, and the same command goes on\n")
        return 130
