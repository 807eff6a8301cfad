"""A timed race on a card: each entrant is checked once, then timed in pairs with the incumbent. Imports torch.

What comes of it is no verdict. It decides who gets a full one, and there everything is checked and timed as always. So the race trusts the
card's clock where the oracle's does not contradict it, and a candidate that lies wins nothing but a verdict that finds it out.

All processes that run candidates are confined as always. Those that are not timed stand still.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence

import torch

from tritonsmith.evaluator.channel.doorbell import AS_CALLED, CUDA_GRAPH, FORMS, Command
from tritonsmith.evaluator.errors import CardMemoryError, InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.loaded_task import MOVED_WEIGHTS, LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import TrialLog, checked_call
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.oracle.judge.witness import has_room
from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess
from tritonsmith.evaluator.oracle.timing.calls import CallTimer
from tritonsmith.evaluator.oracle.timing.fresh_inputs import Inputs
from tritonsmith.evaluator.oracle.timing.halving import Pair, Standing, run_race
from tritonsmith.evaluator.oracle.timing.paired import UNSEEN_MS, UNSEEN_PART, Empty, excess
from tritonsmith.evaluator.protocol import GAIN, Fate, RaceRow
from tritonsmith.evaluator.schema import Status

_TOGETHER = 4
"""Entrants whose processes live at the same time; each holds a context, weights and outputs on the card."""
_LEFT_OVER = 2
"""Entrants of one heat that halving leaves over, at the most."""
_AFTER = 3
"""Processes that wait for what comes after a race: a verdict, or another race."""
_AHEAD_FROM = 32e9
"""Bytes of a card that also holds processes of later heats."""
_CONTEXT = 1e9
"""Bytes that a waiting process may hold of the card. It takes 4 to 5 s to start beside others (H200, 16 processors)."""
_WAITING = 3
"""Processes that wait where the task leaves little room; its memory plan has these."""
_WARM_CALLS = 2
"""Calls of each process before the first one that counts."""
_REASON_CHARACTERS = 300
"""Length of a reason."""


def run_card_race(
    baselines: BaselineProcess, timer: CallTimer, incumbent: KernelText, entrants: Sequence[KernelText], *, keep: int, limit: float,
    seconds: float, graphs: bool = False,
) -> list[RaceRow]:  # fmt: skip
    """A row for each entrant, in their order. Raises InfrastructureError where no race can be had.

    Args:
        baselines: the baselines' process of the task; what a call costs without forward is measured with it.
        timer: times calls.
        incumbent: the text that all others run against.
        entrants: the others.
        keep: entrants that halving leaves over.
        limit: seconds that one call may take at the most, compilation included.
        seconds: after so many no further heat or round begins.
        graphs: whether the incumbent's verdict timed it in a CUDA graph; then entrants run in one as well, where they can be captured.
    """
    session = baselines.session
    if not session.plan.together:
        raise InfrastructureError("the card's memory holds one process at a time, so two kernels cannot be timed in turn")
    try:
        session.use_weights(MOVED_WEIGHTS)
        timer.set_candidate(None)
        baselines.start()
        timer.open_baselines()
        return CardRace(session, timer, limit, seconds, graphs=graphs).run(incumbent, entrants, keep)
    except (torch.OutOfMemoryError, CardMemoryError) as error:
        raise InfrastructureError(f"the card's memory ran out in the race: {error}") from error


class CardRace:
    """One race of one task.

    Args:
        session: the task on the card.
        timer: times calls; its baselines' process is open.
        limit: seconds that one call may take at the most, compilation included.
        seconds: after so many no further heat or round begins.
        graphs: whether calls are replays of CUDA graphs, for those that can be captured.
    """

    def __init__(self, session: LoadedTask, timer: CallTimer, limit: float, seconds: float, *, graphs: bool = False) -> None:
        self._session = session
        self._timer = timer
        self._limit = limit
        self._end = time.monotonic() + seconds
        self._inputs = Inputs(session)
        self._empty = Empty(0.0, 0.0)
        self._least = GAIN
        """The ratio that an entrant must still be able to reach: an earlier heat may have shown a better one."""
        self._ahead: RunnerPool | None = None
        """Where processes wait for the next heat; None where the card has no room for them."""
        self._graphs = graphs
        self._captured: set[RunnerHandle] = set()
        """Processes whose calls are replays."""
        self._running: RunnerHandle | None = None
        """The process that does not stand still."""

    def run(self, incumbent: KernelText, entrants: Sequence[KernelText], keep: int) -> list[RaceRow]:
        """A row for each entrant, in heats of a few. Raises InfrastructureError where the incumbent does not run."""
        rows: dict[str, RaceRow] = {}
        together = _TOGETHER if has_room(self._session) else 1
        heats = [entrants[first : first + together] for first in range(0, len(entrants), together)]
        self._ahead = self._session.pool if self._session.hardware.memory_bytes >= _AHEAD_FROM else None
        most = self._count_waiting() if together > 1 else _WAITING
        try:
            self._session.place(self._session.draw("own"))  # the calls in which kernels are compiled read what they would
            with contextlib.closing(self._start(incumbent)) as known:
                self._await(min(len(entrants), most) or _AFTER)
                known.collect(self._limit)
                self._check(known)
                if self._graphs and (problem := self._capture(known)):
                    raise InfrastructureError(f"the kernel that is best so far was captured in its verdict and cannot be here: {problem}")
                for number, heat in enumerate(heats, start=1):
                    if time.monotonic() > self._end:
                        rows |= {entrant.sha: RaceRow(sha=entrant.sha, fate=Fate.UNTIMED) for entrant in heat}
                    else:
                        behind = min(len(entrants) - number * together, most) if number < len(heats) else _AFTER
                        rows |= self._run_heat(known, heat, min(keep, _LEFT_OVER), behind)
        except RunnerFault as fault:
            raise InfrastructureError(f"the kernel that is best so far does not run in the race: {fault}") from fault
        finally:
            self._timer.set_candidate(None)
            if self._ahead is not None:
                self._ahead.trim(candidate=_AFTER)
        _halve(rows, keep)
        return [rows[entrant.sha] for entrant in entrants]

    def _count_waiting(self) -> int:
        """Processes that may wait for their heat: as many as processors import side by side, and as the card's memory holds."""
        plan = self._session.plan
        return max(_TOGETHER, min(len(os.sched_getaffinity(0)), int((plan.room - plan.needed) / 2 / _CONTEXT)))

    def _await(self, count: int) -> None:
        """Let so many processes import beside what goes on; they stand still while something is timed."""
        if self._ahead is not None:
            self._ahead.fill(candidate=count)

    def _start(self, kernel: KernelText) -> RunnerHandle:
        """A process for a text, which imports it and compiles in a first call; does not wait."""
        runner = self._session.runner(kernel)
        runner.post(Command.CALL)
        return runner

    def _check(self, runner: RunnerHandle) -> None:
        """Have a call checked; then the process stands still. Raises RunnerFault."""
        log = TrialLog(self._session)
        checked_call(log, runner, "own", 0, self._limit)
        log.require_accurate()
        runner.process.pause()

    def _capture(self, runner: RunnerHandle) -> str:
        """Capture forward of a process that stands still; why that fails, else empty: then the process must not be used any more."""
        runner.process.resume()
        problem = runner.capture(self._limit)
        runner.process.pause()
        if not problem:
            self._captured.add(runner)
        return problem

    def _capture_all(self, runners: dict[str, RunnerHandle], heat: Sequence[KernelText], stack: contextlib.ExitStack) -> None:
        """Capture every entrant of a heat; one that cannot be captured is called in a new process. Raises RunnerFault of none."""
        for entrant in heat:
            if entrant.sha not in runners:
                continue
            try:
                problem = self._capture(runners[entrant.sha])
            except RunnerFault as fault:
                problem = str(fault)
            if problem:
                runners[entrant.sha].process.kill()
                runners[entrant.sha] = stack.enter_context(contextlib.closing(self._start(entrant)))

    def _run_heat(self, known: RunnerHandle, heat: Sequence[KernelText], keep: int, behind: int) -> dict[str, RaceRow]:
        """The rows of a heat; `behind` processes for what comes next import beside it."""
        rows: dict[str, RaceRow] = {}
        with contextlib.ExitStack() as stack:
            # all of them start before the first is waited for: they import and compile side by side
            runners = {entrant.sha: stack.enter_context(contextlib.closing(self._start(entrant))) for entrant in heat}
            self._await(behind)
            self._drop_failed(runners, rows, lambda runner: runner.collect(self._limit))
            self._drop_failed(runners, rows, self._check)  # now that none is in a call: they share the inputs' place
            if self._graphs:
                checked = set(runners.values())
                self._capture_all(runners, heat, stack)
                self._drop_failed(runners, rows, lambda runner: None if runner in checked else self._begin_again(runner))
            self._timer.set_candidate(None)
            with self._session.measuring():
                self._empty = self._timer.measure_empty(self._limit)
                self._drop_failed(runners, rows, lambda runner: [self._time(runner) for _ in range(_WARM_CALLS)])
                standings = self._time_pairs(known, runners, rows, keep)
            self._stand_still()
        for sha, standing in standings.items():
            if sha not in rows:
                rows[sha] = row = _row_of(sha, standing)
                self._least = max(self._least, row.interval[0] if row.interval and row.fate is Fate.KEPT else 0.0)
        return rows

    def _begin_again(self, runner: RunnerHandle) -> None:
        runner.collect(self._limit)
        self._check(runner)

    @staticmethod
    def _drop_failed(runners: dict[str, RunnerHandle], rows: dict[str, RaceRow], step: Callable[[RunnerHandle], object]) -> None:
        """Take a step with each; those that fail it leave the race with a row."""
        for sha in list(runners):
            try:
                step(runners[sha])
            except RunnerFault as fault:
                rows[sha] = _failed(sha, fault)
                runners.pop(sha).process.kill()  # it shall not run beside the others

    def _time_pairs(
        self, known: RunnerHandle, runners: dict[str, RunnerHandle], rows: dict[str, RaceRow], keep: int
    ) -> dict[str, Standing]:
        """The standings; one that fails while it is timed leaves, and the others start again."""
        while True:
            failed: list[str] = []

            def time_pair(sha: str, entrant_first: bool, failed: list[str] = failed) -> Pair:
                taken: dict[bool, float] = {}
                for of_entrant in (entrant_first, not entrant_first):
                    try:
                        taken[of_entrant] = self._time(runners[sha] if of_entrant else known)
                    except RunnerFault as fault:
                        if not of_entrant:
                            raise
                        rows[sha] = _failed(sha, fault)
                        failed.append(sha)
                        raise _Left from fault
                return taken[False], taken[True]

            try:
                return run_race(list(runners), time_pair, keep, lambda: time.monotonic() < self._end, self._least)
            except _Left:
                for sha in failed:
                    del runners[sha]

    def _time(self, runner: RunnerHandle) -> float:
        """Milliseconds of one call by the card's clock; by the oracle's where it saw clearly more. Raises RunnerFault."""
        self._stand_still()
        runner.process.resume()
        self._running = runner
        self._timer.set_candidate(runner)
        mode = FORMS.index(CUDA_GRAPH if runner in self._captured else AS_CALLED)
        sample = self._timer.time_call(runner, self._inputs.next, self._limit, mode)
        more = excess(sample, self._empty)
        return sample.card + (more if more > max(UNSEEN_MS, UNSEEN_PART * sample.card) else 0.0)

    def _stand_still(self) -> None:
        if self._running is not None:
            self._running.process.pause()
            self._running = None


class _Left(Exception):
    """An entrant failed while it was timed."""


def _failed(sha: str, fault: RunnerFault) -> RaceRow:
    reason = str(fault).splitlines()[0] if str(fault) else fault.status.value
    words = reason if fault.status is not Status.INACCURATE else f"wrong: {reason}"
    return RaceRow(sha=sha, fate=Fate.FAILED, reason=words[:_REASON_CHARACTERS])


def _row_of(sha: str, standing: Standing) -> RaceRow:
    if not standing.ratios:
        return RaceRow(sha=sha, fate=Fate.UNTIMED)
    fate = Fate.KEPT if standing.left_after is None else Fate.SLOWER
    return RaceRow(sha=sha, fate=fate, ratio=standing.ratio, interval=standing.interval, pairs=len(standing.ratios))


def _halve(rows: dict[str, RaceRow], keep: int) -> None:
    """Of the winners of all heats the best `keep` stay."""
    kept = sorted((row for row in rows.values() if row.fate is Fate.KEPT), key=lambda row: -(row.ratio or 0.0))
    for row in kept[keep:]:
        rows[row.sha] = row.model_copy(update={"fate": Fate.SLOWER})
