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
    made = _list_made(values, operands)
    all_constant = bool(operands) and all(map(is_constant, operands))
    return (all_constant and any(map(_is_anchor, made))) or any(map(_reads_constant, made))


def _list_made(values: list[Tensor], operands: list[Tensor]) -> list[Tensor]:
    """Each value once, with what it is made of down to the call's operands, which were looked at when they were made."""
    seen = set(map(id, operands))
    waiting, made = [value for value in values if id(value) not in seen], list[Tensor]()
    while waiting:
        value = waiting.pop()
        if id(value) not in seen:
            seen.add(id(value))
            made.append(value)
            waiting += value.operands
    return made


def _reads_constant(value: Tensor) -> bool:
    """Whether attention, or a write at places, has a constant where it reads rows in a form of its own."""
    if isinstance(value, Attention):
        return any(map(is_constant, value.operands))
    return isinstance(value, Scatter) and any(map(is_constant, value.places))


def _is_anchor(value: Tensor) -> bool:
    return not isinstance(value, Formula | TensorView | Held | LibraryCall | Item | Joined | Lookup | Position)
