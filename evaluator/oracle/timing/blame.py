"""Whose fault it is that a call cannot be timed: what is seen next to a candidate and again without it. Imports torch.

A long kernel, large inputs or a busy host make a call void without the candidate too. So the same call is tried again when the
candidate's processes are gone, and only if it is good then is the candidate blamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from tritonsmith.evaluator.channel.strides import distinct
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.oracle.handles.runner import RunnerHandle
from tritonsmith.evaluator.oracle.timing.hold import LONG_MS
from tritonsmith.evaluator.oracle.timing.turns import INTERRUPTED, LET_GO, OVERSLEPT, RETAKEN_LATE, Turn

MAX_VOID = 20
"""Calls in a row that may be void because somebody else had the card or because a candidate left a gap."""
MAX_ASLEEP = 100
"""Calls in a row that may be void because this process did not run."""
CALLS_ALONE = 5
"""The call that was void next to a candidate must be good so often without it before the candidate is blamed."""
_MAX_VOID_ALONE = 1
"""It may be void so often meanwhile. A call that is void for a reason of its own in 20 tries of 20 is not good in 5 of 6."""
_MAX_TRIES_ALONE = 40
"""Tries of that call in all: a runner's gaps are learnt from void calls."""
_ASLEEP_WITHOUT_CANDIDATE = 3
"""So many calls void without the candidate say that it is not the candidate that keeps this process from running."""
_UNCLEAR_WITHOUT_CANDIDATE = MAX_VOID // 2
"""So many of these calls void for the same reason say that nothing can be shown."""
SHARED = (
    "calls cannot be timed: something else uses this card, or processes do not take turns on it "
    "(CUDA MPS, or a time slice below 0.5 ms; `nvidia-smi compute-policy -l` tells); use another card or switch that off"
)
"""What is said of a card that is not this evaluator's alone."""
_LARGE = (
    "this call cannot be timed on this card, not even without a candidate; "
    "use a card that nothing else uses, or a task with smaller inputs"
)
_BUSY = (
    "calls cannot be timed: other programs take this machine's processors away from the evaluator again and again; "
    "stop them, or leave it two processors of its own"
)

Draw = Callable[[], list[torch.Tensor]]
"""Gives the inputs of a call; asked again when a call must be taken again."""


@dataclass
class TimedCall:
    """A call to be timed, and what was seen in its tries."""

    runner: RunnerHandle
    draw: Draw
    timeout: float
    mode: int
    delivered: Callable[[], object]
    """Called when the results lie in the slots and while the card is still this process's."""
    whose: str
    void: Counter[str] = field(default_factory=Counter)
    """Tries that were void, by reason."""
    good: int = 0
    """Tries that were not."""
    input_bytes: int = 0
    placed_ms: float = 0.0
    """Milliseconds in which the inputs were placed and the outputs poisoned."""
    gap_ms: float = 0.0
    """Milliseconds for which somebody else had the card during a hold, at the most."""
    forward_ms: float = 0.0
    """Milliseconds of forward with two changes of hands, by the oracle's clock."""

    @property
    def asleep(self) -> int:
        """Tries that were void because this process did not run."""
        return self.void[OVERSLEPT] + self.void[RETAKEN_LATE]

    @property
    def disturbed(self) -> int:
        """Tries that were void for another reason."""
        return self.void.total() - self.asleep

    @property
    def held_badly(self) -> int:
        """Tries that were void because somebody else had the card meanwhile, or may have had it."""
        return self.void[INTERRUPTED] + self.void[RETAKEN_LATE]

    def note_inputs(self, tensors: Sequence[torch.Tensor]) -> None:
        """Learn how large the inputs are."""
        self.input_bytes = sum(distinct(tensor).nbytes for tensor in tensors)

    def describe(self) -> str:
        """What was seen, in words."""
        reasons = ", ".join(f"{count} {why}" for why, count in sorted(self.void.items()))
        gap = f", for {self.gap_ms:.2f} ms at the most" if self.void[INTERRUPTED] and self.gap_ms else ""
        placed = f"{self.input_bytes / 1e9:.2g} GB of inputs placed in {self.placed_ms:.2g} ms"
        return f"the {self.whose} call void {self.void.total()} times ({reasons}{gap}), {placed}, forward {self.forward_ms:.3g} ms"


def describe_trouble(call: TimedCall) -> str:
    """What to tell of a call that cannot be timed where no candidate can be at fault."""
    head = _BUSY if call.asleep >= MAX_ASLEEP else _LARGE if call.placed_ms > LONG_MS else SHARED
    return f"{head}. Seen: {call.describe()}"


def is_clear(alone: TimedCall) -> bool:
    """Whether enough tries without the candidate were made."""
    return alone.good >= CALLS_ALONE or _is_void(alone) or alone.good + alone.void.total() >= _MAX_TRIES_ALONE


def _is_void(alone: TimedCall) -> bool:
    return alone.disturbed - alone.void[LET_GO] > _MAX_VOID_ALONE or alone.asleep >= _UNCLEAR_WITHOUT_CANDIDATE


def require_quiet(looks: Sequence[bool], empty: Sequence[Turn], call: TimedCall | None) -> None:
    """The card and this machine are quiet once the candidate is gone. Raises InfrastructureError where they are not.

    Args:
        looks: for each look at the idle card, whether it was disturbed.
        empty: calls without forward.
        call: the call that was void next to the candidate.
    """
    seen = f". Seen: {call.describe()}" if call else ""
    if sum(turn.slept for turn in empty) >= _most_asleep(call):
        raise InfrastructureError(_BUSY + seen)
    if any(looks) or not all(turn.valid or turn.void_reason == OVERSLEPT for turn in empty):
        raise InfrastructureError(SHARED + seen)


def require_good(alone: TimedCall, call: TimedCall) -> None:
    """The call that was void next to the candidate is good without it. Raises InfrastructureError where it is not."""
    seen = f". Seen: {call.describe()}; without the candidate {alone.describe()}"
    if alone.asleep >= _most_asleep(call):
        raise InfrastructureError(_BUSY + seen)
    if _is_void(alone) or alone.good < CALLS_ALONE:
        raise InfrastructureError(_LARGE + seen)


def _most_asleep(call: TimedCall | None) -> int:
    return _ASLEEP_WITHOUT_CANDIDATE if call and call.asleep >= MAX_ASLEEP else _UNCLEAR_WITHOUT_CANDIDATE
