"""The order in which a product goes through the places of a convolution's result."""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.author.compiler.ir.code import Group
from tritonsmith.author.compiler.ir.indices import Coordinates, Guard, Index, Shape, count, has_division, loaded, ravel, unravel

BLOCK = 128
"""Neighbouring columns that are reduced together, as many as a tile usually has."""
_WINDOW = 64
"""Places of a window, at most; the least tile has as many columns."""

_FILLED = 1.1
"""Columns with those that fill up the last strip of a row, over those that it has, at most (assumed; not measured)."""


def fits_block(windows: Shape, places: Shape) -> bool:
    """Whether windows along all axes of the places are parts of a block."""
    area = count(windows)
    return len(windows) == len(places) and 2 <= area <= _WINDOW and area & (area - 1) == 0


def choose_strip(window: Shape, grid: Shape) -> int:
    """Windows in a row of which a block of columns is made; 1 where whole strips would leave too many columns empty."""
    strip = BLOCK // count(window)
    laid = -(-grid[-1] // strip) * strip
    return strip if count(window[:-1]) > 1 and laid <= _FILLED * grid[-1] else 1


@dataclass(frozen=True)
class ColumnOrder:
    """Image by image, strip by strip, and place by place in a strip of windows beside each other. Windows of one place give memory's order.

    Args:
        images: how many there are.
        places: of the result of one image, by axis.
        window: sizes of windows.
        grid: windows of an image, by axis; those at the end may go beyond its places.
        slots: columns of an image. What is left behind its windows only fills up.
        strip: neighbouring windows whose rows lie one behind the other, so that more neighbours in memory are neighbouring columns.
    """

    images: int
    places: Shape
    window: Shape
    grid: Shape
    slots: int
    strip: int = 1

    @property
    def area(self) -> int:
        """Places of a window."""
        return count(self.window)

    @property
    def columns(self) -> int:
        """Of the product."""
        return self.images * self.slots

    def find(self, column: Index) -> Coordinates:
        """Image and place of a column; the place may lie beyond the edge."""
        image, slot = unravel(column, (self.images, self.slots))
        area, strip = self.area * self.strip, (*self.window[:-1], self.window[-1] * self.strip)
        starts, inside = unravel(slot // area, self._strips), unravel(slot % area, strip)
        return (image, *(start * size + own for start, size, own in zip(starts, strip, inside, strict=True)))

    @property
    def _strips(self) -> Shape:
        return (*self.grid[:-1], self.grid[-1] // self.strip)

    def find_window(self, number: Index) -> Coordinates:
        """Image and place of a window in the grid."""
        image, window = unravel(number, (self.images, self.slots // self.area))
        if self.strip == 1:
            return (image, *unravel(window, self.grid))
        *place, last = unravel(window // self.strip, self._strips)
        return (image, *place, last * self.strip + window % self.strip)

    def find_block(self, number: Index, size: int) -> Coordinates:
        """Image and place of a block of so many columns among those of the image."""
        image, block = unravel(number, (self.images, self.slots // size))
        return image, block

    def list_guards(self, column: Index) -> tuple[Guard, ...]:
        """Conditions under which an image has the place of a column."""
        pairs = list(zip(self.find(column)[1:], self.places, strict=True))
        if self.area == 1:
            pairs = [(unravel(column, (self.images, self.slots))[1], count(self.places))]
        return tuple(one for one in (Guard(index, 0, size) for index, size in pairs) if not one.settled)

    def ravel(self, at: Coordinates) -> Index:
        """The place among all of all images, in the order of memory, of one that is not beyond the edge."""
        image, *place = at
        pairs = zip(place, self.places, strict=True)
        inside = [one if one.bounds[1] < size else _trust(one, size) for one, size in pairs]
        return ravel((image, *inside), (self.images, *self.places))


def _trust(index: Index, size: int) -> Index:
    """An index that is less than a size wherever it is asked for."""
    return loaded(index.code if has_division(index.code) else Group(index.code), size, index.names)
