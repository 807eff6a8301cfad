"""Pairs of 16-bit products of the same rows that meet in one value, as in gated layers (SwiGLU, GEGLU, GLU): one kernel computes both.

The two are two calls, or two halves of the columns of one call. A kernel that has a tile of each stores the value in which they meet, so
neither product is stored and read again. One box of a tensor descriptor has lines of both right operands (`described.py`): halves of one
weight need no copy, and two weights are kept in one buffer.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.described import can_pair
from tritonsmith.author.compiler.fusing.integers import read_integers
from tritonsmith.author.compiler.fusing.users import Users, has_reshaped
from tritonsmith.author.compiler.ir.indices import variable
from tritonsmith.author.compiler.ir.torch_calls import Cut
from tritonsmith.author.compiler.ir.values import (
    AnchorResult,
    Formula,
    Held,
    MatrixProduct,
    Tensor,
    TensorView,
    base_of,
)  # fmt: skip
from tritonsmith.author.compiler.lowering.products import take_product
from tritonsmith.author.compiler.lowering.views import cut, reshape
from tritonsmith.author.compiler.reading.reader import Forward
from tritonsmith.author.types import AS_THEY_ARE

_SIDE = 128
"""Sides of a tile of either product."""
_MOST_STEPS = 16
"""Values of elementwise work between a product and the value in which it meets the other one, where several are made of it."""


def pair_products(forward: Forward, card: CardModel, apart: Collection[str] = ()) -> None:
    """Have products that meet in one value be pairs, where that takes less than the products alone and a pass behind them may.

    Args:
        forward: its values, which are changed.
        card: that it is cut for; nothing is changed for one on which such kernels are not taken.
        apart: nodes whose products stay by themselves.
    """
    if card.fits.products.gated <= 0.0:
        return
    users = Users(forward)
    products = [one for one in users.products if _may_pair(one, card) and one.node not in apart and one.pair is None]
    ends = [end for product in products for end in _find_ends(product, users)]
    taken = set[int]()
    for place, first in enumerate(ends):
        for second in ends[place + 1 :]:
            if taken & {id(first.top), id(second.top)} or not _meet(first, second, card):
                continue
            taken |= {id(first.top), id(second.top)}
            made = (first.take(users), second.take(users))
            for one in made:
                one.pair, one.stored = made, True


@dataclass(frozen=True)
class _End:
    """A product, or a half of its columns, and what is made of it alone.

    Args:
        product: the product.
        start: its first column.
        columns: how many.
        way: values from its result, or from the view of the half, on; each is made of the one ahead of it alone.
        below: of a half: the values from the product's result up to the one that the view shows a half of.
    """

    product: MatrixProduct
    start: int
    columns: int
    way: tuple[Tensor, ...]
    below: tuple[Tensor, ...] = ()

    @property
    def top(self) -> Tensor:
        """The first value of its own."""
        return self.way[0]

    def take(self, users: Users) -> MatrixProduct:
        """The product by itself; of a half, one with a half of the columns, from which the view's place is computed."""
        if not self.below:
            return self.product
        whole = self.product
        right = cut(whole.right, len(whole.right.shape) - 1, self.start, self.columns)
        made = take_product(
            whole.source, right, (*whole.shape[:-1], self.columns), whole.locate, whole.name, whole.node, flops=whole.flops / 2,
        )  # fmt: skip
        assert isinstance(made, AnchorResult) and isinstance(made.anchor, MatrixProduct), "the product is one of many columns"
        value: Tensor = made
        for under, above in itertools.pairwise(self.below):
            value = self._repeat(above, under, value)
        users.replace(self.top, value)
        return made.anchor

    def _repeat(self, value: Tensor, below: Tensor, half: Tensor) -> Tensor:
        """What is made of a half as the value is made of the whole."""
        if isinstance(value, TensorView):
            return reshape(half, (*value.shape[:-1], self.columns))
        assert isinstance(value, Formula), "the way has no other values"
        whole = value.shape[-1]
        inputs = tuple(
            half if one is below else cut(one, len(one.shape) - 1, self.start, self.columns) if one.shape[-1:] == (whole,) else one
            for one in value.inputs
        )
        return replace(value, shape=(*value.shape[:-1], self.columns), inputs=inputs)


