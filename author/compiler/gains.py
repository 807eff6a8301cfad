"""Which region has most to gain: what each takes, or should take, against the bytes that it has to move."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.passes import count_long_passes
from tritonsmith.author.compiler.fusing.regions import CallRegion, RowRegion, WorkRegion
from tritonsmith.author.compiler.kernels.held import is_held
from tritonsmith.author.compiler.plan import RegionPlan
from tritonsmith.author.recipe import Settings
from tritonsmith.author.types import IN_PARTS
from tritonsmith.evaluator.cards.launch_cost import LAUNCH_AS_CALLED
from tritonsmith.evaluator.schema import Hardware, Verdict


@dataclass(frozen=True)
class RegionTime:
    """A region's floor by its bytes and products, and what was measured of it; milliseconds."""

    what: str
    floor_ms: float
    measured_ms: float | None
    call: bool
    passes: int
    """How often it reads what it reads."""
    limit: str
    """What its floor follows from."""

    @property
    def gain_ms(self) -> float:
        """What is above its floor; for a region that nobody measured, what further passes over memory cost."""
        return max(0.0, self.measured_ms - self.floor_ms) if self.measured_ms is not None else self.floor_ms * (self.passes - 1)


def time_regions(
    plan: RegionPlan, hardware: Hardware, verdict: Verdict | None = None, settings: Settings | None = None
) -> list[RegionTime]:
    """The regions in forward's order, read as often as their kernels with these settings read them.

    Device times come from the verdict's kernels, by the names that the text gives them.
    """
    measured = {kernel.name: kernel.device_ms for kernel in verdict.facts.kernels if kernel.device_ms is not None} if verdict else {}
    users = Counter(name for names in plan.kernel_names for name in names)
    found = []
    for region, names in zip(plan.regions, plan.kernel_names, strict=True):
        times = [measured[name] / users[name] for name in names if name in measured]  # regions that share a kernel are alike
        total = sum(times) if names and len(times) == len(names) else None
        what = region.call.says if isinstance(region, CallRegion) else names[0]
        moving, multiplying = region.bytes / hardware.bandwidth, count_seconds(region, hardware)
        floor, limit = max(moving, multiplying) * 1e3, "bytes" if moving >= multiplying else "products"
        found.append(RegionTime(what, floor, total, isinstance(region, CallRegion), count_reads(region, settings), limit))
    return found


def count_seconds(region: WorkRegion, hardware: Hardware) -> float:
    """What the products of a region take at the card's rate; those of fp32 are three products of parts."""
    rate = hardware.fp16 if region.stores[0].dtype not in IN_PARTS else max(hardware.fp32, hardware.fp16 / _PARTS)
    return region.flops / rate


_PARTS = 3


def count_reads(region: WorkRegion, settings: Settings | None = None) -> int:
    """Passes over rows that are too long to stay on the chip: one to find their numbers, one to use them."""
    if not isinstance(region, RowRegion) or region.split or (settings is not None and is_held(region, settings)):
        return 1
    return count_long_passes(region)


def predict_regions(plan: RegionPlan, hardware: Hardware, settings: Settings | None = None) -> float:
    """Milliseconds of all kernels at the card's bandwidth, none of them below the price of its launch."""
    return sum(max(one.floor_ms * one.passes, LAUNCH_AS_CALLED * 1e3) for one in time_regions(plan, hardware, None, settings))


def describe_gain(plan: RegionPlan, hardware: Hardware, verdict: Verdict | None) -> str:
    """The region with most to gain, as the end of a sentence; empty where there is one region only."""
    times = time_regions(plan, hardware, verdict)
    if len(times) < 2:
        return ""
    most = max(times, key=lambda one: (one.gain_ms, one.floor_ms))
    took = f"takes {most.measured_ms:.3g} ms" if most.measured_ms is not None else "was not measured by itself"
    way = "a kernel of its own for it" if most.call else "another tile or another cut"
    return f"of {len(times)} regions {most.what} has most to gain: it {took}, and its {most.limit} take {most.floor_ms:.3g} ms; try {way}"
