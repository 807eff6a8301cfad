"""The order in which a product goes through the places of a convolution's result."""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.prompts.recipes.regions.values.indices import Coordinates, Guard, Index, Shape, count, loaded, ravel, unravel

BLOCK = 128
"""Neighbouring columns that are reduced together, as many as a tile usually has."""
_WINDOW = 64
"""Places of a window, at most; the least tile has as many columns."""


def fits_block(windows: Shape, places: Shape) -> bool:
    """Whether windows along all axes of the places are parts of a block."""
    area = count(windows)
    return len(windows) == len(places) and 2 <= area <= _WINDOW and area & (area - 1) == 0


@dataclass(frozen=True)
class ColumnOrder:
    """Image by image, window by window, and place by place in a window. Windows of one place give the order of memory.

    Args:
        images: how many there are.
        places: of the result of one image, by axis.
        window: sizes of windows.
        grid: windows of an image, by axis; those at the end may go beyond its places.
        slots: columns of an image. What is left behind its windows only fills up.
    """

    images: int
    places: Shape
    window: Shape
    grid: Shape
    slots: int

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
        starts, inside = unravel(slot // self.area, self.grid), unravel(slot % self.area, self.window)
        return (image, *(start * size + own for start, size, own in zip(starts, self.window, inside, strict=True)))

    def find_window(self, number: Index) -> Coordinates:
        """Image and place of a window in the grid."""
        image, window = unravel(number, (self.images, self.slots // self.area))
        return (image, *unravel(window, self.grid))

    def find_block(self, number: Index, size: int) -> Coordinates:
        """Image and place of a block of so many columns among those of the image."""
        image, block = unravel(number, (self.images, self.slots // size))
        return image, block

    def list_guards(self, column: Index) -> tuple[Guard, ...]:
        """Conditions under which an image has the place of a column."""
        pairs = list(zip(self.find(column)[1:], self.places, strict=True))
        if self.area == 1:
            pairs = [(unravel(column, (self.images, self.slots))[1], count(self.places))]
        return tuple(one for one in (Guard(index, 0, size) for index, size in pairs) if one.texts)

    def ravel(self, at: Coordinates) -> Index:
        """The place among all of all images, in the order of memory, of one that is not beyond the edge."""
        image, *place = at
        pairs = zip(place, self.places, strict=True)
        inside = [one if one.bounds[1] < size else _trust(one, size) for one, size in pairs]
        return ravel((image, *inside), (self.images, *self.places))


def _trust(index: Index, size: int) -> Index:
    """An index that is less than a size wherever it is asked for."""
    text = index.text
    return loaded(text if "//" in text or "%" in text else f"({text})", size, index.names)
