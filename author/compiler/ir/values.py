"""The values of a forward. Some lie in memory; the others are computed where a kernel reads them, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tritonsmith.author.compiler.ir.code import Expression, Name
from tritonsmith.author.compiler.ir.columns import ColumnOrder
from tritonsmith.author.compiler.ir.indices import ZERO, Coordinates, Guard, Index, Shape, count, loaded
from tritonsmith.author.compiler.ir.operators import (
    Applied,
    Constant,
    Number,
    Operand,
    Operator,
    Tree,
    Type,
    cast_operands,
    holds_numbers,
    write,
)
from tritonsmith.author.compiler.ir.template import expression
from tritonsmith.author.compiler.ir.torch_calls import TorchCall, ViewStep
from tritonsmith.author.types import BYTES as BYTES
from tritonsmith.author.types import FLOATS as FLOATS
from tritonsmith.author.types import SHORT, TYPES
from tritonsmith.author.types import TRITON_TYPES as TRITON_TYPES
from tritonsmith.author.types import widen as widen

TYPE_NAMES: dict[str, Expression] = {dtype: expression(text) for dtype, text in TRITON_TYPES.items()}
"""The records of Triton's types."""
ZERO_POINT, LEAST, MOST = Constant(0.0), Constant(-math.inf), Constant(math.inf)
"""What lies beyond the edge of sums, of maxima and of minima."""


@dataclass(frozen=True)
class Read:
    """One operand of a value: where it is read, and under which conditions."""

    value: Tensor
    at: Coordinates
    guards: tuple[Guard, ...] = ()


@dataclass(eq=False, kw_only=True)
class Tensor:
    """A tensor of the forward."""

    shape: Shape
    dtype: str
    name: str = ""
    """What a kernel calls it."""
    filling: Filling | None = None
    """Where forward writes to its places one by one: what lies there."""
    spot: Spot | None = None
    """Where it is stored, if that is a part of another tensor."""
    known: dict[Coordinates, list[Read]] = field(default_factory=dict, repr=False)
    """By element: what it reads, as far as it was asked for."""

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return ()

    @property
    def holder(self) -> Tensor:
        """The tensor in memory that it is stored in."""
        return self if self.spot is None else self.spot.whole

    @property
    def size(self) -> int:
        """Its elements."""
        return count(self.shape)

    @property
    def bytes(self) -> int:
        """Of the tensor in memory."""
        return self.size * BYTES.get(self.dtype, 8)


@dataclass(frozen=True)
class Spot:
    """A part of a tensor, from a place along an axis on."""

    whole: Tensor
    axis: int
    start: int


@dataclass(frozen=True)
class Filling:
    """Parts of a tensor that forward writes one after the other, each at one place of the same axes."""

    base: Tensor
    """The tensor ahead of them."""
    axes: tuple[int, ...]
    parts: dict[tuple[int, ...], Tensor]
    """By places along the axes: what lies there."""


@dataclass(eq=False, kw_only=True)
class Held(Tensor):
    """An argument of forward or a parameter."""

    source: str
    """Its expression in forward."""
    path: str = ""
    """Of a parameter: its name in the module."""
    given: bool = False
    number: bool = False
    """Whether it is an argument that is no tensor, but a number."""


@dataclass(eq=False, kw_only=True)
class LibraryCall(Tensor):
    """A PyTorch call. Its shape is that of its first result."""

    record: TorchCall
    """What is called, and with what."""
    inputs: tuple[Tensor, ...] = ()
    says: str = ""
    """What it is, as people write it."""
    several: bool = False
    """Whether it returns a tuple."""
    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return self.inputs


@dataclass(eq=False, kw_only=True)
class Item(Tensor):
    """One of several results of a PyTorch call."""

    call: LibraryCall
    places: tuple[int, ...]
    """Its place, and its place in the tuple that is there, if one is."""

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return (self.call,)


