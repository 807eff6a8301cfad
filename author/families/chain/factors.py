"""Operands of a product: views of tensors, brought to [batch, rows, K] and [batch, K, columns]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tritonsmith.author.families.chain.sizes import Shape, Source


@dataclass(frozen=True)
class Factor:
    """A view of one tensor, whose memory is taken to be contiguous."""

    source: str
    """Its expression in forward."""
    name: str
    """The tensor's own expression."""
    origin: Shape
    """The tensor's own shape."""
    shape: Shape
    strides: tuple[int, ...]
    dtype: str
    given: bool
    """Whether forward gets it; else it is a parameter."""
    moved: bool = False
    """Whether axes were permuted."""
    lines: tuple[str, ...] = ()
    """Elementwise operations on its values `v` ahead of the product, as Triton writes them."""

    @property
    def kept(self) -> bool:
        """Whether it is a parameter, so that parts of it can be kept between calls."""
        return not self.given

    @classmethod
    def of(cls, source: Source) -> Factor:
        """A tensor as it is."""
        strides = tuple(math.prod(source.shape[axis + 1 :]) for axis in range(len(source.shape)))
        return cls(source.name, source.name, source.shape, source.shape, strides, source.dtype, source.given)

    def permute(self, order: Sequence[int]) -> Factor:
        """The view with its axes in another order."""
        if list(order) == list(range(len(self.shape))):
            return self
        text = f"{self.source}.t()" if list(order) == [1, 0] else f"{self.source}.permute({', '.join(map(str, order))})"
        shape, strides = (tuple(values[axis] for axis in order) for values in (self.shape, self.strides))
        return replace(self, source=text, shape=shape, strides=strides, moved=True)

    def reshape(self, shape: Shape, text: str) -> Factor:
        """The view with its leading axes as one."""
        return replace(self, source=f"{self.source}{text}", shape=shape, strides=(0, *self.strides[-2:]))


def flatten(a: Factor, w: Factor) -> tuple[Factor, Factor]:
    """Both operands with three axes; rows of a left operand without batch are counted through all its leading axes."""
    inner, columns = w.shape[-2:]
    if len(w.shape) == 2:
        rows = math.prod(a.shape[:-1])
        text = "[None]" if len(a.shape) == 2 else f".reshape(1, -1, {inner})"
        return a.reshape((1, rows, inner), text), w.reshape((1, inner, columns), "[None]")
    batch = math.prod(w.shape[:-2])
    if len(w.shape) == 3:
        return a, w
    return (
        a.reshape((batch, *a.shape[-2:]), f".reshape({batch}, {a.shape[-2]}, {inner})"),
        w.reshape((batch, inner, columns), f".reshape({batch}, {inner}, {columns})"),
    )


def read_equation(equation: str, first: Factor, second: Factor) -> tuple[Factor, Factor]:
    """The operands of an einsum that is one product, as matmul takes them. Raises ValueError for other equations."""
    given, arrow, out = equation.replace(" ", "").partition("->")
    a, comma, w = given.partition(",")
    plain = arrow and comma and (given + out).replace(",", "").isalpha()
    if not plain or any(len(set(text)) != len(text) for text in (a, w, out)) or (len(a), len(w)) != (len(first.shape), len(second.shape)):
        raise ValueError(f"torch.einsum with {equation!r}")
    batch = [letter for letter in out if letter in a and letter in w]
    inner = [letter for letter in a if letter in w and letter not in out]
    rows, columns = ([letter for letter in out if letter in text and letter not in other] for text, other in ((a, w), (w, a)))
    if len(inner) != 1 or set(a) - {*batch, *rows, *inner} or set(w) - {*batch, *columns, *inner} or len(batch) > 1:
        raise ValueError(f"torch.einsum with {equation!r}")
    if out == "".join((*batch, *columns, *rows)) and rows:  # the result transposed: the operands change places
        first, second, a, w, rows, columns = second, first, w, a, columns, rows
    if out != "".join((*batch, *rows, *columns)) or len(columns) != 1 or not rows or (batch and len(rows) > 1):
        raise ValueError(f"torch.einsum with {equation!r}")
    left = first.permute([a.index(letter) for letter in (*batch, *rows, *inner)])
    return left, second.permute([w.index(letter) for letter in (*batch, *inner, *columns)])
