"""The oracle's clock: how long it takes to give the card to a process for one command and to have it again. Imports torch.

The oracle asks for the card a little before the command should be done. It has it the moment that the process has nothing left to do
there, no matter what the process says and when.

A process whose kernels are queued too slowly leaves gaps, in which the oracle gets the card too soon. After some such calls the card is
asked for only when the process has answered. What goes on after an answer is hidden for 20 microseconds then (`paired.Empty.hidden`), and
counted.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.oracle.handles.runner import RunnerHandle
from tritonsmith.evaluator.oracle.timing.hold import HOLD_MS, CardHold
from tritonsmith.evaluator.oracle.timing.paired import Empty

_EMPTY_CALLS = 8
"""Calls without forward of each kind."""
_HANDED_OVER_SECONDS = 40e-6
"""By then the card is on its way to whom it was given (a change takes 0.1 ms or more), and may be asked for again."""
_BEFORE_MS = 0.07
"""Milliseconds before it should be free that the card is asked for, for a forward of no length."""
_BEFORE_SHARE = 0.02
"""The part of forward that is added to that."""
_MAX_BEFORE_MS = 0.15
"""Milliseconds that the two may reach: what is pending when a time slice ends interrupts forward."""
_REMEMBERED_CALLS = 20
"""Calls of one kind that are looked back on."""
_MAX_LET_GO = 6
"""So many of them in which a runner let go of the card before it answered: from then on it is asked for when the runner has."""
_REMEMBERED_EMPTIES = 12
"""Measurements of an empty call, of which the best is taken."""
_EMPTY_MORE_MS = 0.003
"""Milliseconds that an empty call may take longer than that: more is somebody's doing."""
_NOTICE_SECONDS = 20e-6
"""Until a hold that was interrupted has said so."""
_BETWEEN_SHARE = 0.35
"""The part of an empty call, which is the time of two changes of hands, for which the card may be nobody's between two holds."""
_MAX_BETWEEN_MS = 0.1
"""Milliseconds that this may reach: somebody else who had the card in between would need almost three times as long on an H200."""

INTERRUPTED = "interrupted"
"""Why a call is void: somebody else had the card during a hold."""
LET_GO = "let go"
"""Why a call is void: the card was free before the runner answered."""
OVERSLEPT = "overslept"
"""Why a call is void: this process did not run when the card was given away, so that its clock started late."""
RETAKEN_LATE = "retaken late"
"""Why a call is void: this process did not run between two holds, so that somebody else may have had the card."""
TOO_SOON = "answered too soon"
"""Why a call is void: the answer came before the card was given away."""


class Turn(NamedTuple):
    """What came of giving the card away for one command."""

    ms: float
    """Until the oracle had it again."""
    asked_ms: float
    """Until the oracle asked for it."""
    early: bool
    """Whether the oracle asked for it before the answer."""
    answered_at_start: bool
    """Whether the answer was there when the card had just been given away."""
    interrupted: bool
    """Whether somebody else had the card while it was held.

    At the end of a time slice a process that has work for the card gets it. Usually that is the runner, which may then answer before
    the card is given away.
    """
    slept: bool
    """Whether this process did not run when the card was given away: then it was so some time before its clock says."""
    answered: bool
    """Whether the runner had answered when the oracle had the card; otherwise there was a gap in its work, or its answer was slow."""
    retaken_late: bool
    """Whether this process was too slow between two holds: then it is unknown whether somebody else had the card in between."""

    @property
    def valid(self) -> bool:
        """Whether nobody else had the card while it was held, the answer came after that, and it is known when that was."""
        return not (self.answered_at_start or self.interrupted or self.slept or self.retaken_late)

    @property
    def too_soon(self) -> bool:
        """Whether the answer came before the runner can have had the card."""
        return self.answered_at_start and not (self.interrupted or self.slept or self.retaken_late)

    @property
    def void_reason(self) -> str:
        """Why a call with this turn is void; empty when it is not."""
        if self.interrupted:
            return INTERRUPTED
        if self.retaken_late:
            return RETAKEN_LATE
        if self.slept:
            return OVERSLEPT
        return TOO_SOON if self.answered_at_start else "" if self.answered else LET_GO

    def beyond(self, empty: Empty) -> float:
        """Milliseconds more than a call without forward takes."""
        return self.ms - (empty.early if self.early else empty.late)


