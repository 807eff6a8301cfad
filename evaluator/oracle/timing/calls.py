"""Timed calls on a card: a candidate's runner and the baselines' process, under two clocks. Imports torch.

One timed call is the same for both sides:

1. The oracle takes the card (`oracle/timing/hold.py`), places fresh inputs, poisons the outputs and overwrites the L2 cache. Where that
   takes long, it takes the card for a second time.
2. It rings, and the runner queues forward, which starts when the oracle gives the card back.
3. A little before forward should be done the oracle asks for the card again. It has it the moment that the runner has nothing left to do
   there, no matter what the runner says or when it answers. The time in between, less that of a call without forward, is forward's.
4. The delivery is timed in the same way, and the outputs are copied while the card is the oracle's once more: work that was put off is
   seen or is missing.

The runner reports the card's events around forward. They are finer, and count where the two clocks agree (`paired.weigh`).

A candidate whose kernels are queued too slowly leaves gaps, in which the oracle gets the card too soon. Such a call is taken again. After
some of them the oracle asks only when the candidate has answered; that may hide 20 microseconds, which are counted.

A candidate's processes stand still while the baselines are timed, and the baselines' process while a candidate is: else the one that is
not timed would wake up now and then on their processor. The card is looked at between the baselines' calls, and should be idle then.
"""

from __future__ import annotations

import contextlib
import math
import random
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from statistics import median
from typing import TypeVar

import torch

from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.channel.slots import fill_slots
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.oracle.timing.baselines import BUILD_SECONDS, BaselineProcess, Blamed
from tritonsmith.evaluator.oracle.timing.blame import (
    MAX_ASLEEP,
    MAX_VOID,
    SHARED,
    Draw,
    TimedCall,
    describe_trouble,
    is_clear,
    require_good,
    require_quiet,
)
from tritonsmith.evaluator.oracle.timing.fresh_inputs import Inputs
from tritonsmith.evaluator.oracle.timing.hold import HOLD_MS, CardHold, card_hold
from tritonsmith.evaluator.oracle.timing.paired import Empty, Sample
from tritonsmith.evaluator.oracle.timing.result_check import ResultCheck
from tritonsmith.evaluator.oracle.timing.turns import INTERRUPTED, TOO_SOON, Exchange, Turn
from tritonsmith.evaluator.schema import Status

WARM_CALLS = 5
"""Calls before the first one that counts, and calls of which the fastest chooses a baseline's setting."""
_SLICE_MS = 2.0
"""A time slice in milliseconds; a call whose hold met the end of one is taken again that much later within it, at random."""
_ONCE_IN = 3
"""Where holding the card fails, one try in so many is made with one hold, for cards that cannot be taken a second time at once."""
_MAX_TOO_SOON = 5
"""Answers of a candidate, in all, that may come while the card is not its own; as many as the baselines' honest process gives are free."""
_CANDIDATES = "candidate's"
"""The word for a candidate's void calls."""
_BASELINES = "baseline's"
"""The word for the baselines' void calls."""
_BURST_CALLS = 10
"""Void calls in a row after which some time passes before each: somebody else's burst of work may be over then."""
_BURST_SECONDS = 0.02
"""That time, in seconds."""
_LOOK_MS = 6.0
"""Milliseconds of a look at the card: some time slices, of which a process that has work for the card gets one."""
_CALLS_PER_LOOK = 8
"""One call of the baselines in so many has a look before it; nobody knows which."""
_MIN_DISTURBED_LOOKS = 3
"""So many looks must be disturbed before somebody else is said to use the card."""
_MAX_DISTURBED_SHARE = 0.25
"""And so large a part of all looks."""
_MORE_LOOKS = 8
"""Looks that decide whether the disturbance goes on."""
_REMEMBERED_DELIVERIES = 101
"""Deliveries of the baselines, of which the median is usual."""

Result = TypeVar("Result")


