"""Stand-in for a card with time slices, and for the processes that share it. Time passes when somebody looks at the clock.

A process that has had the card for longer than its slice loses it as soon as another one has work. Until then it keeps it. A process that
is idle gets a new slice with its next work. No rule of a card is kinder to long work than this one is harsh.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.timing import calls, hold, turns
from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess
from tritonsmith.evaluator.oracle.timing.calls import CallTimer
from tritonsmith.evaluator.oracle.timing.hold import CardHold
from tritonsmith.evaluator.oracle.timing.hold_kernel import ANY_TIME, ENDED, GAP, INTERRUPTED, LATE, STARTED
from tritonsmith.evaluator.oracle.timing.known_baselines import KnownBaselines
from tritonsmith.evaluator.schema import Status

SLICE_US = 2000.0
SWITCH_US = 140.0
"""Of one change of hands."""
LAUNCH_US = 5.0
"""From a launch to the start of the kernel."""
HOST_US = 40.0
"""From the bell to a runner's launch, and from the end of its work to its answer."""
_STEP_US = 10.0
_LOOK_US = 4.0
"""What it takes to look at the clock."""


@dataclass
class Work:
    """A kernel of a runner."""

    us: float
    first: float = -1.0
    last: float = -1.0

    def run(self, step: float, now: float) -> bool:
        """Run for that long; whether it is done."""
        self.first = now if self.first < 0.0 else self.first
        self.last, self.us = now, self.us - step
        return self.us <= 0.0


@dataclass
class Owner:
    """A process with work for the card: one kernel after another, and copies beside them."""

    queue: list[Any] = field(default_factory=list)
    beside_us: float = 0.0

    @property
    def wants(self) -> bool:
        return bool(self.queue) or self.beside_us > 0.0

    def run(self, step: float, now: float) -> None:
        self.beside_us = max(0.0, self.beside_us - step)
        if self.queue and self.queue[0].run(step, now):
            self.queue.pop(0)


class SlicedCard:
    """The card, the clock of everybody, and the oracle's process. It stands for the module `time` too."""

    def __init__(self) -> None:
        self.now = 0.0
        self.oracle = Owner()
        self.owners = [self.oracle]
        self.current = self.oracle
        self.rung = True
        """Whether nobody may read the inputs that lie in the slots yet."""
        self.each_step: list[Callable[[], None]] = []
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._slice = 0.0
        self._idle = True
        self._switch: tuple[float, Owner] | None = None

    def perf_counter(self) -> float:
        """As `time.perf_counter`."""
        self.pass_time(_LOOK_US)
        return self.now * 1e-6

    def sleep(self, seconds: float) -> None:
        """As `time.sleep`."""
        self.pass_time(seconds * 1e6)

    def after(self, us: float, do: Callable[[], None]) -> None:
        """Do something later."""
        self._due.append((self.now + us, do))

    def pass_time(self, us: float) -> None:
        """Let so many microseconds pass."""
        while us > 0.0:
            step = min(us, _STEP_US)
            us -= step
            self.now += step
            for due in [due for due in self._due if due[0] <= self.now]:
                self._due.remove(due)
                due[1]()
            for look in self.each_step:
                look()
            self._run(step)

    def _run(self, step: float) -> None:
        if self._switch is not None:
            if self.now >= self._switch[0]:
                self.current, self._slice, self._idle, self._switch = self._switch[1], self.now, False, None
            return
        others = [owner for owner in self.owners if owner is not self.current and owner.wants]
        if self.current.wants:
            if self._idle:
                self._slice, self._idle = self.now, False
            if not others or self.now - self._slice < SLICE_US:
                self.current.run(step, self.now)
                return
        if others:
            self.owners.remove(others[0])
            self.owners.append(others[0])  # whose turn it is next time
            self._switch = self.now + SWITCH_US, others[0]
        else:
            self._idle = True


class HoldWork:
    """The kernel of one hold, which looks at the clock whenever it runs."""

    def __init__(self, kernel: SlicedKernel, number: int, wanted_us: float, between_us: float) -> None:
        self.kernel, self.number, self.wanted, self.between = kernel, number, wanted_us, between_us
        self.first = self.last = self.opened = -1.0
        self.longest = 0.0

    def run(self, step: float, now: float) -> bool:
        words = self.kernel.words
        if self.first < 0.0:
            self.first = self.last = now
            if now - self.kernel.last_look > self.between:
                words[LATE] = self.number
            words[STARTED] = self.number
        self.longest, self.last = max(self.longest, now - self.last), now
        if self.opened < 0.0 and self.kernel.gate == self.number:
            self.opened = now
        if self.opened < 0.0 or now - self.opened < self.wanted:
            return False
        if self.longest > 20.0:
            words[GAP], words[INTERRUPTED] = int(self.longest * 1e3), self.number
        words[ENDED], self.kernel.last_look = self.number, now
        return True


