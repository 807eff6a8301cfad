"""A plan for the card's memory: how a task is judged so that the oracle, the baselines and a candidate fit beside each other.

What each process needs is counted from the task's own figures: bytes of inputs, outputs and weights, and the reference's peak, measured
when the task is loaded. A candidate is granted what the reference needs at its peak, at the least. The first plan that fits is taken, the
one that saves nothing first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tritonsmith.evaluator.errors import TaskError

GIGABYTE = 1e9
_STATISTICS = 1.5 * GIGABYTE
"""Temporaries of the error statistics: some pieces of 256 MB."""
_PART = 2.0 * GIGABYTE
"""What the float64 reference of one part of the batch may take."""
_USUAL = 1.25
"""Times the inputs and the reference's peak. A convolution of KernelBench (level 1, 76) with parts of its input takes 1.1 of them."""
_KEPT = 8.0 * GIGABYTE
"""Inputs and answers that are kept for further candidates, at the most."""
_CONTEXTS = {True: 6.0 * GIGABYTE, False: 3.5 * GIGABYTE}
"""CUDA contexts and kernels of the processes that are still to start; fewer of them wait where baselines come one at a time."""
_TIGHT = 0.7
"""Share of the room from which on freed memory is given back at once."""
_FRAGMENTS = 1.05
"""torch's allocators hold somewhat more than is asked of them."""


class OraclePlace(StrEnum):
    """Where the float64 reference is computed."""

    WHOLE = "whole"
    """On the card, all rows at once."""
    PARTS = "parts"
    """On the card, some rows of the batch at a time."""
    HOST = "host"
    """On the host's processors."""


@dataclass(frozen=True)
class Needs:
    """Bytes of a task on the card."""

    inputs: float
    outputs: float
    weights: float
    peak: float
    """What one forward of the reference takes beyond inputs and weights, its outputs included."""
    wide: float = 2.0
    """float64 bytes for one byte of the task's tensors."""
    classes: int = 1
    """Precision classes in which the reference is computed for each set of inputs."""
    rows: int = 0
    """Length of the batch along which the task can be taken apart; 0 where it cannot."""

    @property
    def whole(self) -> float:
        """The float64 reference at once: its inputs, twice where they are moved, its temporaries, and the result to compare with."""
        return self.wide * (2.0 * self.inputs + self.peak + self.outputs)

    @property
    def candidate(self) -> float:
        """What a candidate is granted beside its slots."""
        return self.weights + self.peak

    @property
    def usual(self) -> float:
        """What many good kernels take: their results, and the inputs once more in another layout or in parts."""
        return self.weights + _USUAL * (self.inputs + self.peak)

    def row_bytes(self) -> float:
        """The float64 reference and the reference of one row."""
        return (self.whole + self.inputs + self.peak) / max(self.rows, 1)


@dataclass(frozen=True)
class MemoryPlan:
    """How one task is judged."""

    oracle: OraclePlace = OraclePlace.WHOLE
    rows: int = 0
    """Rows of the batch at a time, where the oracle is computed in parts."""
    input_sets: int = 3
    """Sets of inputs that take turns while calls are timed."""
    together: bool = True
    """Whether one process runs all baselines and stays alive between candidates; else each baseline has the card's memory in turn."""
    needed: float = 0.0
    """Bytes of the step that needs most, contexts included."""
    room: float = 0.0
    """Bytes of the card that the evaluator may have."""
    peak: float = 0.0
    """Bytes of the reference at its peak."""
    granted: float = 0.0
    """Bytes that a candidate may have beside its slots."""
    kept: float = 0.0
    """Bytes of inputs and answers that may be kept for further candidates."""

    @property
    def is_tight(self) -> bool:
        """Whether what torch's allocator keeps of freed memory is missed elsewhere."""
        return self.needed > _TIGHT * self.room

    def is_leaner(self, other: MemoryPlan) -> bool:
        """Whether this plan saves more than another; of two for the same task the later one in `list_plans` does."""
        return self._savings > other._savings

    @property
    def _savings(self) -> tuple[bool, bool, bool, int]:
        return self.oracle is OraclePlace.HOST, not self.together, self.input_sets == 1, list(OraclePlace).index(self.oracle)

    def describe(self) -> str:
        """The plan in one line."""
        rows = f"{self.rows} row{'s' * (self.rows != 1)}"
        oracle = {
            OraclePlace.WHOLE: "float64 reference whole", OraclePlace.PARTS: f"float64 reference in parts of {rows}",
            OraclePlace.HOST: "float64 reference on the host",
        }[self.oracle]  # fmt: skip
        sets = "1 set of inputs" if self.input_sets == 1 else f"{self.input_sets} sets of inputs"
        baselines = "baselines together" if self.together else "baselines one at a time"
        return f"{oracle}, {sets}, {baselines}: {_say(self.needed)} of {_say(self.room)}"

    def record(self, peak_bytes: int) -> dict[str, Any]:
        """For a verdict's environment; `peak_bytes` is what the card held in all, at the most, when it was looked at."""
        return {
            "plan": self.describe(), "needed_bytes": int(self.needed), "card_bytes": int(self.room), "peak_bytes": peak_bytes,
            "reference_peak_bytes": int(self.peak), "candidate_bytes": int(self.granted),
        }  # fmt: skip

    def blame(self) -> str:
        """What a candidate that ran out of memory is told."""
        times = f", {self.granted / self.peak:.1f} times the reference's peak of {_say(self.peak)}" if self.peak else ""
        return f"the card has {_say(self.granted)} for a candidate beside the evaluator{times}; use less memory"


