"""Sums over broadcast operands that are products of matrices in disguise: squared distances of all pairs, sums of pairs' products."""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.users import Users
from tritonsmith.author.compiler.ir.indices import count, variable
from tritonsmith.author.compiler.ir.operators import A, B
from tritonsmith.author.compiler.ir.values import (
    AnchorResult,
    Formula,
    Joined,
    Lookup,
    MatrixProduct,
    Reduction,
    Tensor,
    TensorView,
    align,
    list_reads,
)
from tritonsmith.author.compiler.lowering.calls import NotCovered
from tritonsmith.author.compiler.lowering.pointwise import formula
from tritonsmith.author.compiler.lowering.products import contract
from tritonsmith.author.compiler.lowering.reductions import reduce
from tritonsmith.author.compiler.lowering.views import cut, permute, reshape
from tritonsmith.author.compiler.reading.reader import Forward
from tritonsmith.author.types import AS_THEY_ARE

_SHORT = 8
"""Terms of a distance that cost less one by one than a step of tensor cores, which multiply 16 at least, in three parts."""
_SMALL = 2**24
"""Terms of all distances that take less time one by one than the launches that find the lengths (assumed; not measured)."""
_LEAST = 16
"""Sides of a product, and its depth, below which a sum stays a sum: tensor cores multiply no less."""
_NEAR = 0.25
"""Share of |x|^2 + |y|^2 below which a squared distance is summed term by term. By products it errs by about 0.3 eps of |x|^2 + |y|^2, and
the judge allows eps of the distance at least. At this share the two are as good as equal."""
_NEAR_OF_PRODUCTS = 2.0**-14
"""The same where PyTorch multiplies too, and errs as much: only what is nearly nothing but rounding is summed term by term."""
_NEAR_OF_HALVES = 2.0**-10
"""The same for operands of 16 bits, whose own rounding is larger by far."""


def write_products(forward: Forward) -> None:
    """Have sums over pairs be products of matrices, where they are such in disguise."""
    users = Users(forward)
    for anchor in [one for one in users.values.values() if isinstance(one, Reduction) and one.kind == "sum"]:
        pair = _find_pair(anchor)
        if pair is None:
            continue
        try:
            product = pair.multiply()
        except NotCovered:
            continue
        if product is None:
            continue
        for result in users.results_of(anchor):
            product.dtype = result.dtype
            users.replace(result, reshape(product, result.shape))


@dataclass(frozen=True)
class _Pair:
    """Two operands of which each has axes that the other one lacks, and what is summed.

    Args:
        anchor: the sum.
        left, right: its operands, with the axes that they depend on.
        letters: by operand, a letter for each of its axes.
        apart: whether squares of differences are summed, and not products.
    """

    anchor: Reduction
    left: Tensor
    right: Tensor
    letters: tuple[str, str]
    apart: bool

    def multiply(self) -> AnchorResult | None:
        """The same as a product; None where a sum does as well. Raises NotCovered."""
        first, second = self.letters
        shape = self.anchor.source.shape
        inner = {_name(axis) for axis in self.anchor.axes}
        out = "".join(letter for letter in map(_name, range(len(shape))) if letter not in inner and letter in first + second)
        names = {_name(axis): size for axis, size in enumerate(shape)}
        rows, columns = (count(tuple(names[one] for one in own if one not in beside)) for own, beside in ((first, second), (second, first)))
        depth = count(tuple(names[one] for one in inner))
        if not self.apart and min(rows, columns, depth) < _LEAST:
            return None
        result = contract(self.left, self.right, (first, second, out), self.anchor.name or "product", "")
        assert isinstance(result, AnchorResult) and isinstance(result.anchor, MatrixProduct)
        if not self.apart:
            return result
        product = result.anchor
        product.name = result.name = self.anchor.name or "squares"
        product.differences = True
        if depth > _SHORT and count(product.shape) * depth > _SMALL:
            pairs = [(self.left, first, second), (self.right, second, first)]
            if out[-1:] in first and out[-1:] not in second:  # `contract` has the one with the last axis on the right
                pairs.reverse()
            product.squares = tuple(self._find_squares(*pair, out) for pair in pairs)
            halves = product.source.dtype in AS_THEY_ARE
            product.near = _NEAR_OF_HALVES if halves else _NEAR_OF_PRODUCTS if self.anchor.multiplied else _NEAR
        return result

    def _find_squares(self, value: Tensor, own: str, beside: str, out: str) -> Tensor:
        """The squared lengths of an operand's lines, [batch, lines]."""
        inner = tuple(place for place, letter in enumerate(own) if letter not in out)
        lengths = reduce(formula(A * A, value, like="float32"), inner, "sum", "float32")
        kept = [letter for letter in own if letter in out]
        order = [*(one for one in out if one in own and one in beside), *(one for one in out if one in own and one not in beside)]
        lines = count(tuple(lengths.shape[kept.index(one)] for one in order if one not in beside))
        return reshape(permute(lengths, tuple(kept.index(one) for one in order)), (lengths.size // lines, lines))


def _name(axis: int) -> str:
    """The letter of an axis."""
    return chr(ord("a") + axis)


def _find_pair(anchor: Reduction) -> _Pair | None:
    """The operands of a sum over pairs; None for any other."""
    value, apart = anchor.source, False
    if not isinstance(value, Formula):
        return None
    squared = value.expression == A * A or (value.expression == A * B and value.inputs[0] is value.inputs[1])
    if squared and isinstance(value.inputs[0], Formula) and value.inputs[0].shape == value.shape:
        value, apart = value.inputs[0], True
    if value.expression != (A - B if apart else A * B) or len(value.inputs) != 2:
        return None
    axes = [_list_axes(one, value.shape) for one in value.inputs]
    inner, first, second = {*anchor.axes}, *axes
    if not (inner <= first and inner <= second and first - second and second - first):
        return None
    left, right = (_narrow(one, own, len(value.shape)) for one, own in zip(value.inputs, axes, strict=True))
    letters = tuple("".join(_name(axis) for axis in sorted(own)) for own in axes)
    return _Pair(anchor, left, right, (letters[0], letters[1]), apart)


def _list_axes(value: Tensor, shape: tuple[int, ...]) -> set[int]:
    """The axes of a shape along which an operand that broadcasts to it changes."""
    names = {f"axis{axis}": axis for axis in range(len(shape))}
    at = tuple(variable(name, size) for name, size in zip(names, shape, strict=True))
    found: set[str] = set()
    seen: set[object] = set()
    todo = [(value, align(at, value.shape))]
    while todo:
        one, place = todo.pop()
        if (id(one), place) in seen:
            continue
        seen.add((id(one), place))
        if isinstance(one, Formula | TensorView | Joined) and not isinstance(one, Lookup):
            for read in list_reads(one, place):
                todo.append((read.value, read.at))
                found |= {name for guard in read.guards for name in guard.names}
        else:
            found |= {name for index in place for name in index.names}
    return {names[name] for name in found if name in names}


def _narrow(value: Tensor, axes: set[int], rank: int) -> Tensor:
    """The operand with nothing but the axes along which it changes."""
    lead = rank - len(value.shape)
    for axis, size in enumerate(value.shape):
        if axis + lead not in axes and size > 1:
            value = cut(value, axis, 0, 1)
    return reshape(value, tuple(size for axis, size in enumerate(value.shape) if axis + lead in axes))
