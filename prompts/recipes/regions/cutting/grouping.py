"""Reductions over a few neighbouring columns of a product, which a program does on its tile: a group norm behind a linear layer."""

from __future__ import annotations

from tritonsmith.prompts.recipes.regions.cutting.space import BATCH, COLUMN, LINE, ProductSpace
from tritonsmith.prompts.recipes.regions.values.indices import Coordinates, Index, count, ravel, unravel, variable
from tritonsmith.prompts.recipes.regions.values.tensors import Anchor, MatrixProduct, Reduction

GROUPED = ("moments", "exponentials", "sum", "max", "min")
"""Kinds of reduction that a tile has whole."""
_LEAST, _MOST = 2, 64
"""Columns of a group; a tile has as many."""
_LEAST_COLUMNS = 128
"""Columns of a product that is worth wide tiles."""


def find_group(product: MatrixProduct, anchor: Anchor) -> int:
    """How many columns each number of an anchor is made of; 0 where tiles do not have whole groups of them."""
    shape, columns = anchor.source.shape, product.sizes[2]
    size = count(tuple(shape[axis] for axis in anchor.axes))
    first = min(anchor.axes, default=0)
    trailing = all(axis in anchor.axes or shape[axis] == 1 for axis in range(first, len(shape)))
    if not isinstance(anchor, Reduction) or anchor.kind not in GROUPED or not trailing or product.folded != 1:
        return 0
    fits = _LEAST <= size <= _MOST and size & (size - 1) == 0 and columns % size == 0 and columns >= _LEAST_COLUMNS
    space = ProductSpace(product)
    plain = ravel((variable(BATCH, product.outer[0]), variable(LINE, product.outer[1]), variable(COLUMN, columns)), product.outer)
    same = not space.guards and count(shape) == count(product.shape) and ravel(space.place, product.shape) == plain
    return size if fits and same else 0


def _offset(product: MatrixProduct) -> Index:
    """The place in the result, by the variables of the kernel."""
    return ravel(ProductSpace(product).place, product.shape)


def place_source(product: MatrixProduct, anchor: Anchor) -> Coordinates:
    """Where the kernel meets the elements that an anchor takes in."""
    return unravel(_offset(product), anchor.source.shape)


def place_result(product: MatrixProduct, anchor: Anchor) -> Coordinates:
    """Where it meets its results."""
    shape = anchor.source.shape
    size = count(tuple(shape[axis] for axis in anchor.axes))
    kept = tuple(size for axis, size in enumerate(shape) if axis not in anchor.axes)
    return unravel(_offset(product) // size, kept)
