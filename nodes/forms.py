"""What the module itself takes in each form, where no right kernel was measured beside it."""

from __future__ import annotations

from typing import cast

from tritonsmith.evaluator.errors import InfrastructureError, UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Task, Timing, TimingKind
from tritonsmith.evaluator.texts.source.copies import copy_reference
from tritonsmith.graph.state import State, Update
from tritonsmith.nodes.common import NodeRuntime, context_of, emit


async def measure_forms(node: str, update: Update, runtime: NodeRuntime) -> Timing | None:
    """The timing of a copy of the task beside its baselines; None without a card, or where the copy cannot be judged.

    A copy is a candidate like any other, so no evaluator needs a question of its own for this. It can win nothing: nobody keeps it.

    Args:
        node: which asks.
        update: holds the task.
        runtime: holds the evaluator.
    """
    evaluator, state = context_of(runtime).evaluator, cast(State, update)
    if not evaluator.hardware.present:
        return None
    task = state["task"]
    try:
        text = write_copy(task)
        emit(runtime, "stage", node, state, what="the module itself is measured in each form")
        verdict = await evaluator.evaluate(task, text, "quick")
    except (InfrastructureError, UsageError):  # a recording that was made without it has none
        return None
    return verdict.timing if verdict.timing is not None and verdict.timing.kind is TimingKind.MEASURED else None


def write_copy(task: Task) -> KernelText:
    """The module itself as a candidate, at the task's sizes.

    Raises:
        UsageError: where the task's text cannot stand as a candidate.
    """
    sized = "".join(f"\n{name} = {value!r}" for name, value in task.overrides.items())
    return KernelText.of(copy_reference(task.source, task.path) + sized)
