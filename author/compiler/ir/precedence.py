"""Which operand needs parentheses in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from tritonsmith.author.compiler.ir.code import (
    Alias,
    Attribute,
    Binary,
    Branch,
    Call,
    Clause,
    Compare,
    Comprehension,
    Conditional,
    Expression,
    FormattedValue,
    Group,
    Lambda,
    Logical,
    Name,
    Node,
    Number,
    Return,
    Slice,
    Star,
    String,
    Subscript,
    Tuple,
    Unary,
    While,
    Word,
    list_fields,
)  # fmt: skip

T = TypeVar("T", bound=Node)
BARE, LAMBDA, CONDITIONAL, OR, AND, NOT, COMPARISON, POWER, POSTFIX, ATOM = 0, 1, 2, 3, 4, 5, 6, 14, 15, 16
SIGN = 13
OPERATORS = {
    "|": 7, "^": 8, "&": 9, "<<": 10, ">>": 10, "+": 11, "-": 11, "*": 12, "/": 12, "//": 12, "%": 12, "@": 12, "**": POWER,
}  # fmt: skip
"""How strongly each operator binds."""
CHAINED = frozenset("+*&|")
"""Operators whose right operand may be a chain of the same operator without parentheses: text reads it from the left."""


def rank(node: Expression) -> int:
    """How strongly the outermost operator of an expression binds."""
    match node:
        case Binary():
            return OPERATORS[node.operator]
        case Unary():
            return NOT if node.operator == "not" else SIGN
        case Compare():
            return COMPARISON
        case Logical():
            return OR if node.operator == "or" else AND
        case Conditional():
            return CONDITIONAL
        case Lambda():
            return LAMBDA
        case Tuple():
            return BARE if node.items else ATOM
        case _:
            return ATOM


def least(parent: Node, place: str, child: Expression) -> int:
    """How strongly an operand must bind to stand without parentheses in a field of a record."""
    match parent:
        case Binary(operator="**"):
            return POSTFIX if place == "left" else SIGN
        case Binary(operator=operator):
            same = isinstance(child, Binary) and child.operator == operator and operator in CHAINED
            return OPERATORS[operator] + (place == "right" and not same)
        case Unary(operator=operator):
            return NOT if operator == "not" else SIGN
        case Compare():
            return COMPARISON + 1
        case Logical(operator=operator):
            return (OR if operator == "or" else AND) + 1
        case Conditional():
            return LAMBDA if place == "otherwise" else OR
        case Attribute() if isinstance(child, Number):
            return ATOM + 1
        case Attribute() | Subscript(value=_) | Call() if place in ("value", "function"):
            return POSTFIX
        case Clause():
            return BARE if place == "target" else OR
        case Star():
            return COMPARISON + 1
        case Slice() | Alias() | Comprehension() | Lambda() | FormattedValue() | Branch() | While():
            return LAMBDA
        case Subscript() | Return() | Group():
            return BARE
        case _:
            return BARE if place in _BARE_PLACES.get(type(parent).__name__, ()) else LAMBDA


_BARE_PLACES = {
    "Assign": ("targets", "value"), "Augment": ("value",), "Evaluate": ("value",), "For": ("target", "source"),
}  # fmt: skip
"""Fields in which a tuple has no parentheses."""


def tidy(node: T) -> T:
    """The record without groups right below that its printed text has anyway."""
    changed: dict[str, Any] = {}
    for place in list_fields(type(node)):
        value = getattr(node, place)
        if isinstance(value, Group):
            if needs(node, place, value.inner):
                changed[place] = value.inner
        elif isinstance(value, tuple) and any(isinstance(child, Group) for child in value):
            changed[place] = tuple(
                child.inner if isinstance(child, Group) and needs(node, place, child.inner) else child for child in value
            )
    return replace(node, **changed) if changed else node


def needs(parent: Node, place: str, child: Expression) -> bool:
    """Whether an operand has parentheses in a field of a record."""
    if type(child) in _CLOSED:  # most operands; asked for each time that a record is made or printed
        return type(child) is Number and type(parent) is Attribute
    return rank(child) < least(parent, place, child)


_CLOSED = frozenset((Attribute, Call, Group, Name, Number, String, Subscript, Word))
"""Expressions that nothing around them can take apart."""
