"""Calls of a forward that are made once though they stand there twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tritonsmith.author.compiler.ir.attention import Attention
from tritonsmith.author.compiler.ir.recurrence import Recurrence
from tritonsmith.author.compiler.ir.values import AnchorResult, LibraryCall, TensorView
from tritonsmith.evaluator.schema import OpNode

_PASSES = (AnchorResult, Attention, LibraryCall, Recurrence)
"""Values that a pass over memory makes; what is pointwise is cheaper to compute again."""


class EqualPasses:
    """The values of calls so far, for equal calls behind them.

    Args:
        training: whether modules may update buffers, so that no two of their calls are equal.
    """

    def __init__(self, training: bool) -> None:
        self._training = training
        self._made: dict[str, Any] = {}

    def make_once(self, node: OpNode, make: Callable[[OpNode], Any]) -> Any:
        """What a node gives: what an equal call before it gave, where each is a pass over memory."""
        call = repr((node.op, node.target, node.args, node.kwargs))
        if call in self._made:
            return self._made[call]
        made = make(node)
        if not (self._training and node.op == "call_module") and any(map(_is_pass, made if isinstance(made, tuple) else (made,))):
            self._made[call] = made
        return made

    def forget(self) -> None:
        """A tensor was written: the same call may give something else from here on."""
        self._made.clear()


def _is_pass(value: Any) -> bool:
    while isinstance(value, TensorView):
        value = value.source
    return isinstance(value, _PASSES)
