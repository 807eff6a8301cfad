"""Regions: what one kernel computes, or one PyTorch call."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.space import (
    ACROSS,
    BATCH,
    COLUMN,
    DOWN,
    LINE,
    TAP,
    ColumnSpace,
    GroupSpace,
    LastSpace,
    ProductSpace,
    Space,
    TileSpace,
    anchor_coordinates,
    list_below,
)
from tritonsmith.author.compiler.ir.attention import Attention
from tritonsmith.author.compiler.ir.indices import Coordinates, variable
from tritonsmith.author.compiler.ir.recurrence import LastCell, Recurrence
from tritonsmith.author.compiler.ir.scatter import Scatter
from tritonsmith.author.compiler.ir.stacks import StackCall
from tritonsmith.author.compiler.ir.values import (
    Anchor,
    Formula,
    LibraryCall,
    Lookup,
    MatrixProduct,
    Reduction,
    Scan,
    Tensor,
    TensorView,
    is_rounded,
)

_CHAINED = 128
"""Terms of a sum that are so few that tensor cores may add all its large products. With 72 of them the error is that of sums by block, and
convolutions took 0.84 to 0.96 of the time; with 576 it is four times as large (KernelBench level 2: 10, 25, 65, 82, 85; H200). They may not
where a mean of many places follows: errors of rounding to nearest nearly vanish in it, and those of rounding towards zero stay. A strict
verdict refused such a kernel (level 2, 67)."""


def _strip_views(value: Tensor) -> Tensor:
    """The value of which this one shows elements."""
    while isinstance(value, TensorView):
        value = value.source
    return value


@dataclass(eq=False, kw_only=True)
class WorkRegion:
    """One step of forward: what it stores, and what it reads from memory."""

    card: CardModel
    """The card that its kernel is for."""
    stores: list[Tensor] = field(default_factory=list)
    reads: dict[int, Tensor] = field(default_factory=dict)
    evaluated: dict[int, Tensor] = field(default_factory=dict)
    """Elementwise values that it computes."""
    name: str = ""
    free: bool = False
    """Whether its kernel takes from forward how many rows or elements there are."""

    @property
    def bytes(self) -> int:
        """What it moves at least."""
        looked = self._count_looked_up()
        read = sum(min(one.bytes, looked.get(key, one.bytes)) for key, one in self.reads.items())
        return read + sum(one.bytes for one in self.stores)

    def _count_looked_up(self) -> dict[int, int]:
        """By value that is read at places which other values say, and nowhere else: bytes of the elements that are asked for."""
        found: dict[int, int] = {}
        for value in self.evaluated.values():
            if isinstance(value, Lookup):
                base = _strip_views(value.table)
                found[id(base)] = found.get(id(base), 0) + value.bytes
        if not found:
            return found
        others = [*self.evaluated.values(), *self.whole]
        direct = {
            id(_strip_views(one)) for user in others if not isinstance(user, TensorView)
            for one in (user.places if isinstance(user, Lookup) else user.operands)
        } | {id(_strip_views(one)) for one in self.stores if isinstance(one, TensorView)}  # fmt: skip
        return {key: size for key, size in found.items() if key not in direct}

    @property
    def flops(self) -> float:
        """Arithmetic of its products; 0 for a region that is bound by memory."""
        return 0.0

    @property
    def whole(self) -> tuple[Tensor, ...]:
        """What it does as a whole."""
        return ()

    @property
    def rounded(self) -> frozenset[int]:
        """Elements of 16 bits that it stores, and of which it makes more: what is made of them is made of what others see."""
        used = {id(operand) for one in (*self.evaluated.values(), *self.whole) for operand in one.operands}
        return frozenset(id(one) for one in self.stores if id(one) in used and isinstance(one, Formula) and not is_rounded(one))


@dataclass(eq=False, kw_only=True)
class AttentionRegion(WorkRegion):
    """Attention, key by key: no score is stored."""

    attention: Attention

    @property
    def flops(self) -> float:
        """Of both products."""
        return self.attention.flops


@dataclass(eq=False, kw_only=True)
class RecurrentRegion(WorkRegion):
    """All steps of a recurrent layer in one direction."""

    recurrence: Recurrence
    cell: LastCell | None = None

    @property
    def flops(self) -> float:
        """Of the products with the state."""
        return self.recurrence.flops


@dataclass(eq=False, kw_only=True)
class CallRegion(WorkRegion):
    """A PyTorch call."""

    call: LibraryCall

    @property
    def library(self) -> bool:
        """Whether PyTorch does the work."""
        return True


@dataclass(eq=False, kw_only=True)
class StackRegion(CallRegion):
    """A module that kernels of another family compute; forward calls its class."""

    call: StackCall

    @property
    def library(self) -> bool:
        """The kernels are the module's own."""
        return False