ROOMY = MemoryPlan()
"""Where memory is no question."""


def choose_plan(needs: Needs, room: float, host_room: float, after: MemoryPlan | None = None) -> MemoryPlan | None:
    """The first plan whose largest step fits; None where none does. One with fewer sets of inputs, if a candidate has little room else.

    Args:
        needs: the task's bytes.
        room: bytes of the card that are free for the evaluator and what it starts.
        host_room: bytes of the host's memory that are free.
        after: a plan under which memory ran out; only leaner ones are chosen.
    """
    first: MemoryPlan | None = None
    for plan in list_plans(needs, host_room):
        needed = count_bytes(needs, plan)
        if needed > room or after is not None and not plan.is_leaner(after):
            continue
        free = room - needed
        kept = max(0.0, min(_KEPT, free / 2.0, free + needs.candidate - needs.usual)) if plan.together else 0.0
        granted = free - kept + needs.candidate
        found = replace(plan, needed=needed, room=room, peak=needs.peak, granted=granted, kept=kept)
        if first is not None and (not plan.together or plan.oracle is OraclePlace.HOST):
            break  # what takes much longer is for tasks that do not fit else
        if granted >= needs.usual:
            return found
        first = first or found
    return first


def list_plans(needs: Needs, host_room: float) -> Iterator[MemoryPlan]:
    """Plans for a task, the one that saves nothing first. The host comes last: float64 takes minutes there where tensors are large."""
    on_card = [(OraclePlace.WHOLE, 0)]
    if needs.rows > 1:
        on_card.append((OraclePlace.PARTS, max(1, min(needs.rows // 2, int(_PART / max(needs.row_bytes(), 1.0))))))
    on_host = [(OraclePlace.HOST, 0)] if needs.whole + needs.wide * needs.weights <= host_room else []
    for oracles in (on_card, on_host):
        for sets, together in ((3, True), (1, True), (1, False)):
            for oracle, rows in oracles:
                yield MemoryPlan(oracle, rows, sets, together)


def count_bytes(needs: Needs, plan: MemoryPlan) -> float:
    """Bytes of the step that needs most under a plan."""
    model = needs.weights * (1.0 if plan.oracle is OraclePlace.HOST else 1.0 + needs.wide)
    judging = _count_judging(needs, plan)
    graph_inputs = needs.inputs  # torch.compile with CUDA graphs copies them into its pool
    if plan.together:
        baselines = needs.weights + 3.0 * needs.peak + graph_inputs  # one cache, and a pool for each of two kinds of CUDA graphs
        further = needs.inputs + needs.outputs + needs.weights + 2.0 * needs.peak + graph_inputs  # strict: a second process of them
    else:
        baselines, further = needs.weights + needs.peak + graph_inputs, 0.0  # what building took is given back
    slots = 2.0 * (needs.inputs + needs.outputs)
    drawing = 3.0 * needs.inputs
    checks = slots / 2.0 + needs.inputs + needs.outputs + max(judging, drawing - needs.inputs) + needs.candidate
    if plan.together:
        checks += needs.inputs + needs.outputs + baselines
    timing = slots + plan.input_sets * needs.inputs + needs.outputs + judging + needs.candidate + baselines + further
    return _FRAGMENTS * (model + max(checks, timing)) + _CONTEXTS[plan.together]


def _count_judging(needs: Needs, plan: MemoryPlan) -> float:
    """The reference's results and the float64 reference for one set of inputs."""
    results = needs.classes * needs.outputs
    if plan.oracle is OraclePlace.PARTS:
        return max(_PART, needs.row_bytes() * plan.rows) + _STATISTICS
    return max(needs.inputs + needs.peak, results + (needs.whole if plan.oracle is OraclePlace.WHOLE else 0.0)) + _STATISTICS


def refuse(path: str, tensors: str, extent: int, needs: Needs, room: float, host_room: float) -> TaskError:
    """The error of a task that fits under no plan.

    Args:
        path: the task's file.
        tensors: its largest tensors in words.
        extent: the first axis of the largest.
        needs: its bytes.
        room: bytes of the card that are free.
        host_room: the same of the host.
    """
    plan = min(list_plans(needs, host_room), key=lambda one: count_bytes(needs, one))
    fixed = count_bytes(Needs(0.0, 0.0, needs.weights, 0.0, needs.wide), plan)  # what a smaller batch needs as well
    least = count_bytes(needs, plan)
    share = max(0.0, (room - fixed) / (least - fixed))
    fits = f"a first axis of {int(extent * share)} in place of {extent} would fit" if extent * share >= 1.0 else "no batch of it would fit"
    return TaskError(f"{path}: {tensors} need {_say(least)} to be judged and this card has {_say(room)}; {fits}: use --set NAME=VALUE")


def _say(count: float) -> str:
    return f"{count / GIGABYTE:.1f} GB"
