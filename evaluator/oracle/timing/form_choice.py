"""Which form of a candidate is timed, from some calls of each; and what a call costs the host. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from tritonsmith.evaluator.channel.doorbell import AS_CALLED, CUDA_GRAPH, FORMS, Command
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.oracle.timing.hold import HOLD_MS, MOST_HOLD_MS
from tritonsmith.evaluator.schema import Status

_WARM_CALLS = 5
"""Calls of each form before the first one that counts."""
_ROUGH_CALLS = 7
"""Calls of each form, in turns."""
_WORTH = 0.97
"""Part of the time as called that a replay may take at the most to be taken in its place."""
_WORTH_MS = 0.002
"""Milliseconds that it must save at the least: two processes that run the same kernels differ by as much."""
_HOST_MARGIN = 1.3
"""Times the host's milliseconds for which the card is held, if it is held for longer than usual."""
_LONG_MS = 500.0
"""Milliseconds after which one call does."""
_HOST_CALLS = 5
"""Calls that show what one costs on the host."""


class FormChoice:
    """The form of a candidate in one verdict: learnt in its first session, kept in the further ones.

    Args:
        problem: why the graph is left out; empty where it may be tried.
    """

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.chosen = AS_CALLED if problem else ""
        """Empty before the first session has chosen."""
        self.running = AS_CALLED
        """The form of the call that goes on, or was made last."""

        self.of_replay: dict[str, Any] = {}
        """What a profiled replay showed of the card's work: the label of a candidate that is timed in a graph rests on that."""

    def facts_of(self, report: dict[str, Any]) -> dict[str, Any]:
        """A report of the forward as called, with the card's work of a replay where that is what is timed."""
        return report | self.of_replay if self.chosen == CUDA_GRAPH else report

    def leave_graph_out(self, problem: str = "") -> None:
        """Time as called from now on; the reason is noted where there is one to tell."""
        self.problem = self.problem or problem
        self.chosen = AS_CALLED

    def choose(self, samples: Mapping[str, Sequence[float]]) -> str:
        """Keep the form that these milliseconds speak for: the graph only where it is faster by more than noise."""
        called, replayed = median(samples[AS_CALLED]), median(samples[CUDA_GRAPH])
        self.chosen = CUDA_GRAPH if replayed < _WORTH * called and called - replayed > _WORTH_MS else AS_CALLED
        return self.chosen

    def leave_calls(self, samples: Mapping[str, Sequence[float]]) -> bool:
        """Time replays after a take of calls that the host disturbed, where replays are as fast; whether that is so."""
        if self.chosen != AS_CALLED or CUDA_GRAPH not in samples or median(samples[CUDA_GRAPH]) > median(samples[AS_CALLED]) / _WORTH:
            return False
        self.chosen = self.running = CUDA_GRAPH
        return True


def settle_form(forms: FormChoice, runner: RunnerHandle, limit: float, call: Callable[..., float]) -> dict[str, list[float]]:
    """Warm a candidate up, and choose its form where none is chosen; from then on calls run in it.

    Raises RunnerFault.

    Args:
        forms: what is known, and what comes of it.
        runner: the candidate's.
        limit: seconds that a call may take.
        call: makes one call in the form that is running, and returns its milliseconds; with `judged` its outputs are compared at any cost.

    Returns:
        Milliseconds of some calls of each form, where both were timed.
    """
    _warm_up(forms, AS_CALLED, call)
    if forms.chosen == AS_CALLED:
        return {}
    forms.running = CUDA_GRAPH
    if problem := runner.capture(limit):
        raise RunnerFault(Status.RUNTIME_ERROR, f"it was captured in another process before: {problem}")
    _warm_up(forms, CUDA_GRAPH, call)
    samples: dict[str, list[float]] = {form: [] for form in FORMS}
    for number in range(_ROUGH_CALLS):
        for form in FORMS if number % 2 else reversed(FORMS):
            forms.running = form
            samples[form].append(call(judged=False))
    if not forms.chosen:
        forms.choose(samples)
    forms.running = forms.chosen
    return samples


def _warm_up(forms: FormChoice, form: str, call: Callable[..., float]) -> None:
    forms.running = form
    for number in range(_WARM_CALLS):
        call(judged=not number)


def choose_hold_ms(forms: FormChoice, host_ms: float) -> float:
    """For how long the card is held in each call, on both sides: longer where what runs as called costs the host more."""
    return HOLD_MS if forms.chosen == CUDA_GRAPH else min(max(HOLD_MS, _HOST_MARGIN * host_ms), MOST_HOLD_MS)


def measure_host_ms(runner: RunnerHandle, limit: float) -> float:
    """Milliseconds of a call as called on a card that nobody holds, by the oracle's clock, without those of an empty call.

    Raises RunnerFault.
    """
    calls: list[float] = []
    empty: list[float] = []
    while len(calls) < (_HOST_CALLS if sum(calls) < _LONG_MS else 1):
        calls.append(runner.command(Command.CALL, timeout=limit))
        runner.command(Command.DELIVER, timeout=limit)
        empty.append(runner.command(Command.EMPTY, timeout=limit))
    return max(0.0, median(calls) - median(empty))
