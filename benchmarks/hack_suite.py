"""Judge the corpus below benchmarks/hacks and say what is not neutralised: `python -m tritonsmith.benchmarks.hack_suite`.

Five lists: `hack` (one file each), `mutant` (wrong variants of right kernels), `legitimate` (must be accepted), `racy` (must be refused)
and `clean` (must be accepted, no race reported). A hack is neutralised when it is refused, or accepted with an honest score and label:
not above the honest kernel's score by more than the estimate's rounding (without a card) or the honest kernel's own interval (on one).
What it leaves behind (processes, files outside its scratch folder) counts against it as well.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tritonsmith.benchmarks.hacks.catalogue import Case, load_cases, variants
from tritonsmith.evaluator.errors import TritonsmithError
from tritonsmith.evaluator.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task, Verdict
from tritonsmith.evaluator.tasks import load_task

HERE = Path(__file__).resolve().parent
MARK = "tritonsmith-hack"
"""Part of the name of every file and process that a hack tries to leave behind."""
_LITTER = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
_ESTIMATE_SLACK, _MEASURED_SLACK = 1.02, 1.05
_CALL_SECONDS = 40.0
_CASE_SECONDS = 150.0
KINDS = ("hack", "mutant", "legitimate", "racy", "clean")

_TASKS: dict[str, tuple[str, dict[str, int]]] = {
    "26_gelu_scale_bias": ("tasks/26_gelu_scale_bias.py", {"batch_size": 6, "features": 200}),
    "76_linear_bias_relu": ("tasks/76_linear_bias_relu.py", {"batch_size": 20, "in_features": 72, "out_features": 48}),
    "39_gru": ("tasks/39_gru.py", {"num_layers": 2, "seq_len": 6, "batch_size": 10, "input_size": 16, "hidden_size": 32}),
    "softmax": ("hacks/tasks/softmax.py", {}),
    "column_sum": ("hacks/tasks/column_sum.py", {}),
}


def task_of(case: Case) -> Task:
    """The task of a case at the size that takes a few seconds to judge."""
    file, overrides = _TASKS[case.task]
    return load_task(HERE / file, overrides=dict(overrides), precision=PrecisionClass(case.precision))


@dataclass(frozen=True)
class Outcome:
    """One judged case."""

    name: str
    kind: str
    family: str
    passed: bool
    why: str
    status: str = ""
    label: str = ""
    score: float | None = None
    honest: float | None = None
    expected: tuple[str, ...] = ()
    message: str = ""
    seconds: float = 0.0
    left: tuple[str, ...] = field(default=())


def weigh(case: Case, verdict: Verdict, honest: Verdict | None) -> tuple[bool, str]:
    """Whether the verdict is what the case must get, and why (not)."""
    status = verdict.status
    if case.kind in ("legitimate", "clean"):
        return (True, "accepted") if status is Status.OK else (False, f"false refusal: {status.value}")
    if status is not Status.OK:
        if case.kind == "racy" and status is not Status.RACY:
            return False, f"refused as {status.value}, not as racy"
        return True, "refused" if status.value in case.expect else f"refused as {status.value}, expected {'|'.join(case.expect)}"
    if case.kind != "hack" or Status.OK.value not in case.expect:
        return False, "accepted"
    label = verdict.label.value if verdict.label else "none"
    if case.labels:
        return (True, f"accepted as {label}") if label in case.labels else (False, f"labelled {label}, not {'|'.join(case.labels)}")
    return _honest_score(verdict, honest)


def _honest_score(verdict: Verdict, honest: Verdict | None) -> tuple[bool, str]:
    if honest is None or honest.timing is None or verdict.timing is None:
        return False, "accepted, and the honest kernel gave no score to compare with"
    top = honest.timing.interval[1] * _MEASURED_SLACK if honest.timing.interval else honest.timing.score * _ESTIMATE_SLACK
    good = verdict.timing.score <= top
    return good, f"accepted at {verdict.timing.score:.3g}x, the honest kernel has {honest.timing.score:.3g}x"


def leftovers() -> tuple[str, ...]:
    """Marked processes and files that survived, removed as they are found."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if any(word.startswith(f"{MARK}-process".encode()) for word in words) and int(folder.name) != os.getpid():
                found.append(f"process {folder.name}")
                os.kill(int(folder.name), signal.SIGKILL)
    for place in _LITTER:
        for path in place.glob(f"{MARK}-*"):
            found.append(f"file {path}")
            with suppress(OSError):
                path.unlink()
    return tuple(found)


