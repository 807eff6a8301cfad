"""Products whose operands the copy engine of a card can read by tensor descriptors: rows of 16-bit values, with even distances.

A descriptor tells a tensor's shape and strides once. Tiles then come without addresses of their own, and what lies beyond the edge is zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import ACROSS, COLUMN, DOWN, LINE, TAP
from tritonsmith.author.compiler.ir.indices import Coordinates, Variable, ravel, unravel, variable
from tritonsmith.author.compiler.ir.values import BYTES, Held, MatrixProduct, Tensor, TensorView

ALIGNED = 16
"""Bytes of which a descriptor's address and strides are multiples."""
_WAVES = 2
"""Tiles for each processor from which on programs that take tiles in turn are busy: such ones were measured."""
_WIDTH = 2
"""Bytes of a value."""
_AXES = 4
"""Axes of images."""
_STEPS = (64, 32)
"""Channels that are multiplied at once."""
_PLACES = 128
"""Places of a tile of a convolution, its columns."""
_SIDES = (8, 16, 32, 64, 128)
"""Places across a tile."""
_FILTERS = ((256, 64), (256, 0), (128, 64), (128, 0), (64, 0))
"""Filters of a tile, in one sum or two. 320 filters of 128 places fill 132 processors once with 8 x 640 x 32 x 32."""
_SPEED = {256: 1.0, 128: 0.13, 64: 0.08}
"""Rate of tiles whose first sum has so many filters, beside that of the widest ones: few filters read the places more often.
From races on an H200, 2026-11-28: 32 x 128 x 28 x 28 to 128 filters 76.5 us, 32 x 64 x 56 x 56 to 64 filters 127 us."""


@dataclass(frozen=True)
class DescribedOperand:
    """An operand as a descriptor tells it.

    Args:
        base: the tensor in memory.
        stride: values between neighbouring lines of its memory.
        turned: whether its neighbours in memory are rows or columns of the product, and not places of the depth.
        start: values of the tensor ahead of its first one.
    """

    base: Tensor
    stride: int
    turned: bool
    start: int = 0


def describe_operands(region: ProductRegion, inside: bool = False) -> tuple[DescribedOperand, DescribedOperand] | None:
    """The left and the right operand of a plain product of 16-bit matrices; None where one of them needs pointers.

    What stays with pointers: windows, batches, operands that are computed as they are read, and reductions on the tile.
    `inside`: the right operand may begin within its tensor, as those of a pair may.
    """
    product = region.product
    batch, _, _, taps, _ = product.sizes
    plain = not (product.window or product.interleaved or product.reduced or product.differences or product.squares or region.tiled)
    if not plain or batch * taps * product.folded * product.apart != 1 or region.free_axis not in ("", LINE):
        return None
    left = _describe(region, product.source, region.left, LINE, ACROSS)
    right = _describe(region, product.right, region.right, COLUMN, DOWN, inside or region.partner is not None)
    return (left, right) if left and right else None


@dataclass(frozen=True)
class PairBox:
    """The right operands of a pair of products as one box of a descriptor has lines of both.

    Args:
        first: the one of the first product.
        apart: values between the two, in one tensor or in the buffer of both weights.
        weights: the two that one buffer holds, one behind the other; none where both lie in one tensor.
    """

    first: DescribedOperand
    apart: int
    weights: tuple[Held, ...] = ()


def can_pair(products: tuple[MatrixProduct, MatrixProduct], starts: tuple[int, int], card: CardModel) -> bool:
    """Whether descriptors can read two products as one pair: they have the same left operand, and their right ones are one box.

    Args:
        products: 16-bit matrices.
        starts: the first column of each that is meant.
        card: that the pair is for.
    """
    lefts: list[DescribedOperand] = []
    rights: list[DescribedOperand] = []
    for product, start in zip(products, starts, strict=True):
        bases = [_strip(one) for one in product.operands]
        operands = describe_operands(ProductRegion(card=card, product=product, reads={id(one): one for one in bases}), inside=True)
        if operands is None:
            return False
        left, right = operands
        lefts.append(left)
        rights.append(replace(right, start=right.start + start * right.stride))
    return lefts[0] == lefts[1] and _join_boxes(*rights) is not None


def find_box(region: ProductRegion) -> PairBox | None:
    """How one box of a descriptor has lines of both right operands of a pair; None where it cannot, and where there is no pair."""
    operands = describe_operands(region)
    partner = _describe(region, region.partner.right, region.right, COLUMN, DOWN, True) if region.partner else None
    return _join_boxes(operands[1], partner) if operands is not None and partner is not None else None