def _may_pair(product: MatrixProduct, card: CardModel) -> bool:
    """Whether a product is one of plain 16-bit matrices that has columns as its last axis."""
    batch, rows, columns, taps, _ = product.sizes
    plain = not (product.window or product.interleaved or product.reduced or product.differences or product.squares or product.order)
    plain = plain and batch * taps * product.folded * product.apart * product.together == 1 and bool(product.node)
    if not plain or product.source.dtype not in AS_THEY_ARE or product.shape[-1] != columns or read_integers(product, card) is not None:
        return False
    at = product.locate((variable("batch", batch), variable("m", rows), variable("n", columns)))
    return at[-1] == variable("n", columns)


def _find_ends(product: MatrixProduct, users: Users) -> list[_End]:
    """The product as one end, or the two halves of its columns where everything reads these."""
    results = users.results_of(product)
    if len(results) != 1 or len(users.of(product)) != 1:
        return []
    way = _climb(results[0], users)
    readers = users.of(way[-1])
    halves = sorted(start for one in readers if (start := _find_half(one, way[-1])) is not None)
    columns = product.sizes[2]
    if len(readers) != len(halves) or halves != [0, columns // 2]:
        return [_End(product, 0, columns, way)]
    if id(way[-1]) in users.stored or any(not _keeps_columns(one, under, columns) for under, one in itertools.pairwise(way)):
        return []
    views = {_find_half(one, way[-1]): one for one in readers}
    return [_End(product, start, columns // 2, _climb(views[start], users), way) for start in halves]


def _keeps_columns(value: Tensor, under: Tensor, columns: int) -> bool:
    """Whether a value is made, column by column, of the one under it and of nothing else that is computed."""
    beside = [base_of(one) for one in value.operands if one is not under]
    return value.shape[-1] == columns and all(isinstance(one, Held) for one in beside)


def _climb(value: Tensor, users: Users) -> tuple[Tensor, ...]:
    """Values from this one on; everything that is made of one of them goes into the next one."""
    way = [value]
    while id(way[-1]) not in users.stored and (reader := _find_next(way[-1], users)) is not None:
        if not (isinstance(reader, Formula) and reader.size == value.size or has_reshaped(reader)):
            break
        way.append(reader)
    return tuple(way)


def _find_next(value: Tensor, users: Users) -> Tensor | None:
    """The value into which everything goes that is made of this one, elementwise and in some steps, as for `g * sigmoid(g)`; or None."""
    inside = {id(value)}
    waiting = {id(one): one for one in users.of(value)}
    for _ in range(_MOST_STEPS):
        if len(waiting) < 2:  # noqa: PLR2004 - all ways meet
            return next(iter(waiting.values()), None)
        above = users.list_above(value)
        ready = next((
            one for one in waiting.values() if isinstance(one, Formula) and one.size == value.size and id(one) not in users.stored
            and all(id(operand) in inside or id(operand) not in above for operand in one.operands)
        ), None)  # fmt: skip
        if ready is None:
            return None
        inside.add(id(ready))
        del waiting[id(ready)]
        waiting |= {id(one): one for one in users.of(ready)}
    return None


def _find_half(value: Tensor, whole: Tensor) -> int | None:
    """Where a view of a half of the last axis begins; None for anything else."""
    if not isinstance(value, TensorView) or not isinstance(value.shown, Cut) or value.source is not whole:
        return None
    shown, size = value.shown, whole.shape[-1]
    last = shown.axis == len(whole.shape) - 1 and shown.step == 1 and 2 * (shown.end - shown.start) == size
    return shown.start if last and shown.start in (0, size // 2) else None


def _meet(first: _End, second: _End, card: CardModel) -> bool:
    """Whether two products have the same left operand and sizes, and a value is made of both that nothing else is."""
    one, other = first.product, second.product
    if one.source.shape != other.source.shape or first.columns != second.columns or one.dtype != other.dtype:
        return False
    known = {id(value) for value in second.way}
    meeting = next((value for value in first.way[1:] if id(value) in known), None)
    if not isinstance(meeting, Formula) or not _is_large(first, card):
        return False
    return can_pair((one, other), (first.start, second.start), card)


def _is_large(end: _End, card: CardModel) -> bool:
    """Whether tiles of 128 x 128 of both products keep every processor busy."""
    return -(-end.product.sizes[1] // _SIDE) * -(-end.columns // _SIDE) >= card.processors
