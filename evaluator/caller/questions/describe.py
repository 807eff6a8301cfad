"""What a task's reference is and costs, asked of a process of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from tritonsmith.evaluator.caller.questions.changes import find_changes
from tritonsmith.evaluator.caller.questions.process import TaskProcess
from tritonsmith.evaluator.errors import TritonsmithError
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import Task, TaskFacts
from tritonsmith.evaluator.tasks.files import at_chosen_size, settle_task

PROBE_SECONDS = 120.0
"""Longest time for one forward of a reference, with the imports."""

Description: TypeAlias = tuple[TaskFacts, list[OperatorCost]]
"""What a reference costs in all, and what each of its operators does."""

_COSTS = TypeAdapter(list[OperatorCost])


def start_probe() -> TaskProcess:
    """A probe that waits for its task."""
    return TaskProcess("tritonsmith.evaluator.reference", "the probe of the task")


def run_probe(task: Task, timeout: float = PROBE_SECONDS, started: TaskProcess | None = None) -> Description:
    """Run and trace the reference once in a fresh process, which may have been started before.

    Raises:
        TaskError: the task file is at fault; one sentence for the user.
        InfrastructureError: the probe itself failed.
    """
    late = f"one forward of the reference took longer than {timeout:.0f} s"
    return (started or start_probe()).ask(task, timeout, late, _read_answer)


def _read_answer(answer: dict[str, Any]) -> Description:
    return TaskFacts.model_validate(answer["facts"]), _COSTS.validate_python(answer["trace"])


class TaskDescriptions:
    """Descriptions of tasks; each is asked for once.

    Args:
        ask: who describes a task; None: a fresh process for each. The first of these starts at once, and waits with its imports done.
    """

    def __init__(self, ask: Callable[[Task], Description] | None = None) -> None:
        self._ask = ask
        self._first: TaskProcess | None = start_probe() if ask is None else None
        self._known: dict[str, Description] = {}
        self._lock = threading.Lock()

    def describe(self, task: Task) -> Description:
        """The description of a task; a new one where what an earlier one read has changed. Raises TaskError or InfrastructureError."""
        known = self._find(task)  # without the lock: a question about another task may take long
        if known is not None:
            return known
        with self._lock:
            known = self._find(task)
            if known is None:
                known = self._known[task.sha] = self._ask(task) if self._ask else self._probe(task)
                for settled in (at_chosen_size(task, known[0].chosen), settle_task(task, known[0])):
                    self._known[settled.sha] = known
            return known

    def _find(self, task: Task) -> Description | None:
        """What is known. A settled task stays what it is, since its reads are part of it; for others the files must be as they were."""
        known = self._known.get(task.sha)
        if known is None or task.reads is not None or known[0].reads is None:
            return known
        return None if any(find_changes(task.folder, known[0].reads)) else known

    def _probe(self, task: Task) -> Description:
        started, self._first = self._first, None
        return run_probe(task, started=started)

    def start(self, task: Task) -> None:
        """Ask for a description ahead, in a thread of its own. A question that fails is asked again where it is needed."""
        if self._find(task) is None:
            threading.Thread(target=self._describe_quietly, args=(task,), daemon=True).start()

    def _describe_quietly(self, task: Task) -> None:
        with contextlib.suppress(TritonsmithError):
            self.describe(task)

    def close(self) -> None:
        """End the probe that waits."""
        if self._first is not None:
            self._first.close()

