"""What a kernel iterates over, and the elements of a value that it meets there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tritonsmith.author.compiler.ir.indices import (
    ZERO,
    Coordinates,
    Guard,
    Index,
    Shape,
    count,
    evaluate,
    join_guards,
    ravel,
    unravel,
    variable,
)
from tritonsmith.author.compiler.ir.values import (
    Anchor,
    AnchorResult,
    Formula,
    MatrixProduct,
    Reduction,
    Scan,
    Stacked,
    Tensor,
    TensorView,
    recall_reads,
)
from tritonsmith.author.types import TYPES

ROW, PLACE, OFFSET = "row", "k", "offset"
"""Variables of kernels: the row, the place in a row, the place in a tensor."""
BATCH, LINE, COLUMN, TAP, ACROSS, DOWN = "batch", "m", "n", "tap", "across", "down"
"""Variables of products: which one, row and column of the result, tap, place along the left and along the right operand's depth."""

_MOST_PLACES = 16
"""Elements of a value that are computed for one element of another one."""
_MOST_ELEMENTS, _MOST_TIMES = 128, 2
"""Elements of all values that are computed for one, and of each value on average, beyond which one of them is stored instead."""
_ORDERLESS = ("sum", "moments", "max", "min", "prod", "any", "all", "exponentials", "logsumexp")
"""Kinds of reductions that give the same in any order of their elements."""
_LEAST_RUN = 8
"""Bytes of neighbours that are worth another order: a quarter of what memory gives at once."""


class Misfit(Exception):
    """A value does not fit the kernel that was to compute it."""


@dataclass(frozen=True)
class Space:
    """Rows of equal length, and where the element at a place of a row lies."""

    rows: int
    length: int
    whole: Index
    """The place in the tensor of rows, by the variables of the kernel."""

    @property
    def row(self) -> Index:
        """The row as an index."""
        return variable(ROW, self.rows)

    def find(self, shape: Shape) -> tuple[Coordinates, bool] | None:
        """The coordinates of a value of this shape, and whether it has an element for each place; None where it does not fit."""
        if count(shape) == self.rows and self.length > 1:
            return unravel(self.row, shape), False
        return (unravel(self.whole, shape), True) if count(shape) == self.rows * self.length else None