class SlicedKernel:
    """Stands for `HoldKernel`. `slow_us`: what the host does between a second launch and the one before."""

    def __init__(self, card: SlicedCard) -> None:
        self.card, self.words = card, [0] * 64
        self.gate, self.last_look = -1, 0.0
        self.slow_us = 0.0
        self.launched_again = 0

    def settle(self) -> None:
        """Nothing is queued elsewhere."""

    def launch(self, number: int, nanoseconds: int, between: int = ANY_TIME) -> None:
        if between != ANY_TIME:
            self.launched_again += 1
            self.card.pass_time(self.slow_us)
        work = HoldWork(self, number, nanoseconds * 1e-3, between * 1e-3)
        self.card.after(LAUNCH_US, lambda: self.card.oracle.queue.append(work))

    def open(self, number: int, prepare: Callable[[], object] = lambda: None) -> None:
        prepare()
        while self.card.oracle.beside_us > 0.0:
            self.card.pass_time(_STEP_US)
        self.gate = number


class SlicedRunner:
    """A runner on that card, and its process. Every command takes it so many milliseconds there."""

    def __init__(self, card: SlicedCard, placing_ms: float, **milliseconds: float) -> None:
        self.card, self.placing_ms, self.milliseconds = card, placing_ms, milliseconds
        self.process = self
        self.outputs: list[torch.Tensor] = []
        self.owner = Owner()
        card.owners.append(self.owner)
        self.answered = True
        self.killed = self.stopped = False
        self.seen_early = 0
        """Kernels that ran while inputs lay in the slots for a call that was not due."""
        self._forward = Work(0.0)

    def poison(self) -> None:
        """Stands for all that is placed: inputs and outputs."""
        self.card.rung = False
        self.card.oracle.beside_us += self.placing_ms * 1e3

    def post(self, command: Command, argument: int = 0) -> None:
        assert not self.stopped and not self.killed
        self.answered, self.card.rung = False, True
        work = Work(self.milliseconds[command.name.lower()] * 1e3)
        if command is Command.CLOCKED:
            self._forward = work
        self.card.after(HOST_US, lambda: self.owner.queue.append(work))
        self.card.after(HOST_US, lambda: self._answer(work))

    def _answer(self, work: Work) -> None:
        if work in self.owner.queue:
            self.card.after(_STEP_US, lambda: self._answer(work))
        else:
            self.answered = True

    def echo(self, start: float, timeout: float) -> float:
        while not self.answered:
            self.card.pass_time(_STEP_US)
            if self.card.now * 1e-6 - start > timeout:
                raise RunnerFault(Status.TIMEOUT, "a call took too long")
        return 0.0

    def command(self, command: Command, argument: int = 0, *, timeout: float) -> float:
        self.post(command, argument)
        return self.echo(self.card.now * 1e-6, timeout)

    @property
    def device_ms(self) -> float:
        return (self._forward.last - self._forward.first) * 1e-3

    def leave_work(self, us: float, when: Callable[[], bool]) -> None:
        """Have kernels of that length for the card whenever `when` says so, also while the process stands still."""

        def look() -> None:
            if self.killed:
                self.owner.queue.clear()
            elif not self.owner.queue and when():
                self.owner.queue.append(_Peek(us, self))

        self.card.each_step.append(look)

    def pause(self) -> None:
        self.stopped = True

    def resume(self) -> None:
        self.stopped = False

    def kill(self) -> None:
        self.killed = True


@dataclass
class _Peek(Work):
    """A kernel that looks at the inputs."""

    runner: SlicedRunner = cast(Any, None)

    def __init__(self, us: float, runner: SlicedRunner) -> None:
        super().__init__(us)
        self.runner = runner

    def run(self, step: float, now: float) -> bool:
        card = self.runner.card
        self.runner.seen_early += not card.rung and card.oracle.beside_us == 0.0
        return super().run(step, now)


def share_card(
    monkeypatch: pytest.MonkeyPatch, placing_ms: float, forward_ms: float, deliver_ms: float = 0.1, input_bytes: int = 8_600_000_000
) -> tuple[CallTimer, Any, Any]:
    """A timer of calls on a card with slices, a candidate's runner and the baselines'; what is timed takes both equally long."""
    card = SlicedCard()
    for module in (hold, turns, calls):
        monkeypatch.setattr(module, "time", card)
    monkeypatch.setattr(calls.secrets, "randbelow", lambda part: 1)
    slots = [torch.empty(input_bytes // 4, device="meta")]
    session = SimpleNamespace(slots=slots)
    process = BaselineProcess(cast(Any, session), KnownBaselines({"eager": 0}))
    process._slots = slots
    takes = {"clocked": forward_ms, "deliver": deliver_ms, "empty": 0.001}
    candidate, baselines = (SlicedRunner(card, placing_ms, **takes) for _ in range(2))
    process._runner = cast(Any, baselines)
    timer = CallTimer(process, CardHold(cast(Any, SlicedKernel(card))))
    timer.measure_empty(1.0)
    timer.set_candidate(cast(Any, candidate))
    return timer, candidate, baselines


def share_with_other(card: SlicedCard, us: float, when: Callable[[], bool]) -> None:
    """Somebody else's kernels of that length, one after another whenever `when` says so."""
    other = Owner()
    card.owners.append(other)

    def look() -> None:
        if not other.queue and when():
            other.queue.append(Work(us))

    card.each_step.append(look)


def draw_large(timer: CallTimer) -> Callable[[], list[torch.Tensor]]:
    """Inputs of the task's size, which take no memory."""
    return lambda: list(timer.session.slots)
