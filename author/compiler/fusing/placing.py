"""Tensors that are laid one behind the other: what a region stores goes to its place in the whole, so that no pass copies it there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from tritonsmith.author.compiler.fusing.regions import AttentionRegion, PointwiseRegion, ProductRegion, RowRegion, WorkRegion
from tritonsmith.author.compiler.ir.values import Joined, Spot, Tensor, TensorView

_WORTH = {0: 0.0, 1: 0.25, 2: 0.5}
"""By the number of parts that are left, each with a launch of its own: the share of the whole that has to be stored at its place."""


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
    readers = Counter(key for region in regions for key in region.reads)
    movable = {key: home for key, home in homes.items() if key not in asked and readers[key] == 1 and _stores_anywhere(home)}
    done: list[WorkRegion] = []
    for region in regions:
        whole = region.stores[0] if isinstance(region, PointwiseRegion) and len(region.stores) == 1 else None
        placed = [_is_placed(part, whole, region, movable) for part in whole.parts] if isinstance(whole, Joined) else []
        if isinstance(whole, Joined):  # what is left is computed from values by themselves
            left = [part for part, there in zip(whole.parts, placed, strict=True) if not there]
            needed = frozenset().union(*(_list_read(part, region) for part in left), frozenset())
            placed = [there and id(part) not in needed for part, there in zip(whole.parts, placed, strict=True)]
        if not isinstance(whole, Joined) or not _is_worth_it(whole, placed):
            done.append(region)
            continue
        movable.pop(id(whole), None)  # no kernel stores it as a whole any more
        start = 0
        for part, there in zip(whole.parts, placed, strict=True):
            spot = Spot(whole, whole.axis, start)
            start += part.shape[whole.axis]
            if there:
                part.spot = spot
                continue
            copy = TensorView(shape=part.shape, dtype=part.dtype, name=part.name, source=part, move=lambda at: at, spot=spot)
            rest = PointwiseRegion(card=region.card, size=part.size, name=region.name)
            fill(rest, copy, region.reads)  # a part that another kernel stores may come later
            done.append(rest)
    return done


def _stores_anywhere(region: WorkRegion) -> bool:
    """Whether the kernel of a region computes the address of each element that it stores."""
    split = isinstance(region, RowRegion | ProductRegion) and region.split
    return isinstance(region, RowRegion | ProductRegion | AttentionRegion | PointwiseRegion) and not split


def _is_placed(part: Tensor, whole: Joined, region: WorkRegion, movable: dict[int, WorkRegion]) -> bool:
    """Whether the region that stores a part may store it in the whole: nobody else reads it, and it is there once."""
    once = sum(part is one for one in whole.parts) == 1 and part.holder in (part, whole)
    return movable.get(id(part), region) is not region and id(part) in region.reads and once and part.dtype == whole.dtype


def _list_read(value: Tensor, region: WorkRegion) -> frozenset[int]:
    """Values in memory that a region reads for another one."""
    if id(value) in region.reads:
        return frozenset((id(value),))
    return frozenset().union(*(_list_read(operand, region) for operand in value.operands), frozenset())


def _is_worth_it(whole: Joined, placed: Sequence[bool]) -> bool:
    """Whether enough is stored at its place, next to the launches for what is left."""
    share = sum(part.size for part, there in zip(whole.parts, placed, strict=True) if there) / max(1, whole.size)
    return any(placed) and share >= _WORTH.get(placed.count(False), 2.0)