@dataclass(eq=False, kw_only=True)
class PointwiseRegion(WorkRegion):
    """Values of one size, element by element."""

    size: int


@dataclass(eq=False, kw_only=True)
class ScatterRegion(WorkRegion):
    """Elements that meet others at places that are computed."""

    scatter: Scatter


@dataclass(eq=False, kw_only=True)
class RowRegion(WorkRegion):
    """Reductions and scans along rows, with the elementwise work around them."""

    space: Space
    anchors: list[Anchor] = field(default_factory=list)
    usual_rows: int = 0
    """Rows that its kernel is laid out for; 0 for those that it has."""

    @property
    def rows(self) -> int:
        """Rows that its kernel is laid out for."""
        return self.usual_rows or self.space.rows

    @property
    def spaces(self) -> list[Space]:
        """What it may store."""
        return [self.space]

    @property
    def whole(self) -> tuple[Tensor, ...]:
        """Its reductions and scans."""
        return tuple(self.anchors)

    @property
    def rounded(self) -> frozenset[int]:
        """As for any region; but numbers about rows stay in fp32."""
        rows = {id(one) for one in self.stores if (found := self.space.find(one.shape)) and not found[1]}
        return super().rounded - rows

    @property
    def split(self) -> bool:
        """Whether programs share rows: there are too few of them to keep a card busy, and they are long."""
        few = self.rows <= self.card.busy_rows and self.space.length >= self.card.fits.rows.split
        return few and not any(isinstance(anchor, Scan) for anchor in self.anchors)

    @property
    def results(self) -> dict[int, Coordinates]:
        """By anchor: the coordinates of its results."""
        return {id(anchor): self._place(anchor) for anchor in self.anchors}

    def _place(self, anchor: Anchor) -> Coordinates:
        return anchor_coordinates(anchor)[1]


