"""Products whose operands the copy engine of a card can read by tensor descriptors: rows of 16-bit values, with even distances.

A descriptor tells a tensor's shape and strides once. Tiles then come without addresses of their own, and what lies beyond the edge is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import ACROSS, COLUMN, DOWN, LINE
from tritonsmith.author.compiler.ir.indices import Coordinates, Variable, ravel
from tritonsmith.author.compiler.ir.values import BYTES, Tensor, TensorView

ALIGNED = 16
"""Bytes of which a descriptor's address and strides are multiples."""
_WAVES = 2
"""Tiles for each processor from which on programs that take tiles in turn are busy: such ones were measured."""
_WIDTH = 2
"""Bytes of a value."""


@dataclass(frozen=True)
class DescribedOperand:
    """An operand as a descriptor tells it.

    Args:
        base: the tensor in memory.
        stride: values between neighbouring lines of its memory.
        turned: whether its neighbours in memory are rows or columns of the product, and not places of the depth.
    """

    base: Tensor
    stride: int
    turned: bool


def describe_operands(region: ProductRegion) -> tuple[DescribedOperand, DescribedOperand] | None:
    """The left and the right operand of a plain product of 16-bit matrices; None where one of them needs pointers.

    What stays with pointers: windows, batches, operands that are computed as they are read, and reductions on the tile.
    """
    product = region.product
    batch, _, _, taps, _ = product.sizes
    plain = not (product.window or product.interleaved or product.reduced or product.differences or product.squares or region.tiled)
    if not plain or batch * taps * product.folded * product.apart != 1 or region.free_axis not in ("", LINE):
        return None
    left = _describe(region, product.source, region.left, LINE, ACROSS)
    right = _describe(region, product.right, region.right, COLUMN, DOWN)
    return (left, right) if left and right else None


def takes_descriptors(region: ProductRegion, high: int, wide: int) -> bool:
    """Whether tiles of so many rows and columns are read by descriptors: where that was measured to pay, and tiles are many."""
    product, card = region.product, region.card
    _, rows, columns, _, _ = product.sizes
    many = -(-rows // high) * -(-columns // wide) >= _WAVES * card.processors
    return many and card.fits.products.matrix_described > 0.0 and describe_operands(region) is not None


def is_aligned(values: int, width: int = _WIDTH) -> bool:
    """Whether so many values of a width in bytes are a stride that descriptors take."""
    return values * width % ALIGNED == 0


def _describe(region: ProductRegion, value: Tensor, at: Coordinates, line: str, along: str) -> DescribedOperand | None:
    """An operand, if its lines are rows or columns of one tensor in memory."""
    while id(value) not in region.reads:
        if not isinstance(value, TensorView) or value.guards(at):
            return None
        at, value = value.move(at), value.source
    index = ravel(at, value.shape)
    factors = {atom.name: factor for atom, factor in index.terms if isinstance(atom, Variable)}
    if BYTES[value.dtype] != _WIDTH or index.constant or len(factors) < len(index.terms) or factors.keys() != {line, along}:
        return None
    if 1 not in factors.values() or not is_aligned(stride := max(factors.values())):
        return None
    return DescribedOperand(value, stride, factors[along] != 1)
