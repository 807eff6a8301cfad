"""Elementwise work on a few values beside each other, done on each by itself."""

from __future__ import annotations

from tritonsmith.author.compiler.ir.torch_calls import Cut
from tritonsmith.author.compiler.ir.values import Formula, Stacked, Tensor, TensorView


def spread(value: Formula) -> Tensor:
    """The value itself, or a stack of the same work on each part, where it is made of a stack.

    Args:
        value: an elementwise value. Operands beside the stack are read at the place of each part.
    """
    stacks = [one for one in value.inputs if isinstance(one, Stacked)]
    if not stacks:
        return value
    behind = {len(one.shape) - one.axis for one in stacks}
    (last, *others), axis = behind, len(value.shape) - max(behind)
    count = len(stacks[0].parts)
    if others or axis < 0 or value.shape[axis] != count or any(len(one.parts) != count for one in stacks):
        return value
    shape = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
    parts = [
        Formula(
            shape=shape, dtype=value.dtype, name=value.name, expression=value.expression, flops=value.flops,
            inputs=tuple(_take(one, len(one.shape) - last, place) for one in value.inputs),
        )
        for place in range(count)
    ]  # fmt: skip
    return Stacked.of(parts, axis)


def _take(value: Tensor, axis: int, place: int) -> Tensor:
    """The element at a place of an axis that the value may lack, or have once."""
    if axis < 0 or value.shape[axis] == 1:
        return value
    if isinstance(value, Stacked) and value.axis == axis:
        return value.parts[place]
    shape = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
    return TensorView(
        shape=shape, dtype=value.dtype, source=value, name=value.name, shown=Cut(axis, place, place + 1, 1),
        move=lambda at: (*at[:axis], at[axis] + place, *at[axis + 1 :]),
    )  # fmt: skip
