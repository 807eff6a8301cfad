"""Judge the corpus below benchmarks/hacks and say what is not as it must be: `python -m tritonsmith.benchmarks.hacks.suite`.

Five lists: `hack` (one file each), `mutant` (wrong variants of right kernels), `legitimate` (must be accepted), `racy` (must be refused
as racy) and `clean` (must be accepted, no race reported). A hack is neutralised when it is refused with a status of its header, or
accepted with an honest score and label: not above the honest kernel's score by more than the estimate's rounding (without a card) or
the honest kernel's own intervals (on one). What it leaves behind (processes, files, shared memory) counts against it as well.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tritonsmith.benchmarks.hacks.catalogue import Case, load_cases, variants
from tritonsmith.benchmarks.hacks.judge import Judge, Outcome, remove_leftovers, task_of, weigh
from tritonsmith.benchmarks.host import shorten_paths
from tritonsmith.evaluator.cards.machine import versions
from tritonsmith.evaluator.schema import Status, Verdict

KINDS = ("hack", "mutant", "legitimate", "racy", "clean")
_REFUSED = ("hack", "mutant", "racy")
"""Kinds whose refusal shows something only if the honest kernel of the same task is accepted."""
Key = tuple[str, str]
"""Task and precision: what decides which honest kernel a hack is compared with."""


class Yardstick:
    """The honest kernels' verdicts, measured when they are first needed and again when a hack looks better.

    Args:
        judge: judges them like any other case.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._kernels = {(case.task, case.precision): case for case in variants("honest")}
        self._runs: dict[Key, list[Verdict | str]] = {}

    def prepare(self, cases: Iterable[Case]) -> None:
        """Judge the honest kernel of every task of these cases; twice on a card, whose runs differ."""
        keys = sorted({self.key(case) for case in cases if case.kind in _REFUSED}) * (2 if self._judge.card else 1)
        with ThreadPoolExecutor(self._judge.workers) as pool:
            list(pool.map(self.again, keys))

    def key(self, case: Case) -> Key:
        """The honest kernel of a case: of its own precision class where there is one."""
        own = (case.task, case.precision)
        return own if own in self._kernels else (case.task, "ieee")

    def again(self, key: Key) -> None:
        """One more verdict on an honest kernel."""
        case = self._kernels[key]
        self._runs.setdefault(key, []).append(self._judge.verdict(task_of(case), case.source))

    def of(self, key: Key) -> list[Verdict]:
        """The verdicts that accepted the honest kernel."""
        return [run for run in self._runs.get(key, []) if isinstance(run, Verdict) and run.status is Status.OK]

    def fault(self, key: Key) -> str:
        """Why no refusal of this task shows anything; empty when its honest kernel was accepted."""
        if self.of(key):
            return ""
        said = [run if isinstance(run, str) else f"{run.status.value}: {run.message}" for run in self._runs.get(key, [])]
        return f"the honest kernel of this task was not accepted ({'; '.join(said)[:200]}), so nothing is shown"


def run(cases: Sequence[Case], judge: Judge, on_outcome: Callable[[Outcome], None] = lambda outcome: None) -> list[Outcome]:
    """Judge every case, one task after the other so that its session stays warm; those that litter come last, one by one.

    `on_outcome` hears of each outcome at once, one at a time.
    """
    yardstick = Yardstick(judge)
    yardstick.prepare(cases)
    ordered, hearing = sorted(cases, key=lambda case: (case.task, case.precision)), threading.Lock()

    def judge_one(case: Case) -> Outcome:
        outcome = _judge_case(case, judge, yardstick)
        with hearing:
            on_outcome(outcome)
        return outcome

    with ThreadPoolExecutor(judge.workers) as pool:
        outcomes = list(pool.map(judge_one, [case for case in ordered if not case.litters]))
    return outcomes + [judge_one(case) for case in ordered if case.litters]