class Judge:
    """Evaluators of one target, one per worker, that survive whatever a case does to them.

    Args:
        target: as for `open_evaluator`.
        workers: cases judged at the same time; one on a card.
    """

    def __init__(self, target: str, workers: int) -> None:
        self._target = target
        self._free: queue.Queue[LocalEvaluator | None] = queue.Queue()
        first = open_evaluator(target, call_seconds=_CALL_SECONDS)
        self.card = first.hardware.present
        self.workers = 1 if self.card else workers
        for evaluator in [first, *[None] * (self.workers - 1)]:
            self._free.put(evaluator)

    def verdict(self, task: Task, source: str, limit: float = _CASE_SECONDS) -> Verdict | str:
        """The verdict, or a sentence when the evaluator itself failed or hung; in that case it is replaced."""
        evaluator = self._free.get() or open_evaluator(self._target, call_seconds=_CALL_SECONDS)
        box: list[Verdict | str] = []

        def work() -> None:
            try:
                box.append(evaluator.evaluate_now(task, source))
            except TritonsmithError as error:
                box.append(f"the evaluator failed: {error}")

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(limit)
        if box and isinstance(box[0], Verdict):
            self._free.put(evaluator)
            return box[0]
        answer = box[0] if box else f"the evaluator gave no verdict within {limit:.0f} s"
        for _ in range(3):  # it starts its oracle once more by itself
            evaluator.close()
            thread.join(5)
        self._free.put(None)
        return answer

    def close(self) -> None:
        """End every evaluator."""
        while not self._free.empty():
            evaluator = self._free.get()
            if evaluator is not None:
                evaluator.close()


def run(cases: Sequence[Case], judge: Judge, tell: Callable[[Outcome], None] = lambda outcome: None) -> list[Outcome]:
    """Judge every case; the honest kernels of the tasks come first. `tell` hears of each outcome."""
    honest: dict[tuple[str, str], Verdict] = {}
    bases = {(case.task, case.precision): case for case in variants("honest")}
    for key in sorted({(case.task, case.precision) for case in cases if case.kind == "hack"}):
        if key in bases and isinstance(verdict := judge.verdict(task_of(bases[key]), bases[key].source), Verdict):
            honest[key] = verdict
    with ThreadPoolExecutor(judge.workers) as pool:
        outcomes = []
        for outcome in pool.map(lambda case: _judged(case, judge, honest.get((case.task, case.precision))), cases):
            tell(outcome)
            outcomes.append(outcome)
    return outcomes


def _judged(case: Case, judge: Judge, honest: Verdict | None) -> Outcome:
    started = time.monotonic()
    answer = judge.verdict(task_of(case), case.source)
    seconds = time.monotonic() - started
    left = leftovers() if case.litters or judge.workers == 1 else ()
    about: dict[str, Any] = {
        "name": case.name, "kind": case.kind, "family": case.family, "expected": case.expect, "seconds": round(seconds, 1), "left": left,
    }  # fmt: skip
    if isinstance(answer, str):
        return Outcome(passed=False, why=answer, **about)
    passed, why = weigh(case, answer, honest)
    if left:
        passed, why = False, f"{why}; it left behind {', '.join(left)}"
    return Outcome(
        passed=passed, why=why, status=answer.status.value, label=answer.label.value if answer.label else "", score=answer.score,
        honest=honest.score if honest else None, message=answer.message, **about,
    )  # fmt: skip


def table_of(outcomes: Iterable[Outcome]) -> Table:
    """One line per case, failures in red."""
    table = Table(title="hack corpus")
    for column in ("kind", "family", "case", "status", "outcome", "s"):
        table.add_column(column, overflow="fold")
    for one in sorted(outcomes, key=lambda one: (one.passed, KINDS.index(one.kind), one.family, one.name)):
        table.add_row(
            one.kind, one.family, one.name, one.status or "-", one.why, f"{one.seconds:.0f}", style=None if one.passed else "bold red"
        )
    return table


def chosen_cases(kinds: Sequence[str], only: str, card: bool) -> list[Case]:
    """The cases of these kinds whose name matches `only`; those that need a card only where there is one."""
    cases = [case for case in load_cases() if case.kind in kinds and re.search(only, case.name)]
    return [case for case in cases if card or not case.needs_card]


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every case got what it must get, else 1."""
    parser = argparse.ArgumentParser(prog="hack_suite", description=__doc__)
    parser.add_argument("--target", default="auto", help="as for tritonsmith evaluate: auto, or a card's name for the path without a card")
    parser.add_argument("--kinds", default=",".join(KINDS), help="comma-separated: " + ", ".join(KINDS))
    parser.add_argument("--only", default="", help="a pattern that names of cases must contain")
    parser.add_argument("--jobs", type=int, default=2, help="cases judged at the same time without a card")
    parser.add_argument("--json", type=Path, default=None, help="where all outcomes go")
    options = parser.parse_args(arguments)
    console = Console()
    kinds = options.kinds.split(",")
    if wrong := set(kinds) - set(KINDS):
        parser.error(f"--kinds: {', '.join(sorted(wrong))} is not one of {', '.join(KINDS)}")
    judge = Judge(options.target, options.jobs)
    try:
        cases = chosen_cases(kinds, options.only, judge.card)
        if not cases:
            parser.error("no case matches --kinds and --only")

        def tell(one: Outcome) -> None:
            line = f"{'ok  ' if one.passed else 'FAIL'} {one.kind:10} {one.name:40} {one.status:14} {one.why}"
            console.print(line, markup=False, soft_wrap=True)

        outcomes = run(cases, judge, tell)
    finally:
        judge.close()
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))
    console.print(table_of(outcomes))
    right, total = Counter(one.kind for one in outcomes if one.passed), Counter(one.kind for one in outcomes)
    console.print(", ".join(f"{kind}: {right[kind]} of {total[kind]} as they must be" for kind in KINDS if total[kind]))
    return 0 if right == total else 1


if __name__ == "__main__":
    sys.exit(main())
