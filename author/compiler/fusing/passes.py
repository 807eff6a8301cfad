"""How often a kernel goes along its rows."""

from __future__ import annotations

from collections.abc import Collection

from tritonsmith.author.compiler.fusing.regions import RowRegion
from tritonsmith.author.compiler.fusing.space import list_below
from tritonsmith.author.compiler.ir.values import Reduction, Tensor

_LONGEST_KEPT = 16384
"""Elements of the longest row that stays on the chip."""


def list_places(region: RowRegion, more: Collection[Tensor] = ()) -> list[Tensor]:
    """Stored values that have an element for each place; `more`: values that it might store besides."""
    return [value for value in (*region.stores, *more) if (found := region.space.find(value.shape)) and found[1]]


def count_passes(region: RowRegion, more: Collection[Tensor] = ()) -> int:
    """How often a kernel goes along a row that it cannot hold; `more`: values that it might store besides."""
    levels = {id(anchor): 0 for anchor in region.anchors}
    places = list_places(region, more)
    depends = [anchor for anchor in region.anchors if any(one in levels for one in _list_anchors(anchor.source, region))]
    return 1 + bool(depends) + any(_list_anchors(value, region) for value in places)


def count_long_passes(region: RowRegion, more: Collection[Tensor] = ()) -> int:
    """Passes over memory: rows that are too long for the chip are read once to find their numbers, and once more to use them."""
    return 2 if region.space.length > _LONGEST_KEPT and count_passes(region, more) > 1 else 1


def _list_anchors(value: Tensor, region: RowRegion) -> list[int]:
    """Reductions whose results a value is made of."""
    _, anchors = list_below(value, lambda one: id(one) in region.reads)
    return [id(anchor) for anchor in anchors if isinstance(anchor, Reduction)]