@dataclass(eq=False, kw_only=True)
class Formula(Tensor):
    """An elementwise function of its operands, which broadcast to its shape."""

    expression: Tree
    """What is done to the operands."""
    inputs: tuple[Tensor, ...] = ()
    flops: float = 1.0

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return self.inputs

    @property
    def operator(self) -> Operator | None:
        """What is done last; None where it is a number or one of its operands."""
        return self.expression.operator if isinstance(self.expression, Applied) else None

    @property
    def number(self) -> Number | None:
        """What all elements are, where that is one number."""
        return self.expression.value if isinstance(self.expression, Constant) else None

    def fill(self, operands: Sequence[Expression]) -> Expression:
        """The code of an element, given that of the operands' elements."""
        return write(self.expression, operands, self.met)

    @property
    def met(self) -> str:
        """The type in which its operands meet numbers: that of the widest float among them; of whole numbers int64, 16 or 8 bits."""
        dtypes = [operand.dtype for operand in self.inputs] or [self.dtype]
        for dtype in ("float64", *FLOATS, "int64"):
            if dtype in dtypes:
                return widen(dtype)
        numbers = {self.dtype, *(dtype for dtype in dtypes if dtype != "bool")}
        short = numbers <= {self.dtype} and self.dtype in SHORT and holds_numbers(self.expression, self.dtype)
        return self.dtype if short else ""

    def casts(self, place: int) -> bool:
        """Whether it brings an operand as it is into another type, for which a number must be a value of Triton."""
        return Operand(place) in cast_operands(self.expression)


@dataclass(eq=False, kw_only=True)
class Position(Tensor):
    """Integers that follow from where an element lies."""

    index: Callable[[Coordinates], Index]


@dataclass(eq=False, kw_only=True)
class TensorView(Tensor):
    """Elements of another value at other places; `fill` where the guards do not hold."""

    source: Tensor
    move: Callable[[Coordinates], Coordinates]
    guard: Callable[[Coordinates], tuple[Guard, ...]] | None = None
    fill: Constant = ZERO_POINT
    shown: ViewStep | None = None
    """The same view as PyTorch makes it; None where that would copy."""
    flipped: tuple[int, ...] = ()
    """Axes along which it runs backwards, where that is all that it does."""
    widened: bool = False
    """Whether all that it does is to fill an axis up, for products that read it in a form of their own."""
    windows: Shape = ()
    """The last axes, where it shows windows of the source's last axes that do not overlap, from the first place on."""

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return (self.source,)

    def guards(self, at: Coordinates) -> tuple[Guard, ...]:
        """Conditions under which the source has the element; those that always hold are left out."""
        return tuple(one for one in self.guard(at) if not one.settled) if self.guard else ()


@dataclass(eq=False, kw_only=True)
class Joined(Tensor):
    """Values one behind the other along an axis."""

    parts: tuple[Tensor, ...]
    axis: int

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return self.parts