def _join_boxes(first: DescribedOperand, second: DescribedOperand) -> PairBox | None:
    """The box of two right operands: of one tensor, or of two weights as large, whose lines lie along the depth."""
    one, other = first.base, second.base
    weights: tuple[Held, ...] = ()
    apart = second.start - first.start
    if one is not other:
        if not (isinstance(one, Held) and isinstance(other, Held)) or one.given or other.given:
            return None
        if one.shape != other.shape or one.dtype != other.dtype:
            return None
        weights, apart = (one, other), apart + one.size
    alike = first.stride == second.stride and not (first.turned or second.turned) and is_aligned(first.start)
    return PairBox(first, apart, weights) if alike and apart > 0 and is_aligned(apart) else None


def _strip(value: Tensor) -> Tensor:
    """The value of which this one shows elements."""
    while isinstance(value, TensorView):
        value = value.source
    return value


def takes_descriptors(region: ProductRegion, high: int, wide: int) -> bool:
    """Whether tiles of so many rows and columns are read by descriptors: where that was measured to pay, and tiles are many."""
    product, card = region.product, region.card
    _, rows, columns, _, _ = product.sizes
    many = -(-rows // high) * -(-columns // wide) >= _WAVES * card.processors
    return many and card.fits.products.matrix_described > 0.0 and describe_operands(region) is not None


@dataclass(frozen=True)
class SplitTile:
    """A tile with its columns in two sums, so that their number need not be a power of two.

    Args:
        rows: of the tile.
        columns: of the first sum.
        second: columns of the second sum, behind these.
    """

    rows: int
    columns: int
    second: int

    @property
    def wide(self) -> int:
        """All its columns."""
        return self.columns + self.second


def find_whole_rounds(region: ProductRegion) -> SplitTile | None:
    """The tile whose columns divide the product's, and which fills the card's rounds clearly better than powers of two do; or None.

    For example 8192 x 640 is 128 tiles of 128 x 320, one round of 132 processors. It is 192 tiles of 128 x 256: two rounds.
    """
    product, fits = region.product, region.card.fits.products
    _, rows, columns, _, _ = product.sizes
    alone = region.partner is None and not region.free_axis and fits.matrix_split > 0.0
    if not alone or describe_operands(region) is None:
        return None
    split = [tile for tile in _SPLIT if columns % tile.wide == 0 and rows >= tile.rows]
    best = min(split, key=lambda tile: _count_round_sums(region, tile.rows, tile.wide), default=None)
    if best is None:
        return None
    usual = min(_count_round_sums(region, high, wide) / _find_share(region, high, wide) for high, wide in _USUAL)
    return best if _count_round_sums(region, best.rows, best.wide) / fits.matrix_split <= _CLEAR * usual else None


def _find_share(region: ProductRegion, high: int, wide: int) -> float:
    """Share of the rate of tiles of one sum. The rate of descriptors is that of the widest tiles."""
    fits = region.card.fits.products
    return fits.matrix_described if (high, wide) == _USUAL[0] and takes_descriptors(region, high, wide) else fits.matrix_half


def _count_round_sums(region: ProductRegion, high: int, wide: int) -> float:
    """Sums that the card has time for in all rounds of tiles; those of narrow tiles take as long as their operands' way from the caches."""
    _, rows, columns, _, _ = region.product.sizes
    card = region.card
    tiles = -(-rows // high) * -(-columns // wide)
    rounds = -(-tiles // card.processors) * card.processors
    reading = (high + wide) / (high * wide) * card.hardware.fp16 / card.fits.products.half_l2_rate
    return rounds * high * wide * max(1.0, reading)


_USUAL = ((128, 256), (128, 128), (64, 128), (64, 64))
"""Tiles of one sum."""
_SPLIT = (SplitTile(128, 256, 64), SplitTile(128, 128, 64), SplitTile(128, 128, 32))
"""Tiles of two sums, whose registers eight warps have."""
_CLEAR = 0.9
"""Share of the rounds' time with tiles of one sum that a tile of two sums may take: predictions are no closer."""


@dataclass(frozen=True)
class DescribedWindows:
    """The operands of a convolution of 16-bit images as descriptors tell them.

    Args:
        image: [images, height, width, channels].
        weights: [filters, taps down, taps across, channels].
        padding: zeros above the image and left of it.
        outputs: height and width of the result.
    """

    image: Tensor
    weights: Tensor
    padding: tuple[int, int]
    outputs: tuple[int, int]

    @property
    def step(self) -> int:
        """Channels that are multiplied at once; a step has one tap."""
        return next(size for size in _STEPS if self.image.shape[-1] % size == 0)


@dataclass(frozen=True)
class WindowTile:
    """What a program of a convolution has: a box of places, and neighbouring filters in one or two sums.

    Args:
        images: of the box.
        high: places down the box.
        wide: places across it.
        filters: of the first sum.
        rest: of the second sum; 0 for none.
    """

    images: int
    high: int
    wide: int
    filters: int
    rest: int

    @property
    def places(self) -> int:
        """Of the box."""
        return self.images * self.high * self.wide

    def count(self, product_images: int, outputs: tuple[int, int]) -> tuple[int, int, int]:
        """Boxes along images, down and across."""
        return -(-product_images // self.images), -(-outputs[0] // self.high), -(-outputs[1] // self.wide)


def takes_channels(product: MatrixProduct) -> bool:
    """Whether a convolution has whole steps of channels."""
    return product.sizes[-1] % _STEPS[-1] == 0


def describe_windows(region: ProductRegion) -> DescribedWindows | None:
    """The operands of a convolution with steps of one place, of an image whose channels are neighbours; None for any other product."""
    product = region.product
    batch, rows, columns, taps, channels = product.sizes
    plain = product.stored and not (product.order or product.reduced or region.tiled or region.free_axis or region.twins)
    weights, image = _follow(region, product.source, region.left), _follow(region, product.right, region.right)
    if not plain or weights is None or image is None or len(product.shape) != len(weights[0].shape) or len(image[0].shape) != _AXES:
        return None
    (held, at), (source, where) = weights, image
    outputs, window = product.shape[2:], held.shape[1:3]
    aligned = takes_channels(product) and BYTES[source.dtype] == BYTES[held.dtype] == _WIDTH
    tap = unravel(variable(TAP, taps), window)
    if not aligned or ravel(at, held.shape) != ravel((variable(LINE, rows), *tap, variable(ACROSS, channels)), held.shape):
        return None
    number, *place = unravel(variable(COLUMN, columns), (source.shape[0], *outputs))
    rims = [place[axis] + tap[axis] - where[1 + axis] for axis in range(len(outputs))]
    if (where[0], where[3]) != (number, variable(DOWN, channels)) or any(rim.terms for rim in rims):
        return None
    return DescribedWindows(source, held, (rims[0].constant, rims[1].constant), (outputs[0], outputs[1]))


def _follow(region: ProductRegion, value: Tensor, at: Coordinates) -> tuple[Tensor, Coordinates] | None:
    """The tensor in memory of which an operand shows elements, and where it reads that; None for one that is computed."""
    while id(value) not in region.reads:
        if not isinstance(value, TensorView):
            return None
        at, value = value.move(at), value.source
    return value, at


def choose_windows(region: ProductRegion, windows: DescribedWindows) -> WindowTile:
    """The tile with which the whole convolution takes the least: few rounds of the processors, and sums that tensor cores do fast."""
    return min(_list_window_tiles(windows), key=lambda tile: _weigh(region.card, windows, tile))


def count_window_sums(region: ProductRegion, windows: DescribedWindows) -> float:
    """Sums that each processor does one after the other, those of small tiles at their slower rate, times all processors."""
    return region.card.processors * _weigh(region.card, windows, choose_windows(region, windows))


def _list_window_tiles(windows: DescribedWindows) -> Iterable[WindowTile]:
    high, wide = windows.outputs
    across = min((size for size in _SIDES if size <= _PLACES), key=lambda size: (-(-wide // size) * size, -size))
    down = min(_PLACES // across, 1 << (high - 1).bit_length())
    for filters, rest in _FILTERS:
        yield WindowTile(_PLACES // (across * down), down, across, filters, rest)


def _weigh(card: CardModel, windows: DescribedWindows, tile: WindowTile) -> float:
    filters = -(-windows.weights.shape[0] // (tile.filters + tile.rest))
    rounds = -(-math.prod(tile.count(windows.image.shape[0], windows.outputs)) * filters // card.processors)
    return rounds * tile.places * (tile.filters + tile.rest) / _SPEED[tile.filters]


def is_aligned(values: int, width: int = _WIDTH) -> bool:
    """Whether so many values of a width in bytes are a stride that descriptors take."""
    return values * width % ALIGNED == 0


def _describe(
    region: ProductRegion, value: Tensor, at: Coordinates, line: str, along: str, inside: bool = False
) -> DescribedOperand | None:
    """An operand, if its lines are rows or columns of one tensor in memory; `inside`: also where they begin within it."""
    while id(value) not in region.reads:
        if not isinstance(value, TensorView) or value.guards(at):
            return None
        at, value = value.move(at), value.source
    index = ravel(at, value.shape)
    factors = {atom.name: factor for atom, factor in index.terms if isinstance(atom, Variable)}
    start = index.constant
    if BYTES[value.dtype] != _WIDTH or len(factors) < len(index.terms) or factors.keys() != {line, along}:
        return None
    if start and not (inside and is_aligned(start)):
        return None
    if 1 not in factors.values() or not is_aligned(stride := max(factors.values())):
        return None
    return DescribedOperand(value, stride, factors[along] != 1, start)
