"""What a plan should take on its card, by its regions and its launches, and which region has most to gain."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.regions import CallRegion, RowRegion, StackRegion, WorkRegion
from tritonsmith.author.compiler.fusing.seconds import bound_region, count_passes_over, predict_seconds
from tritonsmith.author.compiler.ir.values import Held
from tritonsmith.author.compiler.kernels.held import is_held
from tritonsmith.author.compiler.plan import RegionPlan
from tritonsmith.author.cost import time_bytes, time_launches, time_operators
from tritonsmith.author.recipe import Settings
from tritonsmith.evaluator.schema import PrecisionClass, Verdict
from tritonsmith.prompts.regions import RegionRow


def predict_work(plan: RegionPlan, precision: PrecisionClass) -> float:
    """Seconds of all regions on the card, without their launches."""
    return sum(predict_region(region, plan, precision) for region in plan.regions)


def predict_launches(plan: RegionPlan) -> float:
    """Seconds in which forward launches everything from Python."""
    kernels = sum(len(names) for names in plan.kernel_names)
    kernels += sum(region.call.stack.launches for region in plan.regions if isinstance(region, StackRegion))
    return time_launches(kernels) + time_operators(sum(isinstance(region, CallRegion) and region.library for region in plan.regions))


def predict_copies(plan: RegionPlan) -> float:
    """Seconds in which a replay copies what forward is given, and what it gives."""
    tensors = [one for one in (*plan.forward.inputs, *plan.forward.stored) if not (isinstance(one, Held) and one.number)]
    return time_bytes(plan.card, 2.0 * sum(one.bytes for one in tensors))


def predict_plan(plan: RegionPlan, precision: PrecisionClass) -> float:
    """Seconds of a call: the work, or the launches where these take longer."""
    return max(predict_work(plan, precision), predict_launches(plan))


def predict_region(region: WorkRegion, plan: RegionPlan, precision: PrecisionClass) -> float:
    """Seconds of one region on the card, without its launches."""
    return predict_seconds(region, plan.call_flops, precision)


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


def time_regions(plan: RegionPlan, verdict: Verdict | None = None, settings: Settings | None = None) -> list[RegionTime]:
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
        moving, multiplying = time_bytes(region.card, region.bytes), bound_region(region)
        floor, limit = max(moving, multiplying) * 1e3, "bytes" if moving >= multiplying else "products"
        library = isinstance(region, CallRegion) and region.library
        found.append(RegionTime(what, floor, total, library, count_reads(region, settings), limit))
    return found


def account_regions(plan: RegionPlan, verdict: Verdict | None, settings: Settings) -> tuple[RegionRow, ...]:
    """The regions as a run's answer tells them: what each takes, and why a call was left to PyTorch."""
    launches = {kernel.name: kernel.launches for kernel in verdict.facts.kernels} if verdict else {}
    users = Counter(name for names in plan.kernel_names for name in names)
    rows = []
    for region, names, timed in zip(plan.regions, plan.kernel_names, time_regions(plan, verdict, settings), strict=True):
        counts = [launches[name] / users[name] for name in names if name in launches]
        rows.append(RegionRow(
            what=timed.what, own=not timed.call, launches=round(sum(counts)) if counts else None, ms=timed.measured_ms,
            least_ms=timed.floor_ms, why=_explain_call(region, plan) if isinstance(region, CallRegion) else "",
        ))  # fmt: skip
    return tuple(rows)


def _explain_call(region: CallRegion, plan: RegionPlan) -> str:
    if region.call.name in plan.called:
        return "PyTorch's call is predicted to be faster than a kernel of its own"
    return "the built-in author has no kernel for it"


def count_reads(region: WorkRegion, settings: Settings | None = None) -> int:
    """Passes over rows that are too long to stay on the chip: one to find their numbers, one to use them."""
    held = settings is not None and isinstance(region, RowRegion) and is_held(region, settings)
    return 1 if held else count_passes_over(region)


def predict_regions(plan: RegionPlan, settings: Settings | None = None) -> float:
    """Milliseconds of all kernels at the card's bandwidth, none of them below the price of its launch."""
    return sum(max(one.floor_ms * one.passes, time_launches() * 1e3) for one in time_regions(plan, None, settings))


def describe_gain(plan: RegionPlan, verdict: Verdict | None) -> str:
    """The region with most to gain, as the end of a sentence; empty where there is one region only."""
    times = time_regions(plan, verdict)
    if len(times) < 2:
        return ""
    most = max(times, key=lambda one: (one.gain_ms, one.floor_ms))
    took = f"takes {most.measured_ms:.3g} ms" if most.measured_ms is not None else "was not measured by itself"
    way = "a kernel of its own for it" if most.call else "another tile or another cut"
    return f"of {len(times)} regions {most.what} has most to gain: it {took}, and its {most.limit} take {most.floor_ms:.3g} ms; try {way}"
