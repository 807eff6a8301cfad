"""Stand-ins for the card being held and for runners, for tests of timed calls."""

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.oracle.timing import calls
from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess
from tritonsmith.evaluator.oracle.timing.calls import CallTimer
from tritonsmith.evaluator.oracle.timing.known_baselines import KnownBaselines

LATER = 0.02
"""Milliseconds by which the card is had later where it is asked for after the answer."""


class Hold:
    """Stands for the card being held; `lost` says whether somebody else had it meanwhile, time by time; `sleeps` whether this process slept
    when it was given away, turn by turn."""

    def __init__(self, lost: Iterable[bool] = ()) -> None:
        self.lost = iter(lost)
        self.sleeps: Iterator[bool] = iter(())
        self.interrupted = self.retaken_late = self.held = False
        self.prepared_ms = self.gap_ms = 0.0
        self.given: TimedRunner | None = None

    @property
    def slept(self) -> bool:
        return next(self.sleeps, False)

    def begin(
        self, prepare: Callable[[], object] = lambda: None, milliseconds: float = 0.5, *, at_once: bool = False, between_ms: float = 0.0
    ) -> float:
        self.interrupted, self.held = next(self.lost, False), True
        took = 0.0
        if at_once:
            assert self.given is not None
            took = self.given.milliseconds[self.given.asked.name.lower()] + (LATER if self.given.answered else 0.0)
            self.given.had()
        prepare()
        return took * 1e-3

    def wait_end(self) -> float:
        assert self.held
        self.held = False
        return 0.0


class TimedRunner:
    """Has the card for a fixed number of milliseconds. It is rung, and its slots are filled and read, while the card is held only."""

    def __init__(self, hold: Hold, *, early: int = 0, **milliseconds: float) -> None:
        self.hold, self.milliseconds = hold, milliseconds
        self.process = self
        """The process stands still and ends as this does."""
        self.early, self.answered, self.lets_go = early, False, 0
        self.stopped = self.killed = False
        self.poisoned = 0
        self.asked = Command.EMPTY
        self.waited: list[Command] = []
        """Commands whose answer was waited for before the card was asked for."""

    def post(self, command: Command, argument: int = 0) -> None:
        assert self.hold.held
        self.asked, self.hold.given, self.answered = command, self, self.early > 0
        self.early -= self.answered

    def had(self) -> None:
        """The oracle has the card again."""
        if not self.answered and self.asked is Command.CLOCKED and self.lets_go:
            self.lets_go -= 1
        else:
            self.answered = True

    def poison(self) -> None:
        assert self.hold.held
        self.poisoned += 1

    def command(self, command: Command, argument: int = 0, *, timeout: float) -> float:
        return 0.1

    def echo(self, start: float, timeout: float) -> float:
        assert not self.stopped
        if not self.answered:
            self.waited.append(self.asked)
        self.answered = True
        return 0.0

    @property
    def device_ms(self) -> float:
        return self.milliseconds["card"]

    def pause(self) -> None:
        self.stopped = True

    def resume(self) -> None:
        self.stopped = False

    def kill(self) -> None:
        self.killed = True


def make_timer(lost: Iterable[bool] = (), **about: Any) -> tuple[CallTimer, Any, Any]:
    """A timer of calls, a candidate's runner and the baselines'."""
    hold = Hold()
    session = SimpleNamespace(slots=[], arithmetic=SimpleNamespace(tf32=False))
    process = BaselineProcess(cast(Any, session), KnownBaselines({"eager": 0}))
    baselines = TimedRunner(hold, clocked=5.5, card=5.0, deliver=0.7, empty=0.5)
    process._runner = cast(Any, baselines)
    made = CallTimer(process, cast(Any, hold))
    assert made.measure_empty(1.0) == (0.5, 0.5 + LATER)
    first, *others = [made.time_call(cast(Any, baselines), list, 1.0) for _ in range(5)]
    assert first == (5.5 + LATER, 5.0, 0.0, False) and set(others) == {(5.5, 5.0, 0.0, True)}
    hold.lost = iter(lost)
    return made, TimedRunner(hold, empty=0.5, **about), baselines


def looked_at(monkeypatch: pytest.MonkeyPatch, always: bool = True) -> None:
    """Let the card be looked at in every call of the baselines, or in none, with no time spent on it."""
    monkeypatch.setattr(calls.secrets, "randbelow", lambda part: 0 if always else 1)
    monkeypatch.setattr(calls.time, "sleep", lambda seconds: None)
