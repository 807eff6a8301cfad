"""Asks a process of its own what a task's reference is and costs."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from tritonsmith.evaluator.questions.process import TaskProcess
from tritonsmith.evaluator.schema import OperatorCost, Task, TaskFacts

PROBE_SECONDS = 120.0

_Trace = TypeAdapter(list[OperatorCost])


def start_probe() -> TaskProcess:
    """A probe that waits for its task."""
    return TaskProcess("tritonsmith.evaluator.reference", "the probe of the task")


def run_probe(task: Task, timeout: float = PROBE_SECONDS, started: TaskProcess | None = None) -> tuple[TaskFacts, list[OperatorCost]]:
    """Run and trace the reference once in a fresh process, which may have been started before.

    Raises:
        TaskError: the task file is at fault; one sentence for the user.
        InfrastructureError: the probe itself failed.
    """
    late = f"one forward of the reference took longer than {timeout:.0f} s"
    return (started or start_probe()).ask(task, timeout, late, _read_answer)


def _read_answer(answer: dict[str, Any]) -> tuple[TaskFacts, list[OperatorCost]]:
    return TaskFacts.model_validate(answer["facts"]), _Trace.validate_python(answer["trace"])
