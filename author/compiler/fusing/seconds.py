"""What regions of any kind take on their card, without their launches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.calls import find_window_share, predict_kernel, predict_steps
from tritonsmith.author.compiler.fusing.regions import (
    CallRegion,
    ProductRegion,
    RecurrentRegion,
    RowRegion,
    StackRegion,
    WorkRegion,
    count_long_passes,
)
from tritonsmith.author.compiler.fusing.windows import find_windows, predict_windows
from tritonsmith.author.compiler.ir.values import LibraryCall
from tritonsmith.author.cost import Way, bound_product, choose_way, time_bytes, time_launches, time_product
from tritonsmith.evaluator.schema import PrecisionClass

_MATRICES = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm")
"""Calls of products of matrices."""


def predict_seconds(region: WorkRegion, call_flops: Mapping[str, float], precision: PrecisionClass) -> float:
    """Seconds of one region on the card, without its launches.

    Args:
        region: what is computed.
        call_flops: operations of PyTorch calls, by node.
        precision: of the task.
    """
    if isinstance(region, RecurrentRegion):
        return predict_steps(region)
    if isinstance(region, StackRegion):
        return region.call.stack.seconds
    if isinstance(region, ProductRegion):
        return predict_kernel(region, precision)
    windows = find_windows(region) if isinstance(region, RowRegion) else None
    if isinstance(region, RowRegion) and windows is not None:
        return predict_windows(region, windows)
    card = region.card
    moving = count_passes_over(region) * time_bytes(card, region.bytes)
    if isinstance(region, CallRegion):
        flops, way = call_flops.get(region.call.name, 0.0), choose_way(region.call.dtype, precision)
        if way is Way.PARTS:
            return max(moving, time_product(card, flops, Way.THREADS, card.fits.calls.any_call))
        return max(moving, time_product(card, flops, way, _find_share(region.call, way, card)))
    return max(moving, bound_region(region))


def _find_share(call: LibraryCall, way: Way, card: CardModel) -> float:
    """Share of the card's rate that a call reaches."""
    name = call.record.function.rpartition(".")[2]
    if name in _MATRICES:
        return card.fits.calls.matrix
    image = call.operands[0] if call.operands else None
    axes = len(image.shape) - 2 if image is not None and name.startswith("conv") else 0
    return find_window_share(card, way, axes, image.shape[1] if image is not None and axes > 0 else 0)


def predict_all(regions: Iterable[WorkRegion], call_flops: Mapping[str, float], precision: PrecisionClass) -> float:
    """Seconds of regions one after the other, each with its launch as a CUDA graph replays it."""
    return sum(time_launches(replayed=True) + predict_seconds(region, call_flops, precision) for region in regions)


def bound_region(region: WorkRegion) -> float:
    """Seconds of the products of a region at the card's best rate."""
    return bound_product(region.card, region.flops, region.stores[0].dtype)


def count_passes_over(region: WorkRegion) -> int:
    """Passes over rows that are too long to stay on the chip: one to find their numbers, one to use them."""
    return count_long_passes(region) if isinstance(region, RowRegion) and not region.split else 1