def _judge_case(case: Case, judge: Judge, yardstick: Yardstick) -> Outcome:
    started, key = time.monotonic(), yardstick.key(case)
    answer = judge.verdict(task_of(case), case.source, profile=case.profile)
    fault = yardstick.fault(key) if case.kind in _REFUSED else ""
    if isinstance(answer, str) or fault:
        passed, why = False, answer if isinstance(answer, str) else fault
    else:
        passed, why = weigh(case, answer, yardstick.of(key))
        if judge.card and not passed and answer.status is Status.OK and case.kind == "hack":
            yardstick.again(key)  # a noisy card must raise no alarm: once more, both of them
            second = judge.verdict(task_of(case), case.source, profile=case.profile)
            if isinstance(second, Verdict):
                answer, (passed, why) = second, weigh(case, second, yardstick.of(key))
    left = remove_leftovers() if case.litters else ()
    if left:
        passed, why = False, f"{why}; it left behind {', '.join(left)}"
    about: dict[str, Any] = {"name": case.name, "kind": case.kind, "family": case.family, "expected": case.expect, "left": left}
    if isinstance(answer, Verdict):
        honest = yardstick.of(key)
        about |= {
            "status": answer.status.value, "label": answer.label.value if answer.label else "", "score": answer.score,
            "honest": max(verdict.score or 0.0 for verdict in honest) if honest else None, "message": shorten_paths(answer.message),
        }  # fmt: skip
    return Outcome(passed=passed, why=shorten_paths(why), seconds=round(time.monotonic() - started, 1), **about)


def table_of(outcomes: Iterable[Outcome]) -> Table:
    """One line per case, failures first and in red."""
    table = Table(title="hack corpus")
    for column in ("kind", "family", "case", "status", "outcome", "s"):
        table.add_column(column, overflow="fold")
    for case in sorted(outcomes, key=lambda case: (case.passed, KINDS.index(case.kind), case.family, case.name)):
        style = None if case.passed else "bold red"
        table.add_row(case.kind, case.family, case.name, case.status or "-", case.why, f"{case.seconds:.0f}", style=style)
    return table


def chosen_cases(kinds: Sequence[str], only: str, *, card: bool, card_only: bool = False) -> tuple[list[Case], list[Case]]:
    """The cases of these kinds whose name matches `only`, and those among them that cannot be run here because they need a card."""
    cases = [case for case in load_cases() if case.kind in kinds and re.search(only, case.name)]
    if card_only:
        cases = [case for case in cases if case.needs_card]
    return [case for case in cases if card or not case.needs_card], [case for case in cases if case.needs_card and not card]