@dataclass(eq=False, kw_only=True)
class Stacked(Joined):
    """A few values of one element each along the axis: what is made of it is made of each by itself, in the kernel that finds them."""

    @classmethod
    def of(cls, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Values with one element along an axis, beside each other; a single one as it is."""
        first = parts[0]
        if len(parts) == 1:
            return first
        shape = (*first.shape[:axis], len(parts), *first.shape[axis + 1 :])
        return cls(shape=shape, dtype=first.dtype, name=first.name, parts=tuple(parts), axis=axis)


@dataclass(eq=False, kw_only=True)
class Lookup(Tensor):
    """Elements of a table at places that other values say."""

    table: Tensor
    places: tuple[Tensor, ...]
    where: Callable[[Coordinates], tuple[Coordinates, ...]]
    """For each of `places`: where it is read."""
    move: Callable[[Coordinates, Sequence[Index]], Coordinates]
    """Where the table is read, by the coordinates and the values of `places`."""
    limits: tuple[int, ...] = ()
    """For each of `places`: how many values it can have."""

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return (self.table, *self.places)


@dataclass(eq=False, kw_only=True)
class Anchor(Tensor):
    """Work along axes that one kernel does as a whole; its results are `AnchorResult`s."""

    source: Tensor
    axes: tuple[int, ...]
    kind: str
    inward: tuple[int, ...] = ()
    """The same axes from the outermost to the innermost one in which a kernel goes along them, where that is another order."""

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return (self.source,)


@dataclass(frozen=True, eq=False)
class ChannelWindows:
    """The windows of a convolution in which every channel has its own, and no other channel enters.

    Args:
        image: [images, channels, *places]; [images, *places, channels] where `last`.
        weights: [channels, 1, *window]; [*window, 1, channels] where `last`.
        window: places of a window along each axis.
        stride: of windows, for each axis.
        padding: zeros ahead of the image, for each axis.
        dilation: distance of neighbouring taps, for each axis.
        last: whether channels are neighbours in memory.
    """

    image: Tensor
    weights: Tensor
    window: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    last: bool = False

    @property
    def taps(self) -> int:
        """Places of a window."""
        return count(self.window)


EXPONENTIALS = ("exponentials", "logsumexp")
"""Kinds of a maximum and a sum of exponentials below it. The maximum of the second one is NaN where an element is."""


@dataclass(eq=False, kw_only=True)
class Reduction(Anchor):
    """Numbers about all elements along the axes."""

    helper: Tensor | None = None
    """For `moments` the distance from the mean, for `EXPONENTIALS` the exponential of the distance from the maximum."""
    product: MatrixProduct | None = None
    """The product whose kernel shall do it on its tiles."""
    tile: int = 0
    """Neighbouring columns of the product that it goes along, or 0 where it goes along rows, the channels. Of the `moments` of columns the
    kernel gives the sum, the squares about the mean, and how many values there are."""
    group: int = 0
    """Neighbouring columns of the product that it goes along, where its results are used for each of them; else 0."""
    multiplied: bool = False
    """Whether it sums squared differences that PyTorch finds by a product of matrices."""
    windows: ChannelWindows | None = None
    """Where it is a convolution of each channel by itself: what it goes along."""

    @property
    def reduced(self) -> Tensor:
        """Where it is done on a product's tile: the value of the product's shape that it goes along."""
        return self.source.source if self.tile and isinstance(self.source, TensorView) else self.source


@dataclass(eq=False, kw_only=True)
class Scan(Anchor):
    """Running sums, products or extremes along one axis, or the elements along it in rising order, which no loop can find."""

    reverse: bool = False

    @property
    def whole(self) -> bool:
        """Whether a program must have a row at once."""
        return self.kind == "sort"


@dataclass(eq=False, kw_only=True)
class MatrixProduct(Anchor):
    """Products of matrices: sums of source [batch, rows, taps, depth] times right [batch, taps, depth, columns].

    A tap is a place of a convolution's window; other products have one. The result [batch, rows, columns] is shown in another shape.
    """

    right: Tensor
    locate: Callable[[Coordinates], Coordinates]
    """Where an element of [batch, rows, columns] lies in the result as it is shown; beyond its edge where it only fills up."""
    interleaved: bool = False
    """Whether neighbours along the batch are neighbours in memory."""
    apart: int = 1
    """Places between neighbours of a row where they are stored."""
    folded: int = 1
    """Rows of the sums that are neighbours in one row of the result: element `n` of row `m` is sum `n // folded` of row
    `m * folded + n % folded`."""
    window: bool = False
    """Whether the right operand is read through windows."""
    order: ColumnOrder | None = None
    """Of its columns, where reductions go along neighbouring ones."""
    together: int = 1
    """Neighbouring columns that such reductions go along, at most; a tile must have all of them."""
    reduced: bool = False
    """Whether reductions go along its rows; a tile must have all of them."""
    groups: int = 1
    """Of channels, in a convolution."""
    stored: bool = False
    """Whether its operands lie in memory, also those that are cheap to compute."""
    flops: float
    """Multiplications and additions, without those that only fill up."""
    node: str
    """Of the trace."""
    call: Tensor | None = None
    """What PyTorch's call gives, where it does more than the product: with its bias."""
    differences: bool = False
    """Whether its sums are of squared differences, and not of products: squared distances of rows and columns."""
    squares: tuple[Tensor, ...] = ()
    """The squared lengths of rows [batch, rows] and columns [batch, columns] from which it finds squared distances by products; without
    them it takes the differences one by one."""
    near: float = 0.0
    """Share of both squared lengths below which a squared distance is nearly rounding, and is found from differences."""
    pair: tuple[MatrixProduct, MatrixProduct] | None = None
    """This product and another one with the same left operand, where one kernel computes both."""

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return (self.source, self.right, *self.squares)

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Batch, rows, columns, taps, depth of the sums."""
        batch, rows, taps, depth = self.source.shape
        return batch, rows, self.right.shape[-1], taps, depth

    @property
    def outer(self) -> tuple[int, int, int]:
        """Batch, rows, columns of the result."""
        batch, rows, columns, _, _ = self.sizes
        return batch, rows // self.folded, columns * self.folded


@dataclass(eq=False, kw_only=True)
class AnchorResult(Tensor):
    """A result of an anchor, with the reduced axes left out; `which` tells several apart."""

    anchor: Anchor
    which: int = 0

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return (self.anchor,)


def align(at: Coordinates, shape: Shape) -> Coordinates:
    """The coordinates of an operand that broadcasts."""
    own = at[len(at) - len(shape) :]
    return tuple(ZERO if size == 1 else index for index, size in zip(own, shape, strict=True))


def list_reads(value: Tensor, at: Coordinates) -> list[Read]:
    """What an element of a value that is not in memory reads; the places of a `Lookup` count as any."""
    if isinstance(value, Formula):
        return [Read(one, align(at, one.shape)) for one in value.inputs]
    if isinstance(value, TensorView):
        return [Read(value.source, value.move(at), value.guards(at))]
    if isinstance(value, Joined):
        return [Read(part, moved, guards) for part, moved, guards in list_parts(value, at)]
    if isinstance(value, Lookup):
        places = [Read(place, where) for place, where in zip(value.places, value.where(at), strict=True)]
        unknown = [loaded(Name(f"{value.name}_{number}"), size) for number, size in enumerate(value.limits)]
        return [*places, Read(value.table, value.move(at, unknown))]
    return []


def recall_reads(value: Tensor, at: Coordinates) -> list[Read]:
    """As `list_reads`, for values that no longer change: it remembers what an element reads."""
    if isinstance(value, Lookup):  # goes by its name, which a writer may change
        return list_reads(value, at)
    found = value.known.get(at)
    if found is None:
        found = value.known[at] = list_reads(value, at)
    return found


def list_parts(value: Joined, at: Coordinates) -> list[tuple[Tensor, Coordinates, tuple[Guard, ...]]]:
    """The parts of a joined value, where each is read, and when."""
    found: list[tuple[Tensor, Coordinates, tuple[Guard, ...]]] = []
    start = 0
    for part in value.parts:
        length = part.shape[value.axis]
        moved = tuple(index - start if axis == value.axis else index for axis, index in enumerate(at))
        found.append((part, moved, (Guard(at[value.axis], start, start + length),)))
        start += length
    return found


def rename(value: Tensor, name: str) -> Tensor:
    """The value under another name, where it has none yet."""
    if not value.name:
        value.name = name
    return value


def base_of(value: Tensor) -> Tensor:
    """The value of which PyTorch can show this one as a view."""
    while isinstance(value, TensorView) and value.shown is not None:
        value = value.source
    return value


def is_constant(value: Tensor) -> bool:
    """Whether all elements of a value follow from numbers that forward writes out, and from no place."""
    if isinstance(value, TensorView):
        return value.guard is None and is_constant(value.source)
    return isinstance(value, Formula) and all(map(is_constant, value.inputs))


def is_rounded(value: Tensor) -> bool:
    """Whether a kernel has a value just as its type holds it: only arithmetic of 16 bits is done in a wider one."""
    if widen(value.dtype) == value.dtype:
        return True
    match value:
        case Formula(expression=Applied(Operator.CAST, (Applied(Operator.CAST, (_, Type(narrow))), Type("float32")))):
            return narrow == value.dtype
        case Formula(expression=Constant(number)) if not isinstance(number, bool):
            return math.isnan(number) or TYPES[value.dtype].round(number) == number
        case _:
            return False