class Pace:
    """When to ask for the card again in calls of one kind, from how long the last ones took."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=5)
        self._let_go: deque[bool] = deque(maxlen=_REMEMBERED_CALLS)
        self._patient = False

    def wait_seconds(self, answer_ms: float) -> float:
        """Seconds after giving it away; infinity: after the answer. `answer_ms`: until the answer to a call without forward."""
        if self._patient or not self._last:
            return math.inf
        ms = min(self._last)
        before = min(_BEFORE_MS + _BEFORE_SHARE * ms, _MAX_BEFORE_MS)
        return max(_HANDED_OVER_SECONDS, (answer_ms + ms - before) * 1e-3)

    def note(self, ms: float, *, answered: bool) -> None:
        """Learn from one call: its time beyond an empty one's, and whether the runner kept the card until it had answered."""
        if answered:
            self._last.append(max(0.0, ms))
        self._let_go.append(not answered)
        self._patient |= sum(self._let_go) >= _MAX_LET_GO


class Exchange:
    """The card given to runners and taken again, each kind of call at its own pace.

    Args:
        hold: what keeps the card.
    """

    def __init__(self, hold: CardHold) -> None:
        self._hold = hold
        self._answer_ms = 0.0
        """Until the answer to a call without forward."""
        self.empty: Empty | None = None
        """What a call without forward takes, once that has been measured."""
        self._empties: deque[Empty] = deque(maxlen=_REMEMBERED_EMPTIES)
        self._paces: dict[tuple[bool, Command, int], Pace] = {}

    @property
    def between_ms(self) -> float:
        """Milliseconds for which the card may be nobody's between two holds: too few for somebody else to have it and give it back."""
        assert self.empty is not None
        return min(_MAX_BETWEEN_MS, _BETWEEN_SHARE * self.empty.early)

    def forget_paces(self) -> None:
        """Learn all paces anew: they differ from candidate to candidate and from processor to processor."""
        self._paces.clear()

    def take_paced_turn(
        self, runner: RunnerHandle, command: Command, argument: int, timeout: float, then: Callable[[], object] | None = None, *,
        candidate: bool,
    ) -> Turn:
        """`take_turn`, the card asked for when the calls before this one suggest."""
        assert self.empty is not None
        pace = self._paces.setdefault((candidate, command, argument), Pace())
        turn = self.take_turn(runner, command, argument, timeout, pace.wait_seconds(self._answer_ms), then)
        if turn.valid:
            pace.note(turn.beyond(self.empty), answered=turn.answered)
        return turn

    def take_turn(
        self, runner: RunnerHandle, command: Command, argument: int, timeout: float, wait: float, then: Callable[[], object] | None = None
    ) -> Turn:
        """Give the card, which is held, to a runner for one command, ask for it `wait` seconds later, and hold it again.

        `then` happens while it is held. Raises RunnerFault or InfrastructureError.
        """
        hold = self._hold
        runner.post(command, argument)
        given = hold.wait_end()
        at_start, slept = runner.answered, hold.slept
        if wait == math.inf:
            runner.echo(given, timeout)
        else:
            while not runner.answered and time.perf_counter() < given + wait:
                pass
        asked = time.perf_counter()
        early = wait != math.inf and not runner.answered
        interrupted, retaken_late, answered = hold.interrupted, hold.retaken_late, False

        def look_and_continue() -> None:
            nonlocal answered
            answered = runner.answered
            if answered and then is not None:
                then()

        had = hold.begin(look_and_continue, HOLD_MS if command is Command.CLOCKED else 0.0, at_once=True)
        runner.echo(given, timeout)
        return Turn((had - given) * 1e3, (asked - given) * 1e3, early, at_start, interrupted, slept, answered, retaken_late)

    def wait_undisturbed(self) -> bool:
        """Wait until the card is given back; whether it stayed this process's until then."""
        self._hold.wait_end()
        time.sleep(_NOTICE_SECONDS)
        return not self._hold.interrupted

    def take_empty_turns(self, runner: RunnerHandle, calls: int, timeout: float, wait: float = _HANDED_OVER_SECONDS) -> list[Turn]:
        """Calls without forward. Raises RunnerFault or InfrastructureError."""
        turns = []
        for _ in range(calls):
            self._hold.begin()
            turns.append(self.take_turn(runner, Command.EMPTY, 0, timeout, wait))
            self._hold.wait_end()
        return turns

    def measure_empty(self, runner: RunnerHandle, timeout: float) -> Empty:
        """What a call without forward takes now: medians, for now and then the card changes hands 5 or 15 microseconds sooner.

        Raises RunnerFault or InfrastructureError.
        """
        usable = []
        for wait in (_HANDED_OVER_SECONDS, math.inf):
            turns = self.take_empty_turns(runner, _EMPTY_CALLS, timeout, wait)
            usable.append([turn for turn in turns if turn.valid and turn.answered] or turns)
        early, late = (median(turn.ms for turn in turns) for turns in usable)
        self._answer_ms = median(turn.asked_ms for turn in usable[1])
        self._empties.append(Empty(early, late))
        least = Empty(*(min(ms) for ms in zip(*self._empties, strict=True)))
        self.empty = Empty(min(early, least.early + _EMPTY_MORE_MS), min(late, least.late + _EMPTY_MORE_MS))
        return self.empty
