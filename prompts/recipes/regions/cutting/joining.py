"""Tensors that are laid one behind the other: what a region stores goes to its place in the whole, so that no pass copies it there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tritonsmith.prompts.recipes.regions.cutting.regions import AttentionRegion, PointwiseRegion, ProductRegion, RowRegion, WorkRegion
from tritonsmith.prompts.recipes.regions.values.tensors import Joined, Spot, Tensor, TensorView

_MOST_LEFT = 2
"""Parts that may be left: each needs a launch of its own."""
_WORTH = {0: 0.0, 1: 0.25, 2: 0.5}
"""By the number of parts that are left: the share of the whole that has to be stored at its place."""


def place_parts(
    regions: Sequence[WorkRegion],
    homes: dict[int, WorkRegion],
    asked: Collection[int],
    fill: Callable[[PointwiseRegion, Tensor, Collection[int]], None],
) -> list[WorkRegion]:
    """The regions without those that do nothing but join what others have stored.

    Args:
        regions: in the order in which forward runs them.
        homes: by value the region that stores it.
        asked: values that forward returns, which lie by themselves.
        fill: has a region store a value, from others that it may read.
    """
    readers: dict[int, list[WorkRegion]] = {}
    for region in regions:
        for key in region.reads:
            readers.setdefault(key, []).append(region)
    joins: set[int] = set()
    done: list[WorkRegion] = []
    for region in regions:
        whole = region.stores[0] if isinstance(region, PointwiseRegion) and len(region.stores) == 1 else None
        if not isinstance(whole, Joined):
            done.append(region)
            continue

        def is_placed(part: Tensor, region: WorkRegion = region, whole: Joined = whole) -> bool:
            home = homes.get(id(part))
            kind = isinstance(home, RowRegion | ProductRegion | AttentionRegion | PointwiseRegion) and id(home) not in joins
            shared = id(part) in asked or readers.get(id(part)) != [region] or sum(part is one for one in whole.parts) > 1
            split = isinstance(home, RowRegion | ProductRegion) and home.split
            fresh = part.spot is None or part.spot.whole is whole
            return kind and home is not region and not split and not shared and part.dtype == whole.dtype and fresh

        placed = [is_placed(part) for part in whole.parts]
        left = placed.count(False)
        share = sum(part.size for part, there in zip(whole.parts, placed, strict=True) if there) / max(1, whole.size)
        if not any(placed) or left > _MOST_LEFT or share < _WORTH[left]:
            done.append(region)
            continue
        joins.add(id(region))
        start = 0
        for part, there in zip(whole.parts, placed, strict=True):
            spot = Spot(whole, whole.axis, start)
            start += part.shape[whole.axis]
            if there:
                part.spot = spot
                continue
            copy = TensorView(shape=part.shape, dtype=part.dtype, name=part.name, source=part, move=lambda at: at, spot=spot)
            rest = PointwiseRegion(size=part.size, name=region.name)
            fill(rest, copy, region.reads)  # a part that another kernel stores may come later
            done.append(rest)
    return done
