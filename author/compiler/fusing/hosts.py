"""Elementwise results that the kernel of another region stores as well: it computes them anyway, or reads what they are made of.

A residual that is returned next to its norm is an example. A launch and a pass over its operands are saved. What they cost is compared
with what the other kernel moves more, which takes longer where its programs are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tritonsmith.author.compiler.fusing.regions import (
    AnchoredRegion,
    PointwiseRegion,
    ProductRegion,
    RowRegion,
    WorkRegion,
    count_long_passes,
    depends,
)
from tritonsmith.author.compiler.fusing.space import OFFSET, PLACE, ROW, Walk, anchor_coordinates
from tritonsmith.author.compiler.ir.indices import Coordinates, unravel, variable
from tritonsmith.author.compiler.ir.values import Anchor, Joined, Tensor
from tritonsmith.author.cost import count_l2_rate, time_bytes, time_launches

_ROWS_APART = 64
"""Rows of a program whose places are no neighbours in memory."""
_LEAST_SHARE = 4
"""A tensor is worth reading once for two values that are at most so many times larger, and of which they need all."""


def find_hosts(regions: Sequence[WorkRegion], homes: dict[int, WorkRegion], times: int) -> dict[int, Anchor]:
    """By elementwise value with a kernel of its own that another one had better store: an anchor of that one's region.

    Args:
        regions: of a forward.
        homes: by value the region that stores it.
        times: how many times as long as usual the leading axis is; the costs are those at its usual size.
    """
    knowing: dict[int, list[AnchoredRegion]] = {}
    for one in regions:
        if isinstance(one, RowRegion | ProductRegion):
            for key in _list_known(one):
                knowing.setdefault(key, []).append(one)
    found: dict[int, Anchor] = {}
    for region in regions:
        if isinstance(region, PointwiseRegion):
            hosts = dict.fromkeys(host for key in _list_known(region) for host in knowing.get(key, ()))
            best = max((_Move(region, one, homes, times) for one in hosts), key=lambda one: one.gain, default=None)
            if best is not None and best.gain > 0:
                found |= {id(one): best.host.anchors[0] for one in best.moved}
    return found


def _list_known(region: WorkRegion) -> dict[int, None]:
    """The values that a kernel reads, computes or stores, each once."""
    return dict.fromkeys((*region.reads, *region.evaluated, *map(id, region.stores)))


def _is_joined(value: Tensor, homes: dict[int, WorkRegion]) -> bool:
    """Whether a value joins what other kernels store, which may be stored at its place instead."""
    return isinstance(value, Joined) and any(id(one) in homes for one in value.parts)


@dataclass
class _Move:
    """The values of an elementwise region that another region's kernel can store."""

    region: PointwiseRegion
    host: AnchoredRegion
    homes: dict[int, WorkRegion]
    times: int
    fresh: dict[int, Tensor] = field(default_factory=dict)
    """What the host would read for them alone."""

    @cached_property
    def gain(self) -> float:
        """Seconds that are saved: a launch and what the region moves for them, less what the host moves more."""
        if not self.moved:
            return 0.0
        card = self.region.card
        kept = [one for one in self.region.stores if one not in self.moved]
        left = sum(one.bytes for one in (*kept, *self._list_reads(kept)))
        launch = 0.0 if kept else time_launches(replayed=True)
        return launch + time_bytes(card, self.region.bytes - left) - time_bytes(card, self._count_more(), self._host_rate)

    @cached_property
    def moved(self) -> list[Tensor]:
        """Those whose elements the host meets, if its launch may come ahead of the others that need them."""
        others = [self.homes.get(key) for key in self.host.reads]
        if any(depends(one, self.region, self.homes) for one in others if one is not self.region):
            return []
        met = _list_met(self.host)
        return [one for one in self.region.stores if not _is_joined(one, self.homes) and self._takes(one, met)]

    def _takes(self, value: Tensor, met: set[tuple[int, Coordinates]]) -> bool:
        place = _find_place(value, self.host)
        if place is None:
            return False
        shared = id(value) in self.host.reads or id(value) in self.host.evaluated
        if shared and (id(value), place) not in met:
            return False
        walk = self._walk(value, place)
        fresh = {}
        for key, at in walk.elements:
            one = walk.leaves.get(key) or walk.formulas.get(key)
            if (key, at) in met:
                shared |= one is not None and value.size < one.size * _LEAST_SHARE <= value.size * _LEAST_SHARE
            elif key in walk.leaves:
                fresh[key] = walk.leaves[key]
        if isinstance(self.host, RowRegion) and self.host.split and any(self.homes.get(key) is self.host for key in walk.leaves):
            return False  # its second launch alone knows them
        if not shared or any(depends(self.homes.get(key), self.host, self.homes) for key in fresh):
            return False
        self.fresh |= fresh
        met |= {*walk.elements}  # for those behind it
        return True

    def _walk(self, value: Tensor, place: Coordinates) -> Walk:
        walk = Walk(lambda one: id(one) in self.region.reads)
        walk.visit(value, place)
        return walk

    def _list_reads(self, values: list[Tensor]) -> list[Tensor]:
        """What the region reads for some of its values."""
        walks = [self._walk(one, unravel(variable(OFFSET, one.size), one.shape)) for one in values]
        return [one for key, one in self.region.reads.items() if any(key in walk.leaves for walk in walks)]

    def _count_more(self) -> int:
        """Bytes that the host moves more."""
        before = sum(one.bytes for one in self.host.reads.values())
        saved = sum(one.bytes for one in self.moved if id(one) in self.host.reads)
        after = before - saved + sum(one.bytes for one in self.fresh.values())
        if isinstance(self.host, RowRegion):
            before *= count_long_passes(self.host)
            after *= count_long_passes(self.host, self.moved)
        return after - before + sum(one.bytes for one in self.moved)

    @property
    def _host_rate(self) -> float:
        """Bytes that the host's programs move in a second, if memory is fast enough."""
        host = self.host
        if not isinstance(host, RowRegion) or host.split:
            return float("inf")
        space = host.space
        together = space.whole == variable(ROW, space.rows) * space.length + variable(PLACE, space.length)
        programs = max(1, space.rows // self.times // (1 if together else _ROWS_APART))
        return programs * count_l2_rate(host.card)


def _find_place(value: Tensor, region: AnchoredRegion) -> Coordinates | None:
    """Where the kernel of a region would have a value's elements."""
    found: Iterable[tuple[Coordinates, bool] | None] = (space.find(value.shape) for space in region.spaces)
    return next((one[0] for one in found if one is not None), None)


def _list_met(region: AnchoredRegion) -> set[tuple[int, Coordinates]]:
    """The elements of values that a kernel meets where it stores, and along its rows."""
    walk = Walk(lambda one: id(one) in region.reads)
    if isinstance(region, RowRegion):
        for anchor in region.anchors:
            walk.visit(anchor.source, anchor_coordinates(anchor)[0])
    for value in region.stores:
        place = _find_place(value, region)
        if place is not None:
            walk.visit(value, place)
    return {*walk.elements}
