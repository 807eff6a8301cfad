"""Memory of one interpreted launch: which tensor an address belongs to, what lies outside, and which bytes were touched."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]


class OutOfBounds(Exception):
    """Addresses outside every tensor of the launch; the message says how far, the caller adds kernel, line and program."""


@dataclass(eq=False)
class Region:
    """One storage that tensors of the launch share."""

    base: int
    size: int
    """Bytes."""
    granule: int
    """Smallest element size among its tensors: the unit in which bytes and races are distinguished."""
    names: list[str]
    number: int = 0
    touched: NDArray[np.bool_] = field(init=False)
    _low: int = field(init=False)
    _high: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.seal()

    def seal(self) -> None:
        """Size the tables once all tensors are known."""
        self.touched = np.zeros(self.elements, bool)
        self._low = self.elements

    @property
    def elements(self) -> int:
        """Number of granules."""
        return -(-self.size // self.granule)

    @property
    def name(self) -> str:
        """Names of the kernel's arguments that point here."""
        return "/".join(dict.fromkeys(self.names))

    def touch(self, index: Index) -> None:
        """Remember granules as read or written."""
        self.touched[index] = True
        self._low = min(self._low, int(index.min()))
        self._high = max(self._high, int(index.max()) + 1)

    @property
    def touched_bytes(self) -> int:
        """Distinct bytes read or written so far."""
        return int(np.count_nonzero(self.touched[self._low : self._high])) * self.granule


@dataclass(frozen=True)
class Access:
    """The granules of one region that one operation touches, and the lanes (of the unmasked ones) that touch them."""

    region: Region
    index: Index
    lanes: NDArray[Any] | slice


class AddressMap:
    """The storages that a launch may touch.

    Args:
        tensors: pairs of argument name and torch tensor.
    """

    def __init__(self, tensors: Iterable[tuple[str, Any]]) -> None:
        regions: dict[int, Region] = {}
        for name, tensor in tensors:
            storage = tensor.untyped_storage()
            base, size, granule = storage.data_ptr(), storage.nbytes(), tensor.element_size()
            if size == 0:
                continue
            if base in regions:
                regions[base].names.append(name)
                regions[base].granule = min(regions[base].granule, granule)
            else:
                regions[base] = Region(base, size, granule, [name])
        self.regions = sorted(regions.values(), key=lambda region: region.base)
        for number, region in enumerate(self.regions):
            region.number = number
            region.seal()
        self._bases = [region.base for region in self.regions]

    def locate(self, addresses: Index, size: int) -> list[Access]:
        """Regions and granules of unmasked addresses (flat, at least one), `size` bytes each. Raises OutOfBounds."""
        low, high = int(addresses.min()), int(addresses.max())
        region = self._find_region(low)
        if region is not None and high + size <= region.base + region.size:
            return [Access(region, _find_granules(region, addresses, size), slice(None))]
        return self._locate_each(addresses, size)

    def _find_region(self, address: int) -> Region | None:
        position = bisect_right(self._bases, address) - 1
        return self.regions[position] if position >= 0 else None

    def _locate_each(self, addresses: Index, size: int) -> list[Access]:
        numbers = np.searchsorted(np.array(self._bases, np.int64), addresses, side="right") - 1
        ends = np.array([region.base + region.size for region in self.regions], np.int64)
        outside = (numbers < 0) | (addresses + size > ends[np.maximum(numbers, 0)]) if self.regions else np.ones(addresses.shape, bool)
        if outside.any():
            raise OutOfBounds(self._describe(addresses, outside))
        accesses = []
        for number in np.unique(numbers):
            lanes = np.flatnonzero(numbers == number)
            region = self.regions[int(number)]
            accesses.append(Access(region, _find_granules(region, addresses[lanes], size), lanes))
        return accesses

    def _describe(self, addresses: Index, outside: NDArray[np.bool_]) -> str:
        first = int(addresses[int(np.argmax(outside))])
        count = f"{int(outside.sum())} of {addresses.size} addresses lie outside the tensors of the launch"
        region = self._find_region(first)
        if region is None and self.regions:
            region = self.regions[0]
        if region is None:
            return f"{count} (the kernel got no tensor)"
        distance = first - region.base
        away = distance - region.size if distance >= 0 else -distance
        where = f"{away} byte{'s' * (away != 1)} {'past the end' if distance >= 0 else 'before the start'}"
        return f"{count}; the first is {where} of {region.name} ({region.size} bytes)"


def _find_granules(region: Region, addresses: Index, size: int) -> Index:
    index = (addresses - region.base) // region.granule
    if size > region.granule:
        index = (index[:, None] + np.arange(size // region.granule)).reshape(-1)
    return index
