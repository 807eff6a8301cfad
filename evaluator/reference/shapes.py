"""A reference at the sizes that its task declares in SHAPES. Imports torch; runs the user's own task file."""

from __future__ import annotations

import time
from collections.abc import Callable

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.schema import SizeValue, Task, TaskFacts
from tritonsmith.evaluator.tasks.declared import list_members
from tritonsmith.evaluator.tasks.files import at_shape, declared_shapes

_MOST_SIZES = 40
"""Sizes that are described; an author writes kernels of their own for far fewer."""
_MOST_NODES = 4000
"""Nodes that the facts of all these sizes hold together; they are kept with every step of a run."""
_SECONDS = 40.0
"""For all of them, a third of what a caller waits for its answer."""
_UNUSED = {"flops": 0.0, "bytes": 0.0, "launches": 0}


def describe_shapes(task: Task, describe: Callable[[Task, float], TaskFacts]) -> tuple[TaskFacts, ...]:
    """The facts at each declared size, with `sizes` set; where there are none, `trace_error` says why.

    Args:
        task: at its own size.
        describe: gives the facts of a task within a time in seconds. Raises TaskError.
    """
    wanted: list[dict[str, SizeValue]] = []
    for shape in declared_shapes(task):
        wanted += [sizes for sizes in list_members(shape)[0] if sizes not in wanted]
    found: list[TaskFacts] = []
    nodes, until = 0, time.monotonic() + _SECONDS
    for sizes in wanted:
        left = until - time.monotonic()
        if len(found) >= _MOST_SIZES or left <= 0 or nodes > _MOST_NODES:
            found.append(TaskFacts(sizes=sizes, trace_error="the task declares more sizes than are looked at"))
            continue
        try:
            facts = describe(at_shape(task, sizes), left)
        except TaskError as error:
            facts = TaskFacts(trace_error=str(error))
        nodes += len(facts.ops)
        found.append(facts.model_copy(update={"sizes": sizes, "ops": tuple(node.model_copy(update=_UNUSED) for node in facts.ops)}))
    return tuple(found)
