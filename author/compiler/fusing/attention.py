"""What the kernel of an attention computes of its operands, and what is stored ahead of it."""

from __future__ import annotations

from collections.abc import Callable

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.regions import AttentionRegion
from tritonsmith.author.compiler.fusing.space import Walk, list_below
from tritonsmith.author.compiler.ir.attention import COLUMN, FEATURE, KEY, QUERY, Attention
from tritonsmith.author.compiler.ir.indices import ZERO, Coordinates, variable
from tritonsmith.author.compiler.ir.values import AnchorResult, Formula, Joined, Lookup, Tensor, TensorView

_MOST_FORMULAS = 3
"""Elementwise values of an operand that are computed again for each block that reads it."""

_MOST_LEAVES = 2
"""Tensors that such values are made of."""


def peel(operand: Tensor) -> Tensor:
    """What an operand is a view of."""
    while isinstance(operand, TensorView) and operand.guard is None:
        operand = operand.source
    return operand


def is_cheap(operand: Tensor, in_memory: Callable[[Tensor], bool]) -> bool:
    """Whether a kernel may compute an operand where it reads it: a view, or a few elementwise operations."""
    leaves, anchors = list_below(operand, in_memory)
    seen: dict[int, Tensor] = {}
    todo = [operand]
    while todo:
        one = todo.pop()
        if id(one) not in seen and not in_memory(one):
            seen[id(one)] = one
            todo += one.operands
    formulas = sum(isinstance(one, Formula) and bool(one.inputs) for one in seen.values())
    moved = any(isinstance(one, Joined | Lookup | AnchorResult) for one in seen.values())
    return not anchors and not moved and formulas <= _MOST_FORMULAS and (len(leaves) <= _MOST_LEAVES or not formulas)


def list_elements(attention: Attention) -> list[tuple[Tensor, Coordinates]]:
    """The elements of all operands that the kernel meets, and of the score."""
    one = attention
    key = variable(KEY, one.keys)
    feature, column = variable(FEATURE, one.features), variable(COLUMN, one.columns)
    found = [
        (one.query, one.find_row(one.query, feature)),
        (one.key, one.find(one.key, key, feature)),
        (one.value, one.find(one.value, key, column)),
        (one.score, one.find_row(one.score, key)),
    ]
    return found if one.hidden is None else [*found, (one.hidden, find_hidden(one))]


def make_region(attention: Attention, in_memory: Callable[[Tensor], bool], card: CardModel) -> AttentionRegion:
    """The region of an attention whose operands lie in memory, or are cheap."""
    region = AttentionRegion(card=card, attention=attention, name="attention")
    walk = Walk(lambda one: one is attention.product or in_memory(one))
    for one, at in list_elements(attention):
        walk.visit(one, at)
    region.reads |= {key: one for key, one in walk.leaves.items() if one is not attention.product}
    region.evaluated |= walk.formulas
    region.stores.append(attention)
    return region


def find_hidden(attention: Attention) -> Coordinates:
    """Where the kernel reads what is hidden for every head."""
    assert attention.hidden is not None
    leads = len(attention.hidden.shape) - 2
    return (*(ZERO for _ in range(leads)), variable(QUERY, attention.queries), variable(KEY, attention.keys))
