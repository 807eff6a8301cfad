"""Timed calls on a card: a candidate's runner and the baselines' process, under two clocks. Imports torch.

One timed call, the same for both sides: the oracle takes the card (`card_hold`), places fresh inputs, poisons the outputs and overwrites
the L2 cache; it rings, and the runner queues forward, which starts when the oracle gives the card back. A little before forward should be
done the oracle asks for the card again, and has it the moment that the runner has nothing left to do there, whatever the runner says or
when it answers. The time in between, less what a call without forward takes, is forward's. In the same way the delivery is timed, and the
outputs are copied while the card is the oracle's once more: what was put off is seen or is missing. The runner says what the card's events
around forward read, which is finer, and which counts where the two agree (`timing.weigh`).

A candidate whose kernels are queued too slowly leaves gaps, in which the oracle gets the card too soon. Such a call is taken again, and
after some of them the oracle asks only when the candidate has answered, which may hide 20 microseconds, and they are counted.

A candidate's processes stand still while the baselines are timed, and the card is looked at now and then: it must be idle then, as a rule.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import TypeVar

import torch

from tritonsmith.evaluator.channel.doorbell import BASELINES, Command, mode_number
from tritonsmith.evaluator.channel.slots import SharedBlock, fill_slots
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.oracle.checks.loaded_task import TaskSession
from tritonsmith.evaluator.oracle.handles.runner import Runner, RunnerFault
from tritonsmith.evaluator.oracle.timing.fresh_inputs import Inputs
from tritonsmith.evaluator.oracle.timing.hold import CardHold, card_hold
from tritonsmith.evaluator.oracle.timing.paired import Empty, Sample
from tritonsmith.evaluator.oracle.timing.turns import OVERSLEPT, TOO_SOON, Exchange, Turn
from tritonsmith.evaluator.schema import PrecisionClass, Status

_BUILD_SECONDS = 300.0  # torch.compile of a large network
WARM_CALLS = 5
_FEWEST = 4
"""Processors below which none is chosen: the processes and the oracle want one each, and something must be left to choose."""
_SLICE_MS = 2.0
"""A call whose hold met the end of a time slice is taken again that much later within it, at random."""
_VOID, _TOO_SOON = 20, 5
"""Calls in a row that may be lost because somebody else had the card or because a candidate left a gap; and answers of a candidate, in
all, that come while the card is not its own, besides as many as the baselines' process gives, which does not cheat."""
_OVERSLEPT, _ASLEEP = 100, 3
"""Calls in a row that may be lost because this process did not run; and of `_VOID` calls without the candidate, so many say that it
is not the candidate that keeps it from running (half of them: that nothing is shown)."""
_MINE, _THEIRS = "candidate's", "baseline's"
_BURST, _BURST_SECONDS = 10, 0.02
"""After so many lost calls that much time passes before each: somebody else's burst of work may be over then."""
_LOOK_MS, _LOOK_PART = 6.0, 8
"""Before one call of the baselines in so many, nobody knows which, the card is held for some time slices: who has work gets one."""
_LOST, _LOST_PART = 3, 0.25
"""So many of these looks, and so large a part of them, must be disturbed before somebody else is said to use the card."""
_MORE_LOOKS = 8
_REMEMBERED = 101


_SHARED = (
    "calls cannot be timed: something else uses this card, or processes do not take turns on it "
    "(CUDA MPS, or a time slice below 0.5 ms; `nvidia-smi compute-policy -l` tells); use another card or switch that off"
)

_BUSY = (
    "calls cannot be timed: other programs take this machine's processors away from the evaluator again and again; "
    "stop them, or leave it two processors of its own"
)

Call = Callable[[], Sample]
Taken = TypeVar("Taken")
Draw = Callable[[], list[torch.Tensor]]
"""Gives the inputs of a call; asked again when a call must be taken again."""


class Blamed(RunnerFault):
    """A candidate disturbs the calls of others."""