@dataclass(frozen=True)
class ProductSpace:
    """The elements of a product's result."""

    product: MatrixProduct

    @property
    def place(self) -> Coordinates:
        """Where an element lies, by batch, row and column."""
        batch, rows, columns = self.product.outer
        return self.product.locate((variable(BATCH, batch), variable(LINE, rows), variable(COLUMN, columns)))

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Conditions under which the result has the element."""
        if self.product.order is not None:
            return self.product.order.list_guards(variable(COLUMN, self.product.order.columns))
        found = (Guard(index, 0, size) for index, size in zip(self.place, self.product.shape, strict=True))
        return tuple(one for one in found if not one.settled)

    def find(self, shape: Shape) -> tuple[Coordinates, bool] | None:
        """The coordinates of a value of this shape; None where it has not one element for each of the result."""
        at, shown = self.place, self.product.shape
        if shape == shown:
            return at, False
        return (unravel(ravel(at, shown), shape), False) if count(shape) == count(shown) and not self.guards else None


@dataclass(frozen=True)
class LastSpace:
    """The elements of a convolution's result where it is shown with the channels behind the places."""

    product: MatrixProduct

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Conditions under which the result has the element."""
        return ProductSpace(self.product).guards

    def find(self, shape: Shape) -> tuple[Coordinates, bool] | None:
        """The coordinates of a value of this shape, with an axis for each axis of the places or one for all; None for others."""
        image, channel, *place = ProductSpace(self.product).place
        images, channels, *places = self.product.shape
        if shape == (images, *places, channels):
            return (image, *place, channel), False
        return ((image, ravel(place, tuple(places)), channel), False) if shape == (images, count(tuple(places)), channels) else None


@dataclass(frozen=True)
class TileSpace:
    """Numbers that reductions along neighbouring columns of a product give: one for each window, or for each block."""

    product: MatrixProduct
    anchor: Reduction

    @property
    def shape(self) -> Shape:
        """Of the reduction's result: images, channels, and windows or blocks."""
        return tuple(size for axis, size in enumerate(self.anchor.source.shape) if axis not in self.anchor.axes)

    @property
    def place(self) -> Coordinates:
        """Where a number lies, by batch and row, and the window or block as column."""
        order, size = self.product.order, self.anchor.tile
        assert order is not None and isinstance(self.anchor.source, TensorView)
        number = variable(COLUMN, order.columns // size)
        image, *place = order.find_window(number) if self.anchor.source.windows else order.find_block(number, size)
        batch, rows, _, _, _ = self.product.sizes
        return (image, variable(BATCH, batch) * rows + variable(LINE, rows), *place)

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Conditions under which there is such a number."""
        found = (Guard(index, 0, size) for index, size in zip(self.place[2:], self.shape[2:], strict=True))
        return tuple(one for one in found if not one.settled)

    def find(self, shape: Shape) -> tuple[Coordinates, bool] | None:
        """The coordinates of a value of this shape; None where it has not one element for each number."""
        if shape == self.shape:
            return self.place, False
        whole = count(shape) == count(self.shape) and not self.guards
        return (unravel(ravel(self.place, self.shape), shape), False) if whole else None


@dataclass(frozen=True)
class ColumnSpace:
    """Numbers that reductions along the rows of a convolution give, its channels: one for each place of each image."""

    product: MatrixProduct

    @property
    def place(self) -> Coordinates:
        """Where a number lies."""
        image, _, *place = ProductSpace(self.product).place
        return (image, *place)

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Conditions under which there is such a number."""
        return tuple(one for one in ProductSpace(self.product).guards if LINE not in one.names)

    def find(self, shape: Shape) -> tuple[Coordinates, bool] | None:
        """The coordinates of a value of this shape; None where it has not one element for each number."""
        images, _, *places = self.product.shape
        if shape == (images, *places):
            return self.place, False
        if shape == (images, 1, *places):
            return (self.place[0], ZERO, *self.place[1:]), False
        if shape == (images, count(tuple(places))):
            return (self.place[0], ravel(self.place[1:], tuple(places))), False
        whole = count(shape) == count((images, *places)) and not self.guards
        return (unravel(ravel(self.place, (images, *places)), shape), False) if whole else None


@dataclass(frozen=True)
class GroupSpace:
    """Numbers that a reduction gives for each few neighbouring columns of a product; a kernel knows them at each of these."""

    product: MatrixProduct
    anchor: Reduction

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Conditions under which there is such a number."""
        return ProductSpace(self.product).guards

    def find(self, shape: Shape) -> tuple[Coordinates, bool] | None:
        """The coordinates of a value of this shape; None where it has not one element for each number."""
        whole, lead = self.anchor.source.shape, self.anchor.axes[0]
        found, groups = ProductSpace(self.product).find(whole), whole[:lead]
        if found is None or count(shape) != count(groups):
            return None
        at = found[0][:lead]
        return (at if shape == groups else unravel(ravel(at, groups), shape)), False


def anchor_coordinates(anchor: Anchor) -> tuple[Coordinates, Coordinates, int, int]:
    """Coordinates of the source, of the result, the rows and their length."""
    shape = anchor.source.shape
    kept = tuple(size for axis, size in enumerate(shape) if axis not in anchor.axes)
    order = anchor.inward or anchor.axes
    along = tuple(shape[axis] for axis in order)
    rows, length = count(kept), count(along)
    outer, inner = unravel(variable(ROW, rows), kept), unravel(variable(PLACE, length), along)
    place, left = dict(zip(order, inner, strict=True)), iter(outer)
    source = tuple(place[axis] if axis in place else next(left) for axis in range(len(shape)))
    return source, source if isinstance(anchor, Scan) else outer, rows, length


def anchor_space(anchor: Anchor) -> Space:
    """The rows that an anchor works along."""
    source, _, rows, length = anchor_coordinates(anchor)
    return Space(rows, length, ravel(source, anchor.source.shape))


@dataclass
class Walk:
    """What the elements of a value are computed from, down to memory."""

    stops: Callable[[Tensor], bool]
    """Whether a value lies in memory."""
    anchors: list[Anchor] = field(default_factory=list)
    """Anchors met first on every path, in the order in which they are met."""
    leaves: dict[int, Tensor] = field(default_factory=dict)
    depends: dict[int, frozenset[str]] = field(default_factory=dict)
    """By value in memory: the variables that say which of its elements are read."""
    formulas: dict[int, Tensor] = field(default_factory=dict)
    allowed: dict[int, Coordinates] | None = None
    """Anchors of the kernel with the coordinates of their results; others raise Misfit. None where nothing is asked."""
    _seen: dict[tuple[int, Coordinates], None] = field(default_factory=dict)
    """Values and where they were met, in that order."""

    @property
    def elements(self) -> Iterable[tuple[int, Coordinates]]:
        """The elements that were met, each by its value and where it lies."""
        return self._seen.keys()

    def visit(self, value: Tensor, at: Coordinates) -> None:
        """Follow an element. Raises Misfit."""
        todo = [(value, at)]
        while todo:
            one, place = todo.pop()
            if (id(one), place) in self._seen:
                continue
            self._seen[(id(one), place)] = None
            if self.stops(one):
                self.leaves[id(one)] = one
                self.depends[id(one)] = self.depends.get(id(one), frozenset()).union(*(index.names for index in place))
            elif isinstance(one, AnchorResult):
                self._meet(one, place)
            else:
                self.formulas[id(one)] = one
                todo += [(read.value, read.at) for read in reversed(recall_reads(one, place))]

    def _meet(self, value: AnchorResult, at: Coordinates) -> None:
        anchor = value.anchor
        if self.allowed is not None and self.allowed.get(id(anchor)) != at:
            raise Misfit
        if all(anchor is not one for one in self.anchors):
            self.anchors.append(anchor)


def list_addresses(walk: Walk) -> list[tuple[int, Index]]:
    """Where a walk reads memory: the elements of a tensor, and the place in it."""
    return [(walk.leaves[key].size, ravel(at, walk.leaves[key].shape)) for key, at in walk.elements if key in walk.leaves]


def find_inward(anchor: Anchor, stops: Callable[[Tensor], bool]) -> tuple[int, ...]:
    """The axes of a reduction in the order of memory, where its own order meets no neighbours and this one does; else none.

    A group of an image whose channels are neighbours lies so: a few channels of each place. What a reduction gives does not depend on the
    order, but for places and for scans.

    Args:
        anchor: what goes along axes.
        stops: whether a value lies in memory.
    """
    shape = anchor.source.shape
    axes = [axis for axis in anchor.axes if shape[axis] > 1]
    if len(axes) < 2 or not isinstance(anchor, Reduction) or anchor.kind not in _ORDERLESS or anchor.product is not None:
        return ()
    walk = Walk(stops)
    walk.visit(anchor.source, tuple(variable(f"axis{axis}", size) for axis, size in enumerate(shape)))
    size, index = max(list_addresses(walk), key=lambda address: address[0], default=(0, ZERO))
    here = evaluate(index, {})
    steps = {axis: abs(evaluate(index, {f"axis{axis}": 1}) - here) for axis in axes}
    nearest = min(axes, key=lambda axis: steps[axis])
    run = shape[nearest] * TYPES[anchor.source.dtype].bytes
    if nearest == axes[-1] or steps[nearest] != 1 or steps[axes[-1]] <= 1 or run < _LEAST_RUN:
        return ()
    return tuple(sorted(anchor.axes, key=lambda axis: -steps.get(axis, size)))


def find_crowded(value: Tensor, stops: Callable[[Tensor], bool]) -> Tensor | None:
    """An elementwise value of which each element of another one needs many, as several steps of a stencil do; the nearest such value.

    What a kernel writes for an element depends on its place and on the conditions under which it is asked for, so both are counted.
    """
    seen: dict[int, set[tuple[Coordinates, tuple[Guard, ...]]]] = {}
    formulas: dict[int, Formula] = {}
    total = 0
    todo = deque([(value, unravel(variable(OFFSET, value.size), value.shape), tuple[Guard, ...]())])
    while todo:
        one, place, guards = todo.popleft()
        asked = seen.setdefault(id(one), set())
        if (place, guards) in asked or stops(one) or isinstance(one, AnchorResult):
            continue
        asked.add((place, guards))
        total += 1
        if isinstance(one, Formula) and one.inputs:
            formulas[id(one)] = one
            if len({where for where, _ in asked}) > _MOST_PLACES:
                return one
        if total > max(_MOST_ELEMENTS, _MOST_TIMES * len(seen)):
            most = max((len(seen[key]) for key in formulas), default=0)
            return next((one for key, one in formulas.items() if one is not value and 2 * len(seen[key]) >= most), None)
        for read in recall_reads(one, place):
            if isinstance(one, Stacked):  # whose parts a kernel stores one by one
                todo.append((read.value, read.at, guards))
            elif (joined := join_guards(guards, read.guards)) is not None:
                todo.append((read.value, read.at, joined))
    return None


def list_below(value: Tensor, stops: Callable[[Tensor], bool]) -> tuple[list[Tensor], list[Anchor]]:
    """Values in memory and anchors met first, wherever they are read."""
    seen: set[int] = set()
    leaves: list[Tensor] = []
    anchors: list[Anchor] = []
    todo = [value]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if stops(one):
            leaves.append(one)
        elif isinstance(one, AnchorResult):
            if all(one.anchor is not other for other in anchors):
                anchors.append(one.anchor)
        else:
            todo += one.operands
    return leaves, anchors
