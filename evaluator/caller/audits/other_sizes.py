"""A promoted candidate at other sizes that its task allows: which ones, nobody outside the evaluator learns.

A task file may declare `SHAPES = [{"batch_size": 1}, {"batch_size": (3, 40), "features": 129}]`: each entry changes module-level names of
the size that is judged, a pair being any whole number from the first to the second. A candidate that is right at its own size and wrong at
such a one computes something else than the task.
"""

from __future__ import annotations

from collections.abc import Callable

from tritonsmith.evaluator.caller.audits.findings import AuditFinding, read_refusal
from tritonsmith.evaluator.schema import Status, Task, Verdict
from tritonsmith.evaluator.tasks.declared import shapes_of

_AUDIT = "other sizes"
"""The audit's name in reports."""


def audit_other_sizes(task: Task, ask: Callable[[Task], Verdict], ended: Callable[[], bool] = lambda: False) -> list[AuditFinding]:
    """The finding about a candidate at other sizes; none for a task that declares none, and where it is ended before.

    The first failure refuses the candidate, in words that say neither the size nor what went wrong there. A kernel that refuses a size by
    itself is honest, but it does not do what this task asks for, and the words say so. Raises TaskError for a size at which the reference
    does not run.
    """
    variants = shapes_of(task)
    for variant in variants:
        if ended():
            return []
        verdict = ask(variant)
        if verdict.status is not Status.OK:
            outcome = "wrong" if verdict.status is Status.INACCURATE else f"fails ({verdict.status.value})"
            outcome = "refuses to run" if read_refusal(verdict) else outcome
            message = f"right at the task's size, {outcome} at another size that the task allows: take sizes from the arguments and tensors"
            return [AuditFinding(_AUDIT, outcome, verdict.status, message)]
    return [AuditFinding(_AUDIT, f"right at {len(variants)} of them")] if variants else []
