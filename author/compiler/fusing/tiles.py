"""Reductions behind a product that its kernel does on the tiles of its sums.

A pool whose windows do not overlap is found on the tile if the columns of the product are in the order of windows. A reduction along all
places of an image is found for blocks of neighbouring columns, and another kernel joins the blocks. If nothing else reads the convolution,
its own result is never stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.operands import find_fresh, is_short
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import BATCH, COLUMN, LINE, ProductSpace
from tritonsmith.author.compiler.fusing.swaps import Ends, swap_extremes, swap_means
from tritonsmith.author.compiler.fusing.users import Users, has_reshaped
from tritonsmith.author.compiler.ir.columns import BLOCK, ColumnOrder, choose_strip, fits_block
from tritonsmith.author.compiler.ir.indices import Coordinates, Guard, count, ravel, unravel, variable
from tritonsmith.author.compiler.ir.operators import A, B, C
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import (
    EXPONENTIALS,
    LEAST,
    MOST,
    ZERO_POINT,
    Formula,
    MatrixProduct,
    Reduction,
    Tensor,
    TensorView,
    rename,
)
from tritonsmith.author.compiler.lowering.pointwise import cast, formula, select_where
from tritonsmith.author.compiler.lowering.reductions import reduce, take
from tritonsmith.author.compiler.lowering.views import reshape
from tritonsmith.author.compiler.reading.reader import Forward

_KINDS = ("max", "min", "sum")
_ROWS = 128
"""Rows of a product that a tile can have, at most."""
_ACROSS = (*_KINDS, "argmax", "argmin", "moments", *EXPONENTIALS)
"""Reductions along channels."""
_GROUPED = {"float32": (*_KINDS, "moments", *EXPONENTIALS), "int64": ("max", "min")}
"""By type: reductions along a few neighbouring columns; the least of keys is what a kernel picks."""
_BLOCKED = ("max", "min", "argmax", "argmin")
"""Reductions along all columns of a product."""
_WORDS = {"max": ("most",), "min": ("least",), "sum": ("sums",)}
_MOMENTS = ("sums", "squares", "counts")
"""What the numbers of blocks are called."""
_WASTE = 1.25
"""Columns of an image with those that fill them up to whole blocks, over its places, at most (assumed; not measured)."""


def arrange_tiles(forward: Forward, card: CardModel) -> None:
    """Have reductions done on the tiles of products; convolutions get the order of columns in which theirs can be."""
    users = Users(forward)
    for product in users.products:
        if not product.window:
            _group_columns(product, users)
            _block_columns(product, users, card)
        elif product.order is None and not product.reduced and _has_parts(product, card):
            _Tiles(product, users, card).arrange()


def _group_columns(product: MatrixProduct, users: Users) -> None:
    """Have reductions along a few neighbouring columns done on the tile, as a normalisation by groups behind a linear layer."""
    _, _, columns, _, _ = product.sizes
    batch, rows, _ = product.outer
    place = product.locate((variable(BATCH, batch), variable(LINE, rows), variable(COLUMN, columns)))
    if product.folded > 1 or place[-1] != variable(COLUMN, columns) or product.shape[-1] != columns:
        return

    def goes_within(anchor: Reduction) -> bool:
        shape, lead = anchor.source.shape, anchor.axes[0]
        size = count(shape[lead:])
        fits = 1 < size <= BLOCK and size & (size - 1) == 0 and columns % size == 0 and anchor.source.size == product.size
        fits = fits and anchor.axes == tuple(range(lead, len(shape)))
        return fits and anchor.kind in _GROUPED.get(anchor.source.dtype, ())

    for anchor in users.list_elementwise(product, goes_within)[1]:
        anchor.product, anchor.group = product, count(anchor.source.shape[anchor.axes[0] :])
        product.together = max(product.together, anchor.group)


def _block_columns(product: MatrixProduct, users: Users, card: CardModel) -> None:
    """Have extremes along all columns found on the tiles, if nothing else reads the product's result: that is never stored then.

    A tile gives a number for each of its rows, and another kernel joins those of the tiles beside each other.
    """
    batch, rows, columns, _, _ = product.sizes
    own = (variable(BATCH, batch), variable(LINE, rows), variable(COLUMN, columns))
    in_order = ravel(product.locate(own), product.shape) == ravel(own, (batch, rows, columns))
    if product.folded > 1 or product.order is not None or product.together > 1 or not in_order or product.shape[-1] != columns:
        return
    if not product.differences and product.bytes <= card.cached_bytes:
        return

    def goes_along(anchor: Reduction) -> bool:
        last = len(product.shape) - 1
        return anchor.kind in _BLOCKED and anchor.source.shape == product.shape and anchor.axes == (last,)

    made, along = users.list_elementwise(product, goes_along)
    known = {id(one) for one in (*made, *along)}
    below = set[int]().union(*(users.list_above(one) for one in along))
    inner = [one for one in made if id(one) not in below and id(one) not in users.stored]
    if not along or len(inner) < len(made) or any(id(user) not in known for one in inner for user in users.of(one)):
        return
    padded = -(-columns // BLOCK) * BLOCK
    product.order = ColumnOrder(1, (columns,), (1,), (padded,), padded)
    product.together = BLOCK
    if padded > columns:
        right = product.right
        product.right = TensorView(
            shape=(*right.shape[:-1], padded), dtype=right.dtype, source=right, name=right.name, move=lambda at: at,
            guard=lambda at: (Guard(at[3], 0, columns),),
        )  # fmt: skip
        if product.squares:
            lengths = product.squares[1]
            wide = TensorView(
                shape=(lengths.shape[0], padded), dtype=lengths.dtype, source=lengths, name=lengths.name, move=lambda at: at,
                guard=lambda at: (Guard(at[1], 0, columns),),
            )  # fmt: skip
            product.squares = (product.squares[0], wide)
    for anchor in along:
        _join_blocks(anchor, product, users)


def _join_blocks(anchor: Reduction, product: MatrixProduct, users: Users) -> None:
    """Have an extreme along the columns of a product join what its tiles find."""
    value, kind, columns = anchor.source, anchor.kind.removeprefix("arg"), product.shape[-1]
    root = None
    if product.differences and isinstance(value, Formula) and value.expression == Op.SQRT(A):  # which rises
        root, value = value, value.inputs[0]
    lead = product.shape[:-1]
    blocks = -(-columns // BLOCK)
    views = TensorView(
        shape=(1, count(lead), blocks, BLOCK), dtype=value.dtype, source=value, name=value.name,
        move=lambda at: (*unravel(at[1], lead), at[2] * BLOCK + at[3]), guard=lambda at: (Guard(at[2] * BLOCK + at[3], 0, columns),),
        fill=LEAST if kind == "max" else MOST,
    )  # fmt: skip
    part = Reduction(
        shape=views.shape, dtype=anchor.dtype, source=views, axes=(3,), kind=anchor.kind, name=anchor.name, product=product, tile=BLOCK,
    )  # fmt: skip
    title = f"{value.name or 'value'}_{_WORDS[kind][0]}"
    found = reshape(rename(take(part, 0, value.dtype, keep=False), title), (*lead, blocks))
    axis = (len(lead),)
    best = reduce(found, axis, kind, value.dtype, keep=True)
    for result in users.results_of(anchor):
        if result.which == 0:
            joined = best if root is None else formula(Op.SQRT(A), best, like=root.dtype)
        else:
            place = reshape(rename(take(part, 1, "int32", keep=False), f"{title}_place"), (*lead, blocks))
            at_best = formula(Op.OR(Op.EQ(A, B), Op.NE(A, A)), found, best, like=value.dtype, result="bool")  # the first NaN is best
            joined = cast(reduce(select_where(at_best, place, columns, "int32", found.shape), axis, "min", "int32"), result.dtype)
        users.replace(result, reshape(joined, result.shape))


def _has_parts(product: MatrixProduct, card: CardModel) -> bool:
    """Whether the image is split ahead of the product: its channels lie side by side then, and places may be read in any order."""
    region = ProductRegion(card=card, product=product)
    for operand in product.operands:
        base: Tensor = operand
        while isinstance(base, TensorView):
            base = base.source
        region.reads[id(base)] = base
    return bool(find_fresh(region))


def _is_plain(product: MatrixProduct) -> bool:
    """Whether a product is a convolution whose columns are all places of all images in order."""
    batch, filters, columns, _, _ = product.sizes
    places = (product.shape[0], *product.shape[2:])
    if not product.window or product.folded > 1 or columns != count(places) or product.shape[1] != batch * filters:
        return False
    own, row = variable(BATCH, batch), variable(LINE, filters)
    image, *place = unravel(variable(COLUMN, columns), places)
    return product.locate((own, row, variable(COLUMN, columns))) == (image, own * filters + row, *place)


@dataclass
class _Tiles:
    """What is made of a convolution."""

    product: MatrixProduct
    users: Users
    card: CardModel
    pools: list[Reduction] = field(default_factory=list)
    """Pools of what elementwise work makes of its sums."""
    rows: list[tuple[Reduction, Tensor]] = field(default_factory=list)
    """Reductions along all places of an image, and what they reduce."""
    others: list[Tensor] = field(default_factory=list)
    """What reads an element of its result for other ends."""

    def arrange(self) -> None:
        """Choose what is done on the tile."""
        made, across = self.users.list_elementwise(self.product, self._goes_across)
        for anchor in across:
            anchor.product, self.product.reduced = self.product, True
        if not _is_plain(self.product):
            return
        self._sort(made, across)
        if self.others:
            ends = Ends(self.product, made, self.users, {id(one) for one in (*across, *(row for row, _ in self.rows))})
            extremes = swap_extremes(ends)
            mean = None if extremes else swap_means(ends, self._goes_along)
            self.pools, self.rows = [*self.pools, *extremes], [*self.rows, *([mean] if mean else [])]
            self.others = [] if extremes or mean else self.others
        sizes = {one.source.windows for one in self.pools if isinstance(one.source, TensorView)}
        if self.others or len(sizes) > 1:
            self.pools = []
        if self.others and not self._saves_reading():
            self.rows = []
        if self.pools or self.rows:
            self._order(next(iter(sizes)) if self.pools else (1,) * len(self._places))
            self._apply()

    @property
    def _places(self) -> tuple[int, ...]:
        return self.product.shape[2:]

    def _goes_across(self, anchor: Reduction) -> bool:
        """Whether a reduction goes along the channels, of which a tile has all."""
        product = self.product
        rows, space = product.sizes[1], ProductSpace(product)
        image, channel, *place = space.place
        alone = channel == variable(LINE, product.shape[1]) and not any(LINE in one.names for one in (image, *place))
        fits = alone and product.groups == 1 and product.shape[1] > 1 and rows <= _ROWS
        images, channels, *places = product.shape
        shapes = {(images, channels, *places): 1, (images, *places, channels): 1 + len(places), (images, count(tuple(places)), channels): 2}
        fits = fits and anchor.source.dtype == "float32" and anchor.kind in _ACROSS
        return fits and anchor.axes == (shapes.get(anchor.source.shape),)

    def _sort(self, made: list[Tensor], across: list[Reduction]) -> None:
        known = {id(one) for one in (*made, *across)}
        for value in made:
            if id(value) in self.users.stored:
                self.others.append(value)
            for user in self.users.of(value):
                if id(user) not in known:
                    self._add(value, user)

    def _add(self, value: Tensor, user: Tensor) -> None:
        if isinstance(user, TensorView) and fits_block(user.windows, self._places):
            pools = self.users.of(user)
            if len(pools) == 1 and isinstance(pools[0], Reduction) and pools[0].kind in _KINDS:
                self.pools.append(pools[0])
                return
        whole = isinstance(user, TensorView) and user.windows == self._places
        seen = self.users.of(user) if whole or has_reshaped(user) else [user]
        for one in seen:
            if isinstance(one, Reduction) and self._goes_along(one):
                self.rows.append((one, value))
            else:
                self.others.append(one)

    def _goes_along(self, anchor: Reduction) -> bool:
        """Whether a reduction goes along all places of an image, and maybe along channels or images as well."""
        shape, rank = anchor.source.shape, len(self._places)
        number = count(self._places)
        if anchor.kind not in (*_KINDS, "moments") or anchor.dtype != "float32" or -(-number // BLOCK) * BLOCK > _WASTE * number:
            return False
        if shape[-rank:] == self._places:
            return all(len(shape) - axis - 1 in anchor.axes for axis in range(rank))
        return len(shape) - 1 in anchor.axes and shape[-1] % count(self._places) == 0

    def _saves_reading(self) -> bool:
        """Whether the result, which is stored all the same, would be read from memory once more for a reduction."""
        along = [count(tuple(one.source.shape[axis] for axis in one.axes)) for one, _ in self.rows]
        return self.product.bytes > self.card.cached_bytes and any(one > self.card.long_row for one in along)

    def _order(self, window: tuple[int, ...]) -> None:
        """Put the columns in the order of windows."""
        product, places = self.product, self._places
        last = [one.source for one in self.pools if isinstance(one.source, TensorView)]
        pooled = last[0].shape[2 : 2 + len(places)] if last else places
        grid = tuple(-(-size // own) for size, own in zip(places, window, strict=True)) if self.rows else pooled
        strip = choose_strip(window, grid) if is_short(product, self.card) else 1
        grid = (*grid[:-1], -(-grid[-1] // strip) * strip)
        slots = count(grid) * count(window)
        order = ColumnOrder(product.shape[0], places, window, grid, -(-slots // BLOCK) * BLOCK if self.rows else slots, strip)
        filters, right = product.sizes[1], product.right
        product.right = TensorView(
            shape=(*right.shape[:-1], order.columns), dtype=right.dtype, source=right, name=right.name,
            move=lambda at: (*at[:3], order.ravel(order.find(at[3]))), guard=lambda at: order.list_guards(at[3]),
        )  # fmt: skip

        def locate(at: Coordinates) -> Coordinates:
            image, *place = order.find(at[2])
            return (image, at[0] * filters + at[1], *place)

        product.locate, product.order = locate, order
        product.together = BLOCK if self.rows or strip > 1 else order.area

    def _apply(self) -> None:
        """Have reductions go along neighbouring columns."""
        for anchor, value in self.rows:
            self._go_by_blocks(anchor, value)
        for anchor in self.pools:
            assert isinstance(anchor.source, TensorView)
            anchor.product, anchor.tile = self.product, count(anchor.source.windows)

    def _go_by_blocks(self, anchor: Reduction, value: Tensor) -> None:
        """Have a reduction join what blocks of columns give."""
        order, shape = self.product.order, anchor.source.shape
        assert order is not None
        blocks = order.slots // BLOCK
        views = TensorView(
            shape=(*self.product.shape[:2], blocks, BLOCK), dtype=value.dtype, source=value, name=value.name,
            move=lambda at: (at[0], at[1], *order.find(at[0] * order.slots + at[2] * BLOCK + at[3])[1:]),
            guard=lambda at: order.list_guards(at[0] * order.slots + at[2] * BLOCK + at[3]),
            fill={"max": LEAST, "min": MOST}.get(anchor.kind, ZERO_POINT),
        )  # fmt: skip
        part = Reduction(
            shape=views.shape, dtype=anchor.dtype, source=views, axes=(3,), kind=anchor.kind, name=anchor.name, product=self.product,
            tile=BLOCK,
        )  # fmt: skip
        rank = len(self._places)
        lead, wide = shape[:-1], shape[-1] // count(self._places) * blocks
        if shape[-rank:] == self._places:
            lead, wide = shape[:-rank], blocks
        axes = (*(axis for axis in anchor.axes if axis < len(lead)), len(lead))

        def show(which: int) -> Tensor:
            found = take(part, which, anchor.dtype, keep=False)
            return reshape(rename(found, f"{value.name or 'value'}_{_WORDS.get(anchor.kind, _MOMENTS)[which]}"), (*lead, wide))

        results = self.users.results_of(anchor)
        if anchor.kind != "moments":
            joined = Reduction(shape=(*lead, wide), dtype=anchor.dtype, source=show(0), axes=axes, kind=anchor.kind, name=anchor.name)
            for one in results:
                one.anchor = joined
            return
        length = count(tuple(shape[axis] for axis in anchor.axes))
        total, squares = show(0), show(1)
        counted: Tensor | float = float(BLOCK) if order.slots == count(self._places) else show(2)
        added = reduce(total, axes, "sum", anchor.dtype, keep=True)
        mean = rename(formula(A / B, added, length, like=anchor.dtype), "mean")
        apart = formula(Op.GROUP(A - B * C), total, counted, mean, like=anchor.dtype)
        more = formula(A + B * B / Op.FMAX(C, 1.0), squares, apart, counted, like=anchor.dtype)
        found = mean, reduce(more, axes, "sum", anchor.dtype, keep=True)
        for one in results:
            self.users.replace(one, reshape(found[one.which], one.shape))
