"""The floor of a task on a card: the least time that its bytes, operations, launches and serial steps take, and which of them is it.

    bytes        = inputs, parameters and outputs, each moved once, over the memory's rate
    operations   = the reference's operations over the best rate that the precision class allows
    launches     = one launch
    serial chain = recurrent steps that wait for each other, times the cheapest exchange between programs

A measured time is compared with rates measured on the same card (`oracle/timing/ceilings.py`), an estimate with the figures and the launch
cost that the estimate itself uses. So a share is never of a time of the other kind. It may be a little above 1: outputs may stay in the L2
cache, an algorithm may save operations, and a chain inside one program exchanges nothing. The margin of what is believed is not in here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tritonsmith.evaluator.cards.estimate import ROUND
from tritonsmith.evaluator.cards.launch_cost import LAUNCH_IN_GRAPH
from tritonsmith.evaluator.records.limits import Counters, FloorShare, KernelCounters, Limit
from tritonsmith.evaluator.schema import Hardware, KernelFacts, LaunchFacts, PrecisionClass, Status, TaskFacts, TimingKind, Verdict

_SPLIT_PRODUCTS = 3
"""fp16 products that one product at fp32 accuracy takes on tensor cores."""
_STREAMING_FLOPS_PER_BYTE = 8.0
"""Below this a kernel reads its operands about once, so that its traffic is device memory's."""
_WARP = 32
"""Threads of a warp."""
_NO_CARD = "Nothing was counted: there is no card here."
NOT_ASKED = "Nsight Compute counts only for analyses and confirmations."
"""Why a measured verdict has no counters yet."""
CEILINGS = "ceilings"
"""Under this key a verdict's environment holds the rates that were measured on its card."""


@dataclass(frozen=True)
class Rates:
    """What a card does at best."""

    bandwidth: float
    """Bytes per second."""
    half: float
    """Operations per second of products of 16-bit matrices."""
    tf32: float
    fp32: float
    """Operations per second without tensor cores."""
    launch_ms: float

    @classmethod
    def of(cls, hardware: Hardware, measured: Mapping[str, Any] | None = None) -> Rates:
        """The table's figures and the estimate's launch; where a card was measured, its own (`bandwidth`, `matrix`, `launch_ms`)."""
        if not measured:
            return cls(hardware.bandwidth, hardware.fp16, hardware.tf32, hardware.fp32, LAUNCH_IN_GRAPH * 1e3)
        half = float(measured["matrix"])
        return cls(float(measured["bandwidth"]), half, half * hardware.tf32 / hardware.fp16, hardware.fp32, float(measured["launch_ms"]))

    def rate(self, precision: PrecisionClass) -> float:
        """Operations per second of products in a precision class, by the fastest way that is accurate enough."""
        if precision is PrecisionClass.HALF:
            return self.half
        return self.tf32 if precision.allows_tf32 else max(self.fp32, self.half / _SPLIT_PRODUCTS)


def rates_for(verdict: Verdict, hardware: Hardware) -> Rates:
    """The rates to compare a verdict's time with: measured ones for a measured time."""
    measured = verdict.environment.get(CEILINGS)
    of_card = verdict.timing is not None and verdict.timing.kind is TimingKind.MEASURED and isinstance(measured, dict)
    return Rates.of(hardware, measured if of_card and isinstance(measured, dict) else None)


def list_bounds(facts: TaskFacts, rates: Rates, precision: PrecisionClass, chain: int | None = None) -> dict[str, float]:
    """Milliseconds of every lower bound by its name; `chain` is the family's own count of dependent steps, where it has one."""
    steps = chain or facts.shortest_chain or facts.serial_steps
    return {
        Limit.BYTES.value: facts.min_bytes / rates.bandwidth * 1e3,
        Limit.OPERATIONS.value: facts.flops / rates.rate(precision) * 1e3,
        Limit.LAUNCHES.value: rates.launch_ms,
        Limit.CHAIN.value: steps * ROUND.low * 1e3 if steps > 1 else 0.0,
    }


def find_floor(facts: TaskFacts, rates: Rates, precision: PrecisionClass, ms: float) -> FloorShare | None:
    """How near a time in milliseconds is to the floor; None for no time at all."""
    bounds = list_bounds(facts, rates, precision)
    limit = max(bounds, key=lambda name: bounds[name])
    return FloorShare(limit=Limit(limit), ms=bounds[limit], share=bounds[limit] / ms, parts=bounds) if ms > 0 else None


