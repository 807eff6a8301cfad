"""The facts of a task as they would be for another size of the leading axis that its inputs share."""

from __future__ import annotations

import math

from tritonsmith.author.writes import name_call
from tritonsmith.evaluator.schema import OpNode, TaskFacts, TensorSpec

_PICKS = ("getitem", "select", "unbind")
"""Operators that leave an axis out."""


def lengthen(facts: TaskFacts, names: tuple[str, ...], size: int, longer: int) -> TaskFacts:
    """The facts with another size of the leading axis, which may be a symbol, wherever it follows from those inputs.

    Where the axis lies in a result is a guess: who reads the facts finds out whether all operators agree with it.
    """
    made: dict[str, int | None] = {}
    """By node that follows from those inputs: where its first result has the axis, if it has it."""
    shapes: dict[str, tuple[int, ...]] = {}
    ops: list[OpNode] = []

    def stretch(spec: TensorSpec, axis: int | None) -> TensorSpec:
        if axis is None or axis >= len(spec.shape) or spec.shape[axis] % size:
            return spec
        return spec.model_copy(update={"shape": (*spec.shape[:axis], spec.shape[axis] // size * longer, *spec.shape[axis + 1 :])})

    inputs = list(facts.inputs)
    for place, node in enumerate(node for node in facts.ops if node.op == "placeholder"):
        spec = inputs[place] if place < len(inputs) else None
        if node.target in names and spec is not None:
            made[node.name] = 0
            inputs[place] = stretch(spec, 0)
    for node in facts.ops:
        sources = [name for name in node.references if name in made]
        if node.outputs:
            shapes[node.name] = node.outputs[0].shape
        if sources and node.name not in made:
            made[node.name] = _find_axis(node, made, shapes, size)
        if node.name in made:
            node = node.model_copy(update={"outputs": tuple(stretch(spec, made[node.name]) for spec in node.outputs)})
        ops.append(node)
    return facts.model_copy(update={"inputs": tuple(inputs), "ops": tuple(ops)})


def _find_axis(node: OpNode, made: dict[str, int | None], shapes: dict[str, tuple[int, ...]], size: int) -> int | None:
    """Where the first result of a node has the axis."""
    shape = shapes.get(node.name, ())
    for name in node.references:
        axis, source = made.get(name), shapes.get(name)
        if axis is None or source is None or axis >= len(source):
            continue
        if (moved := _move_axis(node, axis, len(source))) is not None:
            return moved
        if len(shape) == len(source) and shape[axis] == source[axis]:
            return axis
        if name_call(node) in _PICKS and len(shape) == len(source) - 1 and axis and shape[axis - 1] == source[axis]:
            return axis - 1
        before = math.prod(source[:axis])
        for place, length in enumerate(shape):
            if math.prod(shape[:place]) == before and length % size == 0:
                return place
    return 0 if shape and shape[0] % size == 0 else None


def _move_axis(node: OpNode, axis: int, rank: int) -> int | None:
    """Where an operator that moves axes puts one; None for any other operator."""
    given = node.args[1:] or tuple(node.kwargs.values())
    name = name_call(node)
    if name == "t" or name == "getattr" and given == ("T",):
        return rank - 1 - axis
    if name == "getattr" and given == ("mT",):
        given = (-2, -1)
    elif name not in ("permute", "transpose", "swapaxes", "swapdims"):
        return None
    listed = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    places = [place % rank for place in listed if isinstance(place, int)]
    if len(places) != (rank if name == "permute" else 2):
        return None  # places that the forward computes
    if name == "permute":
        return places.index(axis) if axis in places else None
    first, second = places
    return {first: second, second: first}.get(axis, axis)