@dataclass(eq=False, kw_only=True)
class ProductRegion(WorkRegion):
    """A product with the elementwise work on its operands and on its result."""

    product: MatrixProduct
    partner: MatrixProduct | None = None
    """A second product with the same left operand and the same sizes, computed on the same tile."""
    tiled: list[Reduction] = field(default_factory=list)
    """Reductions along neighbouring columns, or along rows, which it does on the tile."""
    split: bool = False
    twins: tuple[ProductRegion, ProductRegion] | None = None
    """The region at the usual size of the forward's leading axis and at a longer one, where its kernel shall take any size."""

    @property
    def usual(self) -> ProductRegion:
        """The region whose sizes its kernel is laid out for."""
        return self.twins[0] if self.twins else self

    @property
    def free_axis(self) -> str:
        """The variable whose size forward says; empty where its kernel has one size."""
        here, there = (one.product.sizes for one in self.twins or (self, self))
        changed = [name for name, *sizes in zip((BATCH, LINE, COLUMN, TAP, ACROSS), here, there, strict=True) if len({*sizes}) > 1]
        return changed[0] if len(changed) == 1 and changed[0] in (BATCH, LINE, COLUMN) else ""

    @property
    def chained(self) -> bool:
        """Whether tensor cores may add all its large products: it has few, and no mean of many places follows."""
        _, _, _, taps, depth = self.product.sizes
        places = (one for one in self.tiled if one.tile and isinstance(one.source, TensorView) and not one.source.windows)
        return taps * depth <= _CHAINED and all(one.kind != "sum" for one in places)

    @property
    def flops(self) -> float:
        """Of its products."""
        return sum(one.flops for one in self.products)

    @property
    def products(self) -> list[MatrixProduct]:
        """Its product, and the second one of a pair."""
        return [self.product, *([self.partner] if self.partner else [])]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the trace that its products are of, each once."""
        return tuple(dict.fromkeys(one.node for one in self.products if one.node))

    @property
    def space(self) -> ProductSpace:
        """What it iterates over."""
        return ProductSpace(self.product)

    @property
    def spaces(self) -> list[ProductSpace | LastSpace | TileSpace | ColumnSpace | GroupSpace]:
        """What it may store: an element of the result, or a number of several neighbours."""
        last = [LastSpace(self.product)] if self.product.window else []
        return [self.space, *last, *(self.space_of(one) for one in self.tiled)]

    def space_of(self, anchor: Reduction) -> TileSpace | ColumnSpace | GroupSpace:
        """The numbers that a reduction gives."""
        if anchor.group:
            return GroupSpace(self.product, anchor)
        return TileSpace(self.product, anchor) if anchor.tile else ColumnSpace(self.product)

    @property
    def anchors(self) -> list[Anchor]:
        """What it does as a whole."""
        return [*self.products, *self.tiled]

    @property
    def whole(self) -> tuple[Tensor, ...]:
        """The same."""
        return tuple(self.anchors)

    @property
    def results(self) -> dict[int, Coordinates]:
        """By anchor: the coordinates of its results."""
        found = {id(one): ProductSpace(one).place for one in self.products}
        for one in self.tiled:
            shape = tuple(size for axis, size in enumerate(one.source.shape) if axis not in one.axes)
            place = self.space_of(one).find(shape)
            assert place is not None, "the cut takes no other reduction in"
            found[id(one)] = place[0]
        return found

    @property
    def left(self) -> Coordinates:
        """Where the left operand is read."""
        batch, rows, _, taps, depth = self.product.sizes
        return variable(BATCH, batch), variable(LINE, rows), variable(TAP, taps), variable(ACROSS, depth)

    @property
    def right(self) -> Coordinates:
        """Where the right operand is read."""
        batch, _, columns, taps, depth = self.product.sizes
        return variable(BATCH, batch), variable(TAP, taps), variable(DOWN, depth), variable(COLUMN, columns)

    @property
    def lines(self) -> tuple[Coordinates, Coordinates]:
        """Where numbers about rows and about columns are read, [batch, lines]."""
        batch, rows, columns, _, _ = self.product.sizes
        own = variable(BATCH, batch)
        return (own, variable(LINE, rows)), (own, variable(COLUMN, columns))


AnchoredRegion = RowRegion | ProductRegion
"""Regions that do something as a whole."""


def depends(region: WorkRegion | None, on: WorkRegion, homes: dict[int, WorkRegion]) -> bool:
    """Whether a region needs, however far up, what another one stores; `homes`: by value the region that stores it."""
    seen: set[int] = set()
    todo = [region]
    while todo:
        user = todo.pop()
        if user is None or id(user) in seen:
            continue
        if user is on:
            return True
        seen.add(id(user))
        todo += [homes.get(key) for key in user.reads]
    return False


def order_regions(regions: Iterable[WorkRegion], homes: dict[int, WorkRegion]) -> list[WorkRegion]:
    """The regions, each behind what it reads; `homes`: by value the region that stores it."""
    done: list[WorkRegion] = []
    waiting = list(regions)
    while waiting:
        ready = next(region for region in waiting if all(homes.get(key) in (None, region) or homes[key] in done for key in region.reads))
        waiting.remove(ready)
        done.append(ready)
    return done


def list_places(region: RowRegion, more: Collection[Tensor] = ()) -> list[Tensor]:
    """Stored values that have an element for each place; `more`: values that it might store besides."""
    return [value for value in (*region.stores, *more) if (place := region.space.find(value.shape)) and place[1]]


def count_passes(region: RowRegion, more: Collection[Tensor] = ()) -> int:
    """How often a kernel goes along a row that it cannot hold; `more`: values that it might store besides."""
    known = {id(anchor) for anchor in region.anchors}
    dependent = any(key in known for anchor in region.anchors for key in _list_anchors(anchor.source, region))
    return 1 + dependent + any(_list_anchors(value, region) for value in list_places(region, more))


def count_long_passes(region: RowRegion, more: Collection[Tensor] = ()) -> int:
    """Passes over memory: rows that are too long for the chip are read once to find their numbers, and once more to use them."""
    return 2 if region.space.length > region.card.long_row and count_passes(region, more) > 1 else 1


def _list_anchors(value: Tensor, region: RowRegion) -> list[int]:
    """Reductions whose results a value is made of."""
    _, anchors = list_below(value, lambda base: id(base) in region.reads)
    return [id(anchor) for anchor in anchors if isinstance(anchor, Reduction)]