def add_floor(verdict: Verdict, facts: TaskFacts, hardware: Hardware, precision: PrecisionClass) -> Verdict:
    """A working candidate's verdict with its floor, its achieved shares, and the floor in its message; any other as it is.

    `precision` is the task's, where the verdict does not say by which class it was judged.
    """
    timing = verdict.timing
    if verdict.status is not Status.OK or timing is None:
        return verdict
    rates = rates_for(verdict, hardware)
    floor = find_floor(facts, rates, PrecisionClass(str(verdict.environment.get("precision") or precision.value)), timing.median_ms)
    if floor is None:
        return verdict
    why = _NO_CARD if timing.kind is TimingKind.ESTIMATED else NOT_ASKED
    found = verdict.facts.counters or count_compiled(verdict.facts, hardware, why)
    shares = _achieve(verdict.facts, facts, rates, timing.median_ms)
    said = f"{'an estimated ' if timing.kind is TimingKind.ESTIMATED else ''}{floor.words}"
    return verdict.model_copy(update={
        "timing": timing.model_copy(update={"floor": floor}),
        "facts": verdict.facts.model_copy(update={"counters": found.model_copy(update=shares)}),
        "message": f"{verdict.message}; {said}" if verdict.message else said,
    })  # fmt: skip


def add_counters(verdict: Verdict, found: Counters) -> Verdict:
    """The verdict with what Nsight Compute counted, or with the reason why it did not; achieved shares stay."""
    known = verdict.facts.counters or Counters(source="compiled")
    if found.kernels:
        kept = {"bandwidth_share": known.bandwidth_share, "operations_share": known.operations_share}
        known = found.model_copy(update=kept)
    else:
        known = known.model_copy(update={"reason": found.reason})
    return verdict.model_copy(update={"facts": verdict.facts.model_copy(update={"counters": known})})


def count_bytes(facts: LaunchFacts, task: TaskFacts) -> float:
    """Bytes moved at the least: inputs, parameters and outputs once; more where streaming kernels move more between them."""
    total = 0.0
    for kernel in facts.kernels:
        traffic = (kernel.bytes_loaded or 0.0) + (kernel.bytes_stored or 0.0)
        if traffic and (kernel.flops or 0.0) < _STREAMING_FLOPS_PER_BYTE * traffic:
            total += traffic * kernel.launches
    return max(task.min_bytes, total) if task.serial_steps == 1 else task.min_bytes


def choose_rate(facts: LaunchFacts, task: TaskFacts, rates: Rates) -> float:
    """Operations per second of the arithmetic that a candidate's kernels use; the floor's where a replayed graph hides its kernels."""
    hidden = facts.triton_launches > 0 and not facts.kernels
    return rates.rate(task.precision) if hidden or any(kernel.tensor_cores for kernel in facts.kernels) else rates.fp32


def count_compiled(facts: LaunchFacts, hardware: Hardware, reason: str = "") -> Counters:
    """What compiling alone tells of each kernel: its grid, and the share of a processor's warps that fit at once."""
    return Counters(source="compiled", reason=reason, kernels=tuple(_count(kernel, hardware) for kernel in facts.kernels))


def _count(kernel: KernelFacts, hardware: Hardware) -> KernelCounters:
    grid = math.prod(kernel.grid)
    warps = None
    if kernel.resident and kernel.num_warps:
        held = min(grid, kernel.resident) * kernel.num_warps
        warps = min(100.0, 100.0 * held * _WARP / (hardware.processors * hardware.threads_per_processor))
    return KernelCounters(
        name=kernel.name, launches=kernel.launches, grid=grid, active_warps=warps, instructions=dict(kernel.instructions),
        ms=kernel.device_ms,
    )  # fmt: skip


def _achieve(facts: LaunchFacts, task: TaskFacts, rates: Rates, ms: float) -> dict[str, float]:
    """Achieved shares of the card's bandwidth and rate of operations, in percent."""
    seconds = ms / 1e3
    return {
        "bandwidth_share": 100.0 * count_bytes(facts, task) / rates.bandwidth / seconds,
        "operations_share": 100.0 * task.flops / choose_rate(facts, task, rates) / seconds,
    }
