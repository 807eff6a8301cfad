"""Calls that put elements together which all are one number: a kernel would have Python's number in place of a row."""

from __future__ import annotations

from typing import Any

from tritonsmith.author.compiler.ir.attention import Attention
from tritonsmith.author.compiler.ir.scatter import Scatter
from tritonsmith.author.compiler.ir.values import (
    Formula,
    Held,
    Item,
    Joined,
    LibraryCall,
    Lookup,
    Position,
    Tensor,
    TensorView,
    is_constant,
)


def is_of_constants(arguments: list[Any], values: list[Tensor]) -> bool:
    """Whether a call puts elements together that all are one number, such as a maximum of ones.

    Args:
        arguments: of the call.
        values: what it gives.
    """
    operands = [value for value in arguments if isinstance(value, Tensor)]
    all_constant = bool(operands) and all(map(is_constant, operands))
    return (all_constant and any(map(_has_anchor, values))) or any(map(_reads_constant, values))


def _reads_constant(value: Tensor) -> bool:
    """Whether attention, or a write at places, has a constant where it reads rows in a form of its own."""
    if isinstance(value, Attention):
        return any(map(is_constant, value.operands))
    if isinstance(value, Scatter):
        return any(map(is_constant, value.places))
    return isinstance(value, Formula | TensorView) and any(map(_reads_constant, value.operands))


def _has_anchor(value: Tensor) -> bool:
    plain = isinstance(value, Formula | TensorView | Held | LibraryCall | Item | Joined | Lookup | Position)
    return not plain or any(map(_has_anchor, value.operands))
