"""Judge right and wrong kernels of twelve tasks that rounding decides: `python -m tritonsmith.benchmarks.rounding.study`.

Each kernel gets one full verdict (`--verdicts strict`). With `--repeat N` it gets N more, of the quick profile. With `--calls N` it gets N
that look at correctness alone: its process stays, and each takes two sets of fresh inputs. Every verdict is a line of `--out`. It ends
with a table, and with 1 where any verdict is not as it must be.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from rich.table import Table

from tritonsmith.benchmarks.hacks.catalogue import Case
from tritonsmith.benchmarks.hacks.judge import Judge
from tritonsmith.benchmarks.host import append_row, begin_record, print_end, print_line, shorten_paths
from tritonsmith.benchmarks.rounding.cases import FOLDER, TASKS, list_cases
from tritonsmith.evaluator.schema import Status, Task, Verdict
from tritonsmith.evaluator.tasks.files import choose_load_size, load_task

_LIMIT = 600.0
"""Seconds for one verdict."""
_BASELINES = ("eager",)
"""The study is about correctness: no compiler has to be waited for."""
_SHOWN = 400
"""Characters of a message in the list at the end."""
VERDICTS = ("strict", "quick", "none")
REPEATED, CALLS = "repeat", "calls"


@dataclass(frozen=True)
class RoundingRow:
    """One verdict of one kernel."""

    case: str
    task: str
    level: str
    """`strict`, `quick`, `repeat` or `calls`."""
    number: int
    right: bool
    status: str
    message: str
    seconds: float

    @property
    def agrees(self) -> bool:
        """Whether a right kernel was accepted, or a wrong one refused; a failure of the evaluator is neither."""
        return self.status == Status.OK if self.right else self.status not in (Status.OK, "failed")


def make_task(name: str, size: str) -> Task:
    """One of the twelve."""
    return load_task(FOLDER / "tasks" / f"{name}.py", size)


def judge_whole(judge: Judge, case: Case, size: str, profile: str, level: str, count: int = 1) -> Iterator[RoundingRow]:
    """So many verdicts of a profile on a kernel."""
    for number in range(count):
        started = time.monotonic()
        answer = judge.verdict(make_task(case.task, size), case.source, _LIMIT, profile)
        status, message = (answer.status.value, answer.message) if isinstance(answer, Verdict) else ("failed", answer)
        yield _make_row(case, level, number, status, message, started)


def judge_calls(cases: Sequence[Case], size: str, target: str, count: int) -> Iterator[RoundingRow]:
    """So many verdicts on correctness alone, on each kernel of one task."""
    from tritonsmith.benchmarks.rounding.repeats import Repeater  # noqa: PLC0415 - imports torch, which whole verdicts do without here

    with Repeater(make_task(cases[0].task, size), target) as repeater:
        for case in cases:
            started = time.monotonic()
            for number, (status, message) in enumerate(repeater.judge(case.source, count)):
                yield _make_row(case, CALLS, number, status.value, message, started)
                started = time.monotonic()


def _make_row(case: Case, level: str, number: int, status: str, message: str, started: float) -> RoundingRow:
    seconds = round(time.monotonic() - started, 2)
    return RoundingRow(case.name, case.task, level, number, case.expect == ("ok",), status, shorten_paths(message), seconds)


def table_of(rows: Iterable[RoundingRow]) -> Table:
    """What became of the kernels of each task, one line for each level."""
    table = Table(title="tasks that rounding decides")
    for column in ("task", "verdicts", "right: accepted", "wrong: refused", "as", "s"):
        table.add_column(column, overflow="fold")
    groups: dict[tuple[str, str], list[RoundingRow]] = {}
    for row in rows:
        groups.setdefault((row.task, row.level), []).append(row)
    for (task, level), held in sorted(groups.items()):
        right, wrong = [row for row in held if row.right], [row for row in held if not row.right]
        refusals = ", ".join(sorted({row.status for row in wrong}))
        style = None if all(row.agrees for row in held) else "bold red"
        seconds = sum(row.seconds for row in held) / len(held)
        table.add_row(task, level, _count(right), _count(wrong), refusals, f"{seconds:.1f}", style=style)
    return table


def _count(rows: Sequence[RoundingRow]) -> str:
    return f"{sum(row.agrees for row in rows)} of {len(rows)}"


def describe_end(rows: Sequence[RoundingRow]) -> list[str]:
    """Lines after the table: the sums of each level, and every disagreement with its message, equal ones once."""
    lines = []
    for level in dict.fromkeys(row.level for row in rows):
        held = [row for row in rows if row.level == level]
        right, wrong = _count([row for row in held if row.right]), _count([row for row in held if not row.right])
        lines.append(f"{level}: accepted {right} right, refused {wrong} wrong")
    wronged: dict[tuple[str, str, str], list[RoundingRow]] = {}
    for row in rows:
        if not row.agrees:
            wronged.setdefault((row.case, row.level, row.status), []).append(row)
    for (case, level, status), held in wronged.items():
        lines.append(f"DISAGREES {case} ({level}, {len(held)} times {status}): {held[0].message[:_SHOWN]}")
    return lines


def read_part(text: str) -> tuple[int, int]:
    """`2/4` as two numbers. Raises ArgumentTypeError."""
    first, _, count = text.partition("/")
    if first.isdecimal() and count.isdecimal() and 1 <= int(first) <= int(count):
        return int(first), int(count)
    raise argparse.ArgumentTypeError(f"{text!r} is no part; write one like 2/4")


def read_tasks(text: str) -> tuple[str, ...]:
    """Names of tasks that stand between commas. Raises ArgumentTypeError."""
    names = tuple(text.split(","))
    if unknown := set(names) - set(TASKS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))} is not one of {', '.join(TASKS)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tritonsmith.benchmarks.rounding.study", description=__doc__)
    parser.add_argument("--verdicts", choices=VERDICTS, default="strict", help="the profile of the one full verdict")
    parser.add_argument("--repeat", type=int, default=0, metavar="N", help="so many quick verdicts more")
    parser.add_argument("--calls", type=int, default=0, metavar="N", help="so many verdicts more on correctness alone")
    parser.add_argument("--tasks", type=read_tasks, default=TASKS, help="comma-separated: " + ", ".join(TASKS))
    parser.add_argument("--only", default="", help="a part of the cases' names, such as right or wrong_tie")
    parser.add_argument("--part", type=read_part, default=(1, 1), metavar="K/N", help="every N-th task, from the K-th on")
    parser.add_argument("--size", choices=("auto", "small", "full"), default="auto", help="auto: full on a card, else small")
    parser.add_argument("--target", default="auto", help="as for tritonsmith evaluate")
    parser.add_argument("--out", type=Path, default=None, help="a file for the verdicts, one in a line")
    return parser


def run(options: argparse.Namespace, words: Sequence[str] | None) -> list[RoundingRow]:
    """All verdicts that are asked for; each is written and printed at once."""
    part, parts = options.part
    tasks = options.tasks[part - 1 :: parts]
    cases = [case for case in list_cases(tasks) if options.only in case.name]
    rows: list[RoundingRow] = []
    judge = Judge(options.target, 1, _BASELINES)
    out: TextIO | None = None
    try:
        size = choose_load_size(options.size, judge.card).replace("fit", "small")
        if options.out:
            out = options.out.open("w", encoding="utf-8")
            append_row(out, begin_record("rounding.study", words) | {"card": judge.hardware, "measured": judge.card, "size": size})
        for row in _judge_all(judge, cases, size, options):
            rows.append(row)
            if out:
                append_row(out, asdict(row) | {"agrees": row.agrees})
            if row.level != CALLS or not row.agrees:
                mark = "ok  " if row.agrees else "FAIL"
                print_line(f"{mark} {row.case:32} {row.level:6} {row.number:3} {row.seconds:6.1f} s {row.status:12} {row.message[:160]}")
    finally:
        judge.close()
        if out:
            out.close()
    return rows


def _judge_all(judge: Judge, cases: Sequence[Case], size: str, options: argparse.Namespace) -> Iterator[RoundingRow]:
    """One task after the other, so that what was prepared for it serves all its kernels."""
    for task in dict.fromkeys(case.task for case in cases):
        own = [case for case in cases if case.task == task]
        for case in own if options.verdicts != "none" else ():
            yield from judge_whole(judge, case, size, options.verdicts, options.verdicts)
        for case in own:
            yield from judge_whole(judge, case, size, "quick", REPEATED, options.repeat)
        if options.calls:
            yield from judge_calls(own, size, options.target, options.calls)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every verdict is as it must be, else 1; 2 for a wrong option."""
    started = time.monotonic()
    rows = run(_parser().parse_args(arguments), arguments)
    print_end(table_of(rows), describe_end(rows), started)
    return 0 if all(row.agrees for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
