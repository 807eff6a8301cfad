"""What the module itself takes in each form, where no right kernel was measured beside it."""

from __future__ import annotations

from typing import cast

from tritonsmith.evaluator.errors import InfrastructureError, UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Task, Timing, TimingKind, Verdict
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
    emit(runtime, "stage", node, state, what="the module itself is measured in each form")
    verdict = await judge_copy(evaluator, state["task"])
    return verdict.timing if verdict is not None else None


async def judge_copy(evaluator: Evaluator, task: Task) -> Verdict | None:
    """The quick verdict about the module itself at the task's sizes; None where nothing was measured.

    It is a help and no condition: a task whose text cannot stand as a candidate has none, nor has a recording that was made without it.
    """
    sized = "".join(f"\n{name} = {value!r}" for name, value in task.overrides.items())
    try:
        text = KernelText.of(copy_reference(task.source, task.path) + sized)
        verdict = await evaluator.evaluate(task, text)
    except (InfrastructureError, UsageError):
        return None
    return verdict if verdict.timing is not None and verdict.timing.kind is TimingKind.MEASURED else None
