"""A promoted candidate at other sizes that its task allows: which ones, nobody outside the evaluator learns. No torch.

A task file may declare `SHAPES = [{"batch_size": 1}, {"batch_size": (3, 40), "features": 129}]`: each entry changes module-level names of
the size that is judged, a pair being any whole number from the first to the second. A candidate that is right at its own size and wrong at
such a one computes something else than the task.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from tritonsmith.evaluator.audit import Finding
from tritonsmith.evaluator.schema import Status, Task, Verdict
from tritonsmith.evaluator.tasks import Shape, Value, declared_shapes

MOST_SHAPES = 2
"""Sizes that one promotion is tried at; where more are declared they are drawn anew each time."""
_AUDIT = "other sizes"


def shapes_of(task: Task, most: int = MOST_SHAPES) -> list[Task]:
    """Up to `most` variants of the task at sizes that it declares besides its own, drawn by chance. Raises TaskError."""
    order = secrets.SystemRandom()
    declared = declared_shapes(task)
    return [
        at_shape(task, {name: _drawn(value) for name, value in shape.items()}) for shape in order.sample(declared, min(most, len(declared)))
    ]


def ends_of(shape: Shape) -> list[dict[str, Value]]:
    """The lowest and the highest size of an entry; one where it holds no span."""
    low = {name: value[0] if isinstance(value, tuple) else value for name, value in shape.items()}
    high = {name: value[1] if isinstance(value, tuple) else value for name, value in shape.items()}
    return [low] if low == high else [low, high]


def at_shape(task: Task, changes: dict[str, Value]) -> Task:
    """The task with these names changed on top of its own size."""
    return task.model_copy(update={"overrides": {**task.overrides, **changes}, "size": "custom"})


def at_other_sizes(ask: Callable[[Task], Verdict], task: Task) -> list[Finding]:
    """What asking about each variant brings; nothing for a task that declares no other sizes.

    The first failure refuses the candidate, in words that say neither the size nor what went wrong there. Raises TaskError for a size
    at which the reference does not run.
    """
    variants = shapes_of(task)
    for variant in variants:
        verdict = ask(variant)
        if verdict.status is not Status.OK:
            outcome = "wrong" if verdict.status is Status.INACCURATE else f"fails ({verdict.status.value})"
            message = f"right at the task's size, {outcome} at another size that the task allows: take sizes from the arguments and tensors"
            return [Finding(_AUDIT, outcome, verdict.status, message)]
    return [Finding(_AUDIT, f"right at {len(variants)} of them")] if variants else []


def _drawn(value: Value | tuple[int, int]) -> Value:
    return value[0] + secrets.randbelow(value[1] - value[0] + 1) if isinstance(value, tuple) else value