class CallTimer:
    """Times calls of one task: of a candidate and of the baselines.

    Args:
        baselines: the baselines' process.
        hold: what takes the card; this process's when None.
    """

    def __init__(self, baselines: BaselineProcess, hold: CardHold | None = None) -> None:
        self.session = baselines.session
        self.baselines = baselines
        self.candidate: RunnerHandle | None = None
        """The candidate's runner, which is alive while the baselines are timed."""
        self.looks = [0, 0]
        """Looks at the card between the baselines' calls: undisturbed ones, and others."""
        self.void_calls: Counter[str] = Counter()
        """Calls that were void and taken again, by whose they were and why (`Turn.void_reason`)."""
        self.hold_ms = HOLD_MS
        """For how long the card is held once everything is in place: the host's work in that time leaves no gaps."""
        self._hold = hold or card_hold(self.session.hardware.l2_bytes)
        self._exchange = Exchange(self._hold)
        self._too_soon = 0
        """Answers of the candidate while the card was not its own."""
        self._deliveries: deque[Turn] = deque(maxlen=_REMEMBERED_DELIVERIES)
        """The baselines' deliveries."""

    def set_candidate(self, runner: RunnerHandle | None) -> None:
        """From now on this candidate's processes live while the baselines are timed (None: no candidate's do)."""
        self.candidate = runner
        if runner is not None:
            self.hold_ms = HOLD_MS
        self.looks = [0, 0]
        self.void_calls.clear()
        self.forget_paces()
        self._too_soon = 0

    def forget_paces(self) -> None:
        """Learn anew when to ask for the card: after a move to other processors what was in the way there need not be here."""
        self._exchange.forget_paces()

    # ---- one timed call

    def time_call(
        self, runner: RunnerHandle, draw: Draw, timeout: float, mode: int = 0, delivered: Callable[[], object] = lambda: None
    ) -> Sample:
        """One call on a cold cache and inputs that the runner has not seen.

        `delivered` is called when the results lie in the slots and while the card is still this process's; again if the call is taken
        again. Raises RunnerFault or InfrastructureError.
        """
        of_baseline = self.baselines.owns(runner)
        stopped = self.candidate if of_baseline else None
        idle = self.baselines.runner if self.baselines.is_running else None
        call = TimedCall(runner, draw, timeout, mode, delivered, _BASELINES if of_baseline else _CANDIDATES)
        with _pause(stopped if of_baseline else idle):
            if stopped is not None and secrets.randbelow(_CALLS_PER_LOOK) == 0:
                self.looks[self._disturbed()] += 1
            while call.disturbed < MAX_VOID and call.asleep < MAX_ASLEEP and self._too_soon <= self._allowed_too_soon:
                if max(call.disturbed, call.asleep) >= _BURST_CALLS:
                    time.sleep(_BURST_SECONDS)
                sample = self._try_call(call)
                if sample is not None:
                    return sample
        if of_baseline and (stopped is None or call.asleep >= MAX_ASLEEP):  # a candidate's processes are stopped meanwhile
            raise InfrastructureError(describe_trouble(call))
        raise self._blame(stopped or runner, timeout, call)

    @property
    def _allowed_too_soon(self) -> int:
        return _MAX_TOO_SOON + self.void_calls[f"{_BASELINES} {TOO_SOON}"]

    def _try_call(self, call: TimedCall) -> Sample | None:
        """The call's times; None when it is void."""
        hold, exchange, runner, timeout, candidate = self._hold, self._exchange, call.runner, call.timeout, call.whose == _CANDIDATES
        tensors = call.draw()
        call.note_inputs(tensors)
        if call.void:
            time.sleep(random.random() * _SLICE_MS * 1e-3)
        once = call.held_badly % _ONCE_IN == _ONCE_IN - 1
        hold.begin(lambda: self._place(runner, tensors), self.hold_ms, between_ms=0.0 if once else exchange.between_ms)
        call.placed_ms = hold.prepared_ms
        forward = exchange.take_paced_turn(runner, Command.CLOCKED, call.mode, timeout, candidate=candidate)
        call.forward_ms = forward.ms
        self._too_soon += candidate and forward.too_soon
        if not forward.answered:
            runner.command(Command.DELIVER, timeout=timeout)
            self._note_void(call, forward.void_reason)
            return None
        delivery = exchange.take_paced_turn(runner, Command.DELIVER, 0, timeout, call.delivered, candidate=candidate)
        self._too_soon += candidate and delivery.too_soon and not forward.void_reason
        if why := forward.void_reason or delivery.void_reason or ("" if exchange.wait_undisturbed() else INTERRUPTED):
            self._note_void(call, why)
            return None
        card_ms = runner.device_ms
        if not math.isfinite(card_ms) or card_ms < 0.0:  # bytes of the runner's; nothing computed from them would be a time either
            raise RunnerFault(Status.CHEATING, "what the runner says of the card's clock is no time")
        late_ms = max(0.0, delivery.ms - self._usual_delivery_ms())
        if not candidate:
            self._deliveries.append(delivery)
        call.good += 1
        return Sample(forward.ms, card_ms, late_ms, forward.early)

    def _note_void(self, call: TimedCall, why: str) -> None:
        call.void[why] += 1
        if why == INTERRUPTED:
            call.gap_ms = max(call.gap_ms, self._hold.gap_ms)
        self.void_calls[f"{call.whose} {why}"] += 1

    def _place(self, runner: RunnerHandle, tensors: list[torch.Tensor]) -> None:
        runner.poison()
        slots = self.baselines.inputs if self.baselines.owns(runner) else self.session.slots
        fill_slots(slots, tensors)  # last: they lie ready from then on

    def _usual_delivery_ms(self) -> float:
        """Milliseconds; of deliveries before whose answer the card was asked for, since a candidate could answer before its is done."""
        early = [delivery.ms for delivery in self._deliveries if delivery.early]
        return median(early or [delivery.ms for delivery in self._deliveries] or [math.inf])

    # ---- void calls and blame

    def require_idle(self, timeout: float) -> None:
        """Raises Blamed, or InfrastructureError, where somebody else had work for the card while the baselines were timed."""
        undisturbed, disturbed = self.looks
        few = disturbed < _MIN_DISTURBED_LOOKS or disturbed <= _MAX_DISTURBED_SHARE * (undisturbed + disturbed)
        if self.candidate is None or few:
            return
        with _pause(self.candidate):  # the process with that work may have stopped
            again = sum(self._disturbed() for _ in range(_MORE_LOOKS))
        if again <= _MAX_DISTURBED_SHARE * _MORE_LOOKS:
            raise InfrastructureError(SHARED)
        raise self._blame(self.candidate, timeout)

    def _disturbed(self) -> bool:
        """Whether somebody else has work for the card while nobody is asked for any: over some time slices he gets one."""
        self._hold.begin(milliseconds=_LOOK_MS)
        return not self._exchange.wait_undisturbed()

    def _blame(self, runner: RunnerHandle, timeout: float, call: TimedCall | None = None) -> Blamed:
        """The candidate's fault if calls can be timed once its processes are gone, `call` too. Raises InfrastructureError if they cannot.

        The call is the same for a baseline's. In place of a candidate's own it is a baseline's on inputs of the same size.
        """
        void_calls = ", ".join(f"{count} {why}" for why, count in sorted(self.void_calls.items()))
        runner.process.kill()
        self.set_candidate(None)
        looks = [self._disturbed() for _ in range(_MORE_LOOKS)]
        require_quiet(looks, self._without_forward(lambda runner: self._exchange.take_empty_turns(runner, MAX_VOID, timeout)), call)
        if call is not None:
            require_good(self._repeat_alone(call), call)
        message = "the candidate answers, or has work on the card, while the card belongs to another process"
        if call is not None and call.asleep >= MAX_ASLEEP:
            message = "the candidate's processes keep the evaluator from the processor that it takes the time on"
        return Blamed(Status.CHEATING, message + (f" (void calls: {void_calls})" if void_calls else ""))

    def _repeat_alone(self, call: TimedCall) -> TimedCall:
        """Tries of a baseline's call now that the candidate is gone, until it is clear what comes of them."""
        mode = call.mode if call.whose == _BASELINES else next(iter(self.baselines.modes.values()))
        alone = TimedCall(self.baselines.runner, call.draw, call.timeout, mode, call.delivered, _BASELINES)
        with self.baselines.own_faults("the baselines' process failed while it was timed"):
            while not is_clear(alone):
                time.sleep(_BURST_SECONDS)
                self._try_call(alone)
        return alone

    # ---- baselines

    def open_baselines(self) -> None:
        """Wait until the baselines are built, give them the weights of now, and keep the faster setting of each that is right.

        Raises InfrastructureError.
        """
        self.baselines.wait_ready()
        self.measure_empty(BUILD_SECONDS)
        self.baselines.leave_out_wrong(ResultCheck(self.session, self.baselines).find_wrong)
        if self.baselines.undecided:
            inputs = Inputs(self.session)
            self.baselines.choose_modes(lambda mode: self._fastest_ms(mode, inputs))

    def _fastest_ms(self, mode: int, inputs: Inputs) -> float:
        return min(self.time_call(self.baselines.runner, inputs.next, BUILD_SECONDS, mode).card for _ in range(WARM_CALLS))

    def time_baseline(self, name: str, draw: Draw, limit: float) -> Sample:
        """One timed call of a baseline. Its failures are never the candidate's fault, unless the candidate keeps the card busy."""
        with self.baselines.own_faults(f"the baseline {name} failed while it was timed", name):
            return self.time_call(self.baselines.runner, draw, limit, self.baselines.modes[name])

    def measure_empty(self, limit: float) -> Empty:
        """What a timed call takes without forward now. Raises InfrastructureError."""
        return self._without_forward(lambda runner: self._exchange.measure_empty(runner, limit))

    def _without_forward(self, call: Callable[[RunnerHandle], Result]) -> Result:
        with self.baselines.own_faults("the baselines' process failed while it was timed"), _pause(self.candidate):
            return call(self.baselines.runner)


@contextlib.contextmanager
def _pause(runner: RunnerHandle | None) -> Iterator[None]:
    """Meanwhile nothing of a candidate's, or of the baselines', runs on the host, where the two share a processor."""
    try:
        if runner is not None:
            runner.process.pause()
        yield
    finally:
        if runner is not None:
            runner.process.resume()
