"""Which convolutions of a forward may go on together with their channels as neighbours in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tritonsmith.author.compiler.ir.values import AnchorResult, Formula, Held, Reduction, Tensor, TensorView, widen
from tritonsmith.author.compiler.reading.choices import Choice
from tritonsmith.author.compiler.reading.reader import Forward
from tritonsmith.evaluator.schema import OpNode, TaskFacts

MOST_TAPS = 64
"""Taps of a window that registers hold."""
_AXES = (3, 4)
"""Axes of images whose channels can come last."""


def list_layouts(forward: Forward, facts: TaskFacts, chosen: Mapping[str, Choice]) -> list[tuple[str, ...]]:
    """Sets of nodes to try with channels last; none for a forward without a convolution of each channel by itself.

    Args:
        forward: its values, channels ahead of places.
        facts: the trace.
        chosen: nodes whose form is chosen.
    """
    own = [node.name for node in facts.ops if node.name not in chosen and _is_own_windows(forward.made.get(node.name))]
    if not own:
        return []
    points = [node.name for node in facts.ops if node.name not in chosen and _is_point(node, facts)]
    return [tuple(own), *([(*own, *points)] if points else [])]


def may_come_last(node: OpNode, facts: TaskFacts, made: Any) -> bool:
    """Whether a convolution may be a kernel of its own with channels last; `made`: what it gives with channels ahead of places."""
    return _is_own_windows(made) or _is_point(node, facts)


def _is_own_windows(made: Any) -> bool:
    """Whether a value is a convolution of each channel by itself that has a kernel with channels last."""
    anchor = _find_anchor(made)
    windows = anchor.windows if isinstance(anchor, Reduction) else None
    if windows is None or len(windows.image.shape) not in _AXES or windows.taps > MOST_TAPS:
        return False
    return windows.weights.shape[0] == windows.image.shape[1] and isinstance(windows.weights, Held) and bool(windows.weights.path)


def _find_anchor(value: Any) -> Tensor | None:
    while isinstance(value, TensorView | Formula) and value.operands:
        value = value.operands[0]
    return value.anchor if isinstance(value, AnchorResult) else None


def _is_point(node: OpNode, facts: TaskFacts) -> bool:
    """Whether a node is a convolution of 16 bits whose windows have one place; fp32 products have forms of their own for images."""
    if node.module_type not in ("Conv1d", "Conv2d") or not node.outputs or widen(node.outputs[0].dtype) == node.outputs[0].dtype:
        return False
    weight = facts.parameters.get(f"{node.target}.weight")
    plain = all(_is_all(node.attributes.get(name), value) for name, value in (("stride", 1), ("padding", 0)))
    return weight is not None and plain and node.attributes.get("groups", 1) == 1 and set(weight.shape[2:]) == {1}


def _is_all(given: Any, value: int) -> bool:
    return all(one == value for one in given) if isinstance(given, Iterable) and not isinstance(given, str) else given == value
