"""Operands of products that change with every call, and whether a pass that splits them ahead of the product pays.

Such a pass stores fp16 parts with the depth of the product as the last axis: channels last, for an image. Then tiles go from memory to the
tensor cores as they are, and each value is split once instead of once for every tile that reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import ACROSS, DOWN
from tritonsmith.author.compiler.ir.indices import Coordinates, Guard, Shape, Variable, ravel
from tritonsmith.author.compiler.ir.values import ZERO_POINT, Held, MatrixProduct, Tensor, TensorView
from tritonsmith.author.types import IN_PARTS

_ALIGNED = 8
"""fp16 values of 16 bytes, which a thread loads at once."""
_MOST_PLACES = 128
"""Places of the operand that one line of the product reads; their largest values are looked at together."""


@dataclass(frozen=True)
class FreshOperand:
    """An operand that can be split ahead of its product in every call.

    Args:
        side: `left` or `right`.
        base: the value that is split.
        views: from the operand to the base.
        axis: of the base, along which the depth runs.
        steps: neighbours along another axis that one tap reads.
    """

    side: str
    base: Tensor
    views: tuple[TensorView, ...]
    axis: int
    steps: int

    def follow(self, at: Coordinates) -> tuple[Coordinates, tuple[Guard, ...]]:
        """Where the base is read for an element of the operand, and when."""
        return _follow(self.views, at)

    @property
    def others(self) -> Shape:
        """The other axes of the base."""
        return tuple(size for axis, size in enumerate(self.base.shape) if axis != self.axis)

    @property
    def places(self) -> int:
        """Lines of the base along the axis."""
        return self.base.size // max(1, self.depth)

    @property
    def depth(self) -> int:
        """Elements along the axis."""
        return self.base.shape[self.axis]

    @property
    def padded(self) -> int:
        """The same in whole loads."""
        return -(-self.depth // _ALIGNED) * _ALIGNED

    def place_last(self, at: Coordinates) -> Coordinates:
        """Coordinates of the base with the axis behind all others."""
        return (*(index for axis, index in enumerate(at) if axis != self.axis), at[self.axis])


def is_short(product: MatrixProduct, card: CardModel) -> bool:
    """Whether it is a convolution with so few weights that a program can hold the parts of all, and multiply the whole depth at once."""
    batch, rows, _, taps, depth = product.sizes
    (fewest, most), (least, deepest) = card.fits.tiles.once_filters, card.fits.tiles.once_depth
    return product.window and batch == product.folded == 1 and fewest <= rows <= most and least <= taps * depth <= deepest


def find_kept(region: ProductRegion) -> str:
    """Which operand is a parameter as it is, or a view of one."""
    for side, value in (("left", region.product.source), ("right", region.product.right)):
        base = value
        while isinstance(base, TensorView):
            base = base.source
        if isinstance(base, Held) and not base.given:
            return side
    return ""


def has_rim(region: ProductRegion) -> bool:
    """Whether windows go beyond the edge of what they are read from."""
    value, at = region.product.right, region.right
    while isinstance(value, TensorView):
        if value.guards(at):
            return True
        at = value.move(at)
        value = value.source
    return False


def find_fresh(region: ProductRegion) -> dict[str, FreshOperand]:
    """By side: the operands that a pass ahead of the product splits. Nothing where the product does too little with one of them."""
    return _read_operands(region) if _is_worth(region.usual) else {}


def _is_worth(region: ProductRegion) -> bool:
    """Whether the product does enough with each operand."""
    taps, flops, fits = region.product.sizes[3], region.product.flops, region.card.fits.products
    found = _read_operands(region).values()
    return all(flops >= (fits.window_flops if one.steps * taps > 1 else fits.matrix_flops) * one.base.size for one in found)


def _read_operands(region: ProductRegion) -> dict[str, FreshOperand]:
    """By side: the operands that are no parameters; nothing where one of them cannot be split ahead of the product."""
    product, kept = region.product, find_kept(region)
    if product.source.dtype not in IN_PARTS:
        return {}
    found: dict[str, FreshOperand] = {}
    for side, value, at, name in (("left", product.source, region.left, ACROSS), ("right", product.right, region.right, DOWN)):
        if side == kept:
            continue
        operand = _read_operand(side, value, at, name, lambda one: id(one) in region.reads, product.sizes[-1])
        if operand is None or operand.steps * product.sizes[3] > _MOST_PLACES:
            return {}
        found[side] = operand
    return found


def _follow(views: tuple[TensorView, ...], at: Coordinates) -> tuple[Coordinates, tuple[Guard, ...]]:
    guards: tuple[Guard, ...] = ()
    for view in views:
        guards += view.guards(at)
        at = view.move(at)
    return at, guards


def _read_operand(
    side: str, value: Tensor, at: Coordinates, name: str, in_memory: Callable[[Tensor], bool], depth: int
) -> FreshOperand | None:
    """The operand, if its depth runs along an axis of the base; None otherwise."""
    views: list[TensorView] = []
    while isinstance(value, TensorView) and not in_memory(value) and not value.widened:
        views.append(value)
        value = value.source
    moved, guards = _follow(tuple(views), at)
    if value.dtype not in IN_PARTS or any(view.fill != ZERO_POINT for view in views if view.guard) or depth < 2:
        return None
    for axis, index in enumerate(moved):
        if name not in index.names:
            continue
        operand = FreshOperand(side, value, tuple(views), axis, 1)
        place = ravel(operand.place_last(moved), (*operand.others, operand.padded))
        own = [term for term in place.terms if name in term[0].names]
        if own == [(Variable(name, depth), 1)]:
            beside = any(name in one.names for other, one in enumerate(moved) if other != axis)
            steps = -(-depth // operand.depth) if beside else 1
            plain = all(name not in guard.names for guard in guards) or beside
            return FreshOperand(side, value, tuple(views), axis, steps) if plain else None
    return None
