"""The values of a forward, computed by torch element by element: what reading and lowering say, without any kernel."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch

from tritonsmith.author.compiler.ir.indices import Coordinates, Index, Shape
from tritonsmith.author.compiler.ir.operators import Applied, Constant, Operand, Operator, Tree, Type
from tritonsmith.author.compiler.ir.values import (
    AnchorResult,
    Formula,
    Held,
    Joined,
    LibraryCall,
    Lookup,
    MatrixProduct,
    Position,
    Reduction,
    Scan,
    Tensor,
    TensorView,
    list_parts,
    widen,
)

_OWN = {
    Operator.SUB: lambda left, right: left - (right.int() if right.dtype == torch.bool else right),
    Operator.QUOTIENT: lambda left, right: torch.div(left, right, rounding_mode="trunc"),
    Operator.REMAINDER: torch.fmod,
    Operator.TO_KEY: lambda value: _turn_negatives(value.view(torch.int32)),
    Operator.FROM_KEY: lambda key: _turn_negatives(key.to(torch.int32)).view(torch.float32),
}
"""Operators that torch has no function of."""


def type_of(dtype: str) -> torch.dtype:
    """torch's type of a name."""
    return getattr(torch, dtype)  # type: ignore[no-any-return]


class Values:
    """Computes values of a forward.

    Args:
        given: what arguments, parameters and buffers hold, by the names that forward has for them: `x`, `self.weight`.
    """

    def __init__(self, given: Mapping[str, torch.Tensor]) -> None:
        self._given = given
        self._known: dict[int, tuple[Tensor, torch.Tensor]] = {}  # with the value, so that no other gets its number

    def compute(self, value: Tensor) -> torch.Tensor:
        """A value as forward leaves it, in its own type."""
        return self._find(value).to(type_of(value.dtype))

    def _find(self, value: Tensor) -> torch.Tensor:
        """A value as kernels compute with it: 16 bits are widened."""
        if id(value) not in self._known:
            found = self._make(value).to(type_of(widen(value.dtype)))
            assert found.shape == value.shape, f"{type(value).__name__} says {value.shape} and has {tuple(found.shape)}"
            self._known[id(value)] = value, found
        return self._known[id(value)][1]

    def _make(self, value: Tensor) -> torch.Tensor:
        match value:
            case Held():
                return self._given[value.source]
            case Formula():
                return self._apply(value.expression, [self._find(operand) for operand in value.inputs]).expand(value.shape)
            case Position():
                return _fill(value.shape, value.dtype, lambda at: number_of(value.index(at)))
            case TensorView():
                return self._view(value)
            case Joined():
                return _fill(value.shape, value.dtype, lambda at: self._read_part(value, at))
            case Lookup():
                return _fill(value.shape, value.dtype, lambda at: self._look_up(value, at))
            case AnchorResult(anchor=MatrixProduct() as product):
                return self._multiply(product, value.shape)
            case AnchorResult(anchor=Reduction() as reduction):
                return self._reduce(reduction, value.which)
            case AnchorResult(anchor=Scan() as scan):
                return self._scan(scan)
        raise NotImplementedError(value.says if isinstance(value, LibraryCall) else type(value).__name__)

    def _apply(self, tree: Tree, operands: list[torch.Tensor]) -> torch.Tensor:
        if isinstance(tree, Operand):
            return operands[tree.place]
        if isinstance(tree, Constant):
            return torch.tensor(tree.value)
        assert isinstance(tree, Applied)
        first, *rest = tree.arguments
        if tree.operator is Operator.CAST:
            (target,) = rest
            assert isinstance(target, Type)
            return self._apply(first, operands).to(type_of(target.dtype))
        arguments = [self._apply(argument, operands) for argument in tree.arguments]
        if tree.operator is Operator.GROUP:
            return arguments[0]
        known = _OWN.get(tree.operator)
        return (known or reduce(getattr, tree.operator.value.torch.split("."), torch))(*arguments)  # type: ignore[no-any-return]

    def _view(self, value: TensorView) -> torch.Tensor:
        source, fill = self._find(value.source), value.fill.value

        def read(at: Coordinates) -> Any:
            inside = all(guard.low <= number_of(guard.index) < guard.high for guard in value.guards(at))
            return source[place_of(value.move(at))].item() if inside else fill

        return _fill(value.shape, value.dtype, read)

    def _read_part(self, value: Joined, at: Coordinates) -> Any:
        for part, moved, guards in list_parts(value, at):
            if all(guard.low <= number_of(guard.index) < guard.high for guard in guards):
                return self._find(part)[place_of(moved)].item()
        raise AssertionError("an element is in one of the parts")

    def _look_up(self, value: Lookup, at: Coordinates) -> Any:
        places = [int(self._find(one)[place_of(where)]) for one, where in zip(value.places, value.where(at), strict=True)]
        return self._find(value.table)[place_of(value.move(at, [Index(constant=place) for place in places]))].item()

    def _multiply(self, product: MatrixProduct, shape: Shape) -> torch.Tensor:
        sums = torch.einsum("brtd,btdc->brc", self._find(product.source), self._find(product.right))
        batch, rows, columns = product.outer
        shown = torch.full(shape, torch.nan)
        for place in itertools.product(range(batch), range(rows), range(columns)):
            where = place_of(product.locate(tuple(Index(constant=one) for one in place)))
            if all(one < size for one, size in zip(where, shape, strict=True)):  # beyond the edge nothing is stored
                folded = product.folded
                shown[where] = sums[place[0], place[1] * folded + place[2] % folded, place[2] // folded]
        return shown

    def _reduce(self, reduction: Reduction, which: int) -> torch.Tensor:
        source, axes = self._find(reduction.source), reduction.axes
        rows = source.movedim(axes, tuple(range(-len(axes), 0))).flatten(-len(axes))
        match reduction.kind:
            case "sum" | "prod" | "any" | "all":
                return getattr(rows, reduction.kind)(-1)  # type: ignore[no-any-return]
            case "max" | "min":
                return getattr(rows, f"a{reduction.kind}")(-1)  # type: ignore[no-any-return]
            case "argmax" | "argmin" as kind:
                return (getattr(rows, kind) if which else getattr(rows, kind.replace("arg", "a")))(-1)  # type: ignore[no-any-return]
            case "moments":
                mean = rows.mean(-1)
                return (rows - mean[..., None]).square().sum(-1) if which else mean
            case "exponentials" | "logsumexp":
                most = rows.amax(-1)
                return (rows - most[..., None]).exp().sum(-1) if which else most
        raise NotImplementedError(reduction.kind)

    def _scan(self, scan: Scan) -> torch.Tensor:
        source, (axis,) = self._find(scan.source), scan.axes
        rows = source.flip(axis) if scan.reverse else source
        ways = {"sum": torch.cumsum, "prod": torch.cumprod}
        extremes = {"max": torch.cummax, "min": torch.cummin, "sort": torch.sort}
        found = ways[scan.kind](rows, axis) if scan.kind in ways else extremes[scan.kind](rows, axis)[0]
        return found.flip(axis) if scan.reverse else found


def _turn_negatives(bits: torch.Tensor) -> torch.Tensor:
    """Bits of fp32 values as whole numbers in their order, and back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def number_of(index: Index) -> int:
    """The number that an index without variables is."""
    assert not index.terms, f"{index.text} is no number"
    return index.constant


def place_of(coordinates: Coordinates) -> tuple[int, ...]:
    """The place that coordinates without variables are."""
    return tuple(map(number_of, coordinates))


def _fill(shape: Shape, dtype: str, read: Any) -> torch.Tensor:
    """A tensor of which each element is read at its coordinates."""
    places = itertools.product(*map(range, shape))
    numbers = [read(tuple(Index(constant=one) for one in place)) for place in places]
    return torch.tensor(numbers, dtype=type_of(widen(dtype))).reshape(shape)