class Bench:
    """Times calls of one task; keeps the baselines' process alive between candidates.

    Args:
        session: the task on the card.
        modes: settings of baselines that were chosen before.
        hold: what takes the card; this process's when None.
    """

    def __init__(self, session: TaskSession, modes: dict[str, int] | None = None, hold: CardHold | None = None) -> None:
        self.session = session
        self.modes = dict(modes or {})
        self.notes: list[str] = []
        self._baselines: Runner | None = None
        self._unopened: tuple[str, ...] = ()
        self._delivered: deque[Turn] = deque(maxlen=_REMEMBERED)
        """The baselines' deliveries."""
        self._hold = hold or card_hold(session.hardware.l2_bytes)
        self._exchange = Exchange(self._hold)
        self._too_soon = 0
        """Answers of the candidate while the card was not its own."""
        self._block: SharedBlock | None = None
        self._slots: list[torch.Tensor] = []
        """The baselines' inputs: a candidate finds its own in its slots when its call is due, and not before."""
        self._weights = 0
        """Which of the session's draws the baselines have."""
        self.beside: Runner | None = None
        """The candidate's runner, which is alive while the baselines are timed."""
        self.looks = [0, 0]
        """Looks at the card between the baselines' calls: undisturbed ones, and others."""
        self.lost: Counter[str] = Counter()
        """Calls that were void and taken again, by whose they were and why (`Turn.lost`)."""
        self._places: list[int] | None = None
        """The oracle's processor and the baselines' in the last take."""

    def close(self) -> None:
        """End the baselines' process."""
        if self._baselines:
            self._baselines.close()
            self._baselines = None
        if self._block:
            self._slots = []
            self._block.close()
            self._block = None

    def accompany(self, runner: Runner | None) -> None:
        """From now on this candidate's processes live beside the baselines (None: no candidate's do)."""
        self.beside = runner
        self.looks = [0, 0]
        self.lost.clear()
        self._exchange.forget_paces()
        self._too_soon = 0

    # ---- one timed call

    def timed(
        self, runner: Runner, draw: Draw, timeout: float, mode: int = 0, delivered: Callable[[], object] = lambda: None
    ) -> Sample:
        """One call on a cold cache and inputs that the runner has not seen.

        `delivered` is called when the results lie in the slots and while the card is still this process's; again if the call is taken
        again. Raises RunnerFault or InfrastructureError.
        """
        beside = self.beside if runner is self._baselines else None
        with self._still(beside):
            if beside is not None and secrets.randbelow(_LOOK_PART) == 0:
                self.looks[self._disturbed()] += 1
            lost = slept = 0
            while lost < _VOID and slept < _OVERSLEPT and self._too_soon <= _TOO_SOON + self.lost[f"{_THEIRS} {TOO_SOON}"]:
                if max(lost, slept) >= _BURST:
                    time.sleep(_BURST_SECONDS)
                took = self._once(runner, draw(), timeout, mode, random.random() * _SLICE_MS if lost or slept else 0.0, delivered)
                if isinstance(took, Sample):
                    return took
                slept += took == OVERSLEPT
                lost += took != OVERSLEPT
        if runner is self._baselines and (beside is None or slept >= _OVERSLEPT):  # a candidate's processes are stopped meanwhile
            raise InfrastructureError(_BUSY if slept >= _OVERSLEPT else _SHARED)
        raise self._blame(beside or runner, timeout, overslept=slept >= _OVERSLEPT)

    def require_idle(self, timeout: float) -> None:
        """Raises Blamed, or InfrastructureError, where somebody else had work for the card while the baselines were timed."""
        seen, lost = self.looks
        if self.beside is None or lost < _LOST or lost <= _LOST_PART * (seen + lost):
            return
        with self._still(self.beside):  # whoever it was may have stopped
            again = sum(self._disturbed() for _ in range(_MORE_LOOKS))
        if again <= _LOST_PART * _MORE_LOOKS:
            raise InfrastructureError(_SHARED)
        raise self._blame(self.beside, timeout)

    def _disturbed(self) -> bool:
        """Whether somebody else has work for the card while nobody is asked for any: over some time slices he gets one."""
        self._hold.begin(milliseconds=_LOOK_MS)
        return not self._exchange.held()

    def _blame(self, runner: Runner, timeout: float, *, overslept: bool = False) -> Blamed:
        """The candidate's fault if calls can be timed once its processes are gone. Raises InfrastructureError if they cannot.

        `overslept`: this process did not get its processor, as beside processes that never sleep.
        """
        lost = ", ".join(f"{count} {why}" for why, count in sorted(self.lost.items()))
        runner.kill()
        self.accompany(None)
        looks = [self._disturbed() for _ in range(_MORE_LOOKS)]
        turns = self._without_forward(lambda runner: self._exchange.empties(runner, _VOID, timeout))
        slept = sum(one.slept for one in turns)
        if slept >= (_ASLEEP if overslept else _VOID // 2):
            raise InfrastructureError(_BUSY)
        if any(looks) or not all(one.ours or one.lost == OVERSLEPT for one in turns):
            raise InfrastructureError(_SHARED)
        said = "the candidate answers, or has work on the card, while the card belongs to another process"
        if overslept:
            said = "the candidate's processes keep the evaluator from the processor that it takes the time on"
        return Blamed(Status.CHEATING, said + (f" (void calls: {lost})" if lost else ""))

    def _place(self, runner: Runner, tensors: list[torch.Tensor], wait_ms: float) -> None:
        if wait_ms:
            time.sleep(wait_ms * 1e-3)
        runner.poison()
        fill_slots(self._slots if runner is self._baselines else self.session.slots, tensors)  # last: they lie ready from then on

    @contextlib.contextmanager
    def _still(self, runner: Runner | None) -> Iterator[None]:
        """Meanwhile nothing of a candidate's runs on the host, where it shares a processor with the baselines."""
        try:
            if runner is not None:
                runner.pause()
            yield
        finally:
            if runner is not None:
                runner.resume()

    def _once(
        self, runner: Runner, tensors: list[torch.Tensor], timeout: float, mode: int, wait_ms: float, delivered: Callable[[], object]
    ) -> Sample | str:
        """The call's times, or why it is void."""
        exchange, candidate = self._exchange, runner is not self._baselines
        whose = _MINE if candidate else _THEIRS
        assert exchange.empty is not None
        self._hold.begin(lambda: self._place(runner, tensors, wait_ms))
        forward = exchange.paced(runner, Command.CLOCKED, mode, timeout, candidate=candidate)
        self._too_soon += candidate and forward.too_soon
        if not forward.kept:
            runner.command(Command.DELIVER, timeout=timeout)
            self.lost[f"{whose} {forward.lost}"] += 1
            return forward.lost
        delivery = exchange.paced(runner, Command.DELIVER, 0, timeout, delivered, candidate=candidate)
        self._too_soon += candidate and delivery.too_soon and not forward.lost
        if why := forward.lost or delivery.lost or ("" if exchange.held() else "interrupted"):
            self.lost[f"{whose} {why}"] += 1
            return why
        card = runner.device_ms
        if not math.isfinite(card) or card < 0.0:  # bytes of the runner's; whatever is computed from them would be no time either
            raise RunnerFault(Status.CHEATING, "what the runner says of the card's clock is no time")
        late = max(0.0, delivery.ms - self._usual_delivery())
        if not candidate:
            self._delivered.append(delivery)
        return Sample(forward.ms, card, late, forward.early)

    def _usual_delivery(self) -> float:
        """Milliseconds; of deliveries before whose answer the card was asked for, since a candidate could answer before its is done."""
        early = [one.ms for one in self._delivered if one.early]
        return median(early or [one.ms for one in self._delivered] or [math.inf])

    # ---- baselines

    def begin(self, names: tuple[str, ...] = BASELINES) -> None:
        """Start the baselines' process, which builds these baselines while something else goes on; `open_baselines` waits for it."""
        if self._baselines is None:
            self.close()  # what a start that failed has left
            session = self.session
            self._block = SharedBlock(session.layout.input_bytes, session.device)
            self._block.tensor.fill_(0xFF)  # as in the candidate's
            self._slots = session.layout.views(self._block.tensor, session.layout.inputs)
            fill_slots(self._slots, session.draw("own"))  # they are read while the baselines are built
            session.sync()
            self._baselines = session.new_runner("reference", replace(session.setup, inputs=self._block))
            modes = [mode for name in names for mode in self._settings(name)]
            weights = self.session.copied_weights()  # the candidate's may be drawn again while this process starts
            self._weights = self.session.weights_drawn
            self._baselines.begin(task=self.session.task.model_dump(mode="json"), build=modes, weights=str(weights))
            self._unopened = names

    def open_baselines(self) -> None:
        """Wait until the baselines are built, give them the weights of now, and keep the faster setting of each.

        Raises InfrastructureError.
        """
        self.begin()
        assert self._baselines is not None
        try:
            self._baselines.wait_ready(_BUILD_SECONDS)
            if self._weights != self.session.weights_drawn:
                self._weights = self.session.weights_drawn
                self.session.copied_weights()  # into the file that this process was told of
                self._baselines.command(Command.WEIGHTS, timeout=_BUILD_SECONDS)
        except RunnerFault as fault:
            self.close()
            raise InfrastructureError(f"the baselines' process did not start: {fault}") from fault
        self.empty(_BUILD_SECONDS)
        names, self._unopened = self._unopened, ()
        inputs = Inputs(self.session) if names else None
        for name in names:
            assert inputs is not None
            self._choose_mode(self._baselines, name, inputs)

    def _settings(self, name: str) -> list[int]:
        """Where TF32 is allowed both settings count: a stricter one is a fair bar as well. Once chosen, it stays."""
        settings = (False,) if self.session.task.precision is PrecisionClass.IEEE else (False, True)
        return [self.modes[name]] if name in self.modes else [mode_number(name, tf32) for tf32 in settings]

    def _choose_mode(self, runner: Runner, name: str, inputs: Inputs) -> None:
        best: tuple[float, int] | None = None
        for mode in self._settings(name):
            try:
                runner.command(Command.CALL, mode, timeout=_BUILD_SECONDS)
                took = min(self.timed(runner, inputs.next, _BUILD_SECONDS, mode).card for _ in range(WARM_CALLS))
            except Blamed:
                self.close()  # so that the next candidate finds all of them built and chosen again
                raise
            except RunnerFault as fault:
                self.notes.append(f"baseline {name} could not be had: {str(fault)[:200]}")
                return
            if best is None or took < best[0]:
                best = (took, mode)
        if best:
            self.modes[name] = best[1]

    def baseline(self, name: str, draw: Draw, limit: float) -> Call:
        """Timed calls of one baseline; what goes wrong there is never the candidate's fault, unless it keeps the card busy."""

        def once() -> Sample:
            assert self._baselines is not None
            try:
                return self.timed(self._baselines, draw, limit, self.modes[name])
            except Blamed:
                raise
            except RunnerFault as fault:
                self.close()
                raise InfrastructureError(f"a baseline failed while it was timed: {fault}") from fault

        return once

    @property
    def baseline_outputs(self) -> list[torch.Tensor]:
        """The results of the last call of a baseline, until its next one."""
        assert self._baselines is not None
        return self._baselines.outputs

    def settle(self, runner: Runner, processors: set[int]) -> None:
        """Move both processes to one of these processors and this thread to another, so that neither side has the better one."""
        if len(processors) < _FEWEST or self._baselines is None:
            return
        mine, theirs = self._places = random.sample(sorted(processors), 2)
        self._exchange.forget_paces()  # what was in the way there need not be here
        self.resettle()
        runner.run_on({theirs})

    def resettle(self) -> None:
        """Move the baselines' process and this thread to where they were in the last take."""
        if self._places is not None and self._baselines is not None:
            mine, theirs = self._places
            _run_on({mine})
            self._baselines.run_on({theirs})

    def unsettle(self, runner: Runner, processors: set[int]) -> None:
        """Let this thread and both processes have all of these processors again."""
        _run_on(processors)  # what it starts has the same ones
        runner.run_on(processors)
        if self._baselines is not None:
            self._baselines.run_on(processors)

    def empty(self, limit: float) -> Empty:
        """What a timed call takes without forward now. Raises InfrastructureError."""
        return self._without_forward(lambda runner: self._exchange.measure_empty(runner, limit))

    def _without_forward(self, call: Callable[[Runner], Taken]) -> Taken:
        assert self._baselines is not None
        try:
            with self._still(self.beside):
                return call(self._baselines)
        except RunnerFault as fault:
            self.close()
            raise InfrastructureError(f"the baselines' process failed while it was timed: {fault}") from fault


def _run_on(processors: set[int]) -> None:
    """Let this thread have these processors; where that is not allowed it stays as it is."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, processors)