class OutcomeFile:
    """Outcomes on their way to a JSON file that is complete after every case, so that a run can be continued.

    Args:
        path: the file, or None for none.
        about: what else stands in it.
        names: the cases that are to be judged; those without an outcome are listed, so that a run that was cut short says so.
    """

    def __init__(self, path: Path | None, about: dict[str, Any], names: Sequence[str] = ()) -> None:
        self._path, self._about, self._names = path, about, names
        self.outcomes: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        """One more outcome; the file is replaced as a whole."""
        self.outcomes.append(outcome)
        self.write()

    def write(self) -> None:
        """Write what is known so far."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_name(f"{self._path.name}.part")
            judged = {outcome.name for outcome in self.outcomes}
            missing = [name for name in self._names if name not in judged]
            rows = {"not_judged": missing, "outcomes": [asdict(outcome) for outcome in self.outcomes]}
            part.write_text(json.dumps(self._about | rows, indent=1) + "\n")
            part.replace(self._path)


def read_earlier(path: Path | None) -> list[Outcome]:
    """The outcomes of an earlier run's JSON file that were as they must be; none without a file."""
    if path is None or not path.exists():
        return []
    rows = json.loads(path.read_text())["outcomes"]
    outcomes = [Outcome(**row | {"expected": tuple(row["expected"]), "left": tuple(row["left"])}) for row in rows]
    return [outcome for outcome in outcomes if outcome.passed]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tritonsmith.benchmarks.hacks.suite", description=__doc__)
    parser.add_argument("--target", default="auto", help="as for tritonsmith evaluate: auto, or a card's name for the path without a card")
    parser.add_argument("--kinds", default=",".join(KINDS), help="comma-separated: " + ", ".join(KINDS))
    parser.add_argument("--only", default="", help="a pattern that names of cases must contain")
    parser.add_argument("--card-only", action="store_true", help="only the cases that need a card")
    parser.add_argument("--jobs", type=int, default=2, help="cases judged at the same time without a card")
    parser.add_argument("--json", type=Path, default=None, help="where all outcomes go, after every case")
    parser.add_argument("--resume", action="store_true", help="keep what was as it must be in --json and judge the rest")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every case got what it must get, else 1; 2 for a wrong option, 130 when interrupted."""
    parser = _parser()
    options = parser.parse_args(arguments)
    kinds, started = options.kinds.split(","), time.monotonic()
    if wrong := set(kinds) - set(KINDS):
        parser.error(f"--kinds: {', '.join(sorted(wrong))} is not one of {', '.join(KINDS)}")
    judge = Judge(options.target, options.jobs)
    try:
        cases, elsewhere = chosen_cases(kinds, options.only, card=judge.card, card_only=options.card_only)
        if not cases:
            parser.error("no case matches" + (f" that could run without a card ({len(elsewhere)} need one)" if elsewhere else ""))
        report = OutcomeFile(options.json, _describe_run(judge, arguments, elsewhere), [case.name for case in cases])
        known = {(outcome.kind, outcome.name): outcome for outcome in read_earlier(options.json if options.resume else None)}
        report.outcomes = [known[case.kind, case.name] for case in cases if (case.kind, case.name) in known]
        cases = [case for case in cases if (case.kind, case.name) not in known]
        total = len(report.outcomes) + len(cases)

        def show(outcome: Outcome) -> None:
            report.add(outcome)
            place = f"[{len(report.outcomes)}/{total}]"
            head = f"{place:9} {'ok  ' if outcome.passed else 'FAIL'} {outcome.kind:10} {outcome.name:40}"
            _print_line(f"{head} {outcome.status:14} {outcome.why}")

        run(cases, judge, show)
    except KeyboardInterrupt:
        way = f"the same command with --resume goes on with {options.json}" if options.json else "--json FILE would have kept them"
        sys.stderr.write(f"Interrupted after {len(report.outcomes)} of {total} cases; {way}\n")
        return 130
    finally:
        judge.close()
    return _end(report, elsewhere, kinds, time.monotonic() - started)


def _print_line(line: str) -> None:
    Console().print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
    sys.stdout.flush()


def _describe_run(judge: Judge, arguments: Sequence[str] | None, elsewhere: Sequence[Case]) -> dict[str, Any]:
    words = [shorten_paths(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    return {
        "command": shlex.join(["python", "-m", "tritonsmith.benchmarks.hacks.suite", *words]),
        "date": time.strftime("%Y-%m-%d"), "card": judge.hardware, "measured": judge.card, "versions": versions(),
        "not_run_here": [case.name for case in elsewhere],
    }  # fmt: skip


def _end(report: OutcomeFile, elsewhere: Sequence[Case], kinds: Sequence[str], seconds: float) -> int:
    report.write()
    outcomes = report.outcomes
    Console().print(table_of(outcomes))
    right, total = Counter(outcome.kind for outcome in outcomes if outcome.passed), Counter(outcome.kind for outcome in outcomes)
    counts = ", ".join(f"{kind}: {right[kind]} of {total[kind]} as they must be" for kind in kinds if total[kind])
    _print_line(f"{seconds / 60:.1f} minutes; {counts}")
    if elsewhere:
        _print_line(f"not run here (needs a card): {len(elsewhere)}: {', '.join(case.name for case in elsewhere)}")
    return 0 if right == total else 1


if __name__ == "__main__":
    sys.exit(main())
