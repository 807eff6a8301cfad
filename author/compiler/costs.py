"""What a plan should take: the work of its regions on a card, and its launches, which run ahead of that work."""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.layers import predict_steps
from tritonsmith.author.compiler.fusing.rates import predict_kernel
from tritonsmith.author.compiler.fusing.regions import CallRegion, ProductRegion, RecurrentRegion, WorkRegion
from tritonsmith.author.compiler.gains import count_reads, count_seconds
from tritonsmith.author.compiler.plan import RegionPlan
from tritonsmith.evaluator.cards.launch_cost import LAUNCH_AS_CALLED, OPERATOR_AS_CALLED
from tritonsmith.evaluator.schema import Hardware, PrecisionClass

_CALL = 0.4
"""Share of the card's fp32 rate that products of PyTorch calls reach (assumed; convolutions on an H200 reach 0.06 to 0.48)."""


def predict_work(plan: RegionPlan, precision: PrecisionClass, hardware: Hardware) -> float:
    """Seconds of all regions on the card, without their launches."""
    return sum(_predict_region(region, plan, precision, hardware) for region in plan.regions)


def predict_launches(plan: RegionPlan) -> float:
    """Seconds in which forward launches everything from Python."""
    kernels = sum(len(names) for names in plan.kernel_names)
    return kernels * LAUNCH_AS_CALLED + sum(isinstance(one, CallRegion) for one in plan.regions) * OPERATOR_AS_CALLED


def predict_plan(plan: RegionPlan, precision: PrecisionClass, hardware: Hardware) -> float:
    """Seconds of a call: the work, or the launches where these take longer."""
    return max(predict_work(plan, precision, hardware), predict_launches(plan))


def _predict_region(region: WorkRegion, plan: RegionPlan, precision: PrecisionClass, hardware: Hardware) -> float:
    if isinstance(region, RecurrentRegion):
        return predict_steps(region, hardware)
    if isinstance(region, ProductRegion):
        return predict_kernel(region, precision, hardware)
    moving = count_reads(region) * region.bytes / hardware.bandwidth
    if isinstance(region, CallRegion):
        return max(moving, plan.call_flops.get(region.call.name, 0.0) / (_CALL * hardware.fp32))
    return max(moving, count_seconds(region, hardware))
