"""The regions that a cut has made so far."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.materialize import SharedValues
from tritonsmith.author.compiler.fusing.regions import (
    AnchoredRegion,
    PointwiseRegion,
    ProductRegion,
    RowRegion,
    WorkRegion,
    depends,
)
from tritonsmith.author.compiler.fusing.space import (
    OFFSET,
    Misfit,
    Walk,
    anchor_coordinates,
    anchor_space,
    find_crowded,
    list_below,
)
from tritonsmith.author.compiler.fusing.windows import holds_windows
from tritonsmith.author.compiler.ir.indices import Coordinates, unravel, variable
from tritonsmith.author.compiler.ir.values import Anchor, Held, Scan, Tensor


class CutState:
    """The regions so far, and which of them stores or finds what."""

    def __init__(self, sharing: SharedValues, card: CardModel) -> None:
        self._sharing, self._card = sharing, card
        self.regions: list[WorkRegion] = []
        self.homes: dict[int, WorkRegion] = {}
        """By value that is stored: the region that stores it."""
        self._places: dict[int, AnchoredRegion] = {}
        """By anchor: its region."""
        self._begun: list[Tensor] = []
        """Values and anchors whose regions are being made."""

    def in_memory(self, value: Tensor) -> bool:
        """Whether a value lies in memory."""
        return isinstance(value, Held) or id(value) in self.homes

    def _may_begin(self, anchor: Anchor) -> bool:
        """Whether an anchor is made of nothing whose region is being made."""
        begun = {id(one) for one in self._begun}
        seen: set[int] = set()
        todo: list[Tensor] = [anchor]
        while todo and not seen & begun:
            one = todo.pop()
            if id(one) not in seen and not self.in_memory(one):
                seen.add(id(one))
                todo += one.operands
        return not seen & begun

    def _is_read(self, value: Tensor, region: WorkRegion) -> bool:
        return self.in_memory(value) and self.homes.get(id(value)) is not region

    def _fits(self, value: Tensor, at: Any, region: WorkRegion) -> bool:
        results = region.results if isinstance(region, RowRegion | ProductRegion) else {}
        walk = Walk(lambda one: self._is_read(one, region), allowed=results)
        try:
            walk.visit(value, at)
        except Misfit:
            return False
        return not any(depends(self.homes.get(key), region, self.homes) for key in walk.leaves)

    def _find_place(self, value: Tensor, region: AnchoredRegion) -> tuple[Coordinates, bool] | None:
        """Where a region's kernel has a value's elements, and whether one for each place of a row; None where it cannot compute them."""
        for space in region.spaces:
            found = space.find(value.shape)
            late = found is not None and found[1] and isinstance(region, RowRegion) and region.split and self._needs(value, region)
            if found is not None and not late and self._fits(value, found[0], region):
                return found
        return None

    def _note(self, region: WorkRegion, value: Tensor, at: Any) -> None:
        """Note what a region reads and computes for a value."""
        walk = Walk(lambda one: self._is_read(one, region))
        walk.visit(value, at)
        region.reads |= walk.leaves
        fresh = walk.formulas.keys() - region.evaluated.keys()
        region.evaluated |= walk.formulas
        self._sharing.watch(region, fresh, self.homes)

    def fill(self, region: PointwiseRegion, value: Tensor, known: Collection[int]) -> None:
        """Have a region store a value, element by element, from values that are known to lie in memory ahead of it."""
        walk = Walk(lambda one: id(one) in known)
        walk.visit(value, unravel(variable(OFFSET, value.size), value.shape))
        region.reads |= walk.leaves
        region.evaluated |= walk.formulas
        region.stores.append(value)

    def _homes_below(self, value: Tensor) -> list[AnchoredRegion]:
        """The regions whose results a value is made of, each once."""
        return list(dict.fromkeys(self._places[id(one)] for one in list_below(value, self.in_memory)[1]))

    def _add(self, region: WorkRegion, value: Tensor) -> None:
        self.regions.append(region)
        self.homes[id(value)] = region

    def _keep(self, value: Tensor, region: WorkRegion, at: Any) -> None:
        self._note(region, value, at)
        region.stores.append(value)
        self.homes[id(value)] = region

    def _keep_in_host(self, value: Tensor) -> bool:
        """Whether a region that is chosen for it stores a value as well."""
        host = self._sharing.hosts.get(id(value))
        region = self._places.get(id(host)) if host is not None else None
        found = self._find_place(value, region) if region is not None else None
        if region is None or found is None:
            return False
        self._keep(value, region, found[0])
        return True

    def _keep_shared(self, region: AnchoredRegion) -> None:
        """Store what others will read too, as far as it has an element for each place or row."""
        hosted = {key for key, host in self._sharing.hosts.items() if self._places.get(id(host)) is region}
        shared = self._sharing.shared | hosted
        for value in [one for key, one in region.evaluated.items() if key in shared and not self.in_memory(one)]:
            found = self._find_place(value, region)
            if found is not None:
                self._keep(value, region, found[0])

    def _shares(self, value: Tensor, at: Any, region: PointwiseRegion) -> bool:
        """Whether a value reads what a region reads, so that one kernel saves a pass."""
        leaves, _ = list_below(value, self.in_memory)
        saves = any(id(one) in region.reads and one.size * 4 > value.size for one in leaves) or self._goes_on(value, at, region)
        return saves and self._fits(value, at, region) and find_crowded(value, lambda one: self._is_read(one, region)) is None

    def _goes_on(self, value: Tensor, at: Coordinates, region: PointwiseRegion | RowRegion) -> bool:
        """Whether a value is made of what a region stores, element by element, so that its kernel need not read that again."""
        walk = Walk(self.in_memory)
        walk.visit(value, at)
        stored = [(walk.leaves[key], place) for key, place in walk.elements if self.homes.get(key) is region]
        return bool(stored) and all(place == _locate(one, region) for one, place in stored)

    def _needs(self, value: Tensor, region: RowRegion) -> bool:
        """Whether a value is made of what a region finds: programs that share rows know that only when all of them are done."""
        _, below = list_below(value, lambda one: self._is_read(one, region))
        return any(self._places.get(id(one)) is region for one in below)

    def _find_neighbour(self, anchor: Anchor) -> RowRegion | None:
        """A region along the same rows that reads the same tensors, and that this anchor may join."""
        space = anchor_space(anchor)
        leaves, _ = list_below(anchor.source, self.in_memory)
        small = space.rows * space.length <= self._card.fits.rows.small  # then they share a kernel even if they read nothing in common
        for region in reversed(self.regions):
            if isinstance(region, RowRegion) and region.space == space and not isinstance(anchor, Scan) and not holds_windows(region):
                near = small or any(id(one) in region.reads for one in leaves if one.size > space.rows)
                near = near or self._goes_on(anchor.source, anchor_coordinates(anchor)[0], region)
                free = not any(isinstance(one, Scan) for one in region.anchors)
                free = free and not (region.split and self._needs(anchor.source, region))
                if near and free and self._fits(anchor.source, anchor_coordinates(anchor)[0], region):
                    return region
        return None


def _locate(value: Tensor, region: PointwiseRegion | RowRegion) -> Coordinates | None:
    """Where the kernel of a region has the elements of a value, one for each place of a row."""
    if isinstance(region, PointwiseRegion):
        return unravel(variable(OFFSET, value.size), value.shape)
    found = region.space.find(value.shape)
    return found[0] if found is not None and found[1] else None
