"""A promoted candidate at other sizes that its task allows. Which ones is told of a kernel that is right at all, and in no prompt.

A task file may declare `SHAPES = [{"batch_size": 1}, {"batch_size": (3, 40), "features": 129}]`: each entry changes module-level names of
the size that is judged, a pair being any whole number from the first to the second. A candidate that is right at its own size and wrong at
such a one computes something else than the task.
"""

from __future__ import annotations

from collections.abc import Callable

from tritonsmith.evaluator.caller.audits.findings import AuditFinding, read_refusal
from tritonsmith.evaluator.schema import SizeScore, Status, Task, Verdict
from tritonsmith.evaluator.tasks.declared import DrawnSize, draw_sizes

_AUDIT = "other sizes"
"""The audit's name in reports."""


def audit_other_sizes(task: Task, ask: Callable[[Task], Verdict], ended: Callable[[], bool] = lambda: False) -> list[AuditFinding]:
    """The finding about a candidate at other sizes; none for a task that declares none, and where it is ended before.

    The first failure refuses the candidate, in words that say neither the size nor what went wrong there. A kernel that refuses a size by
    itself is honest, but it does not do what this task asks for, and the words say so. Raises TaskError for a size at which the reference
    does not run.
    """
    drawn, rows = draw_sizes(task), []
    for size in drawn:
        if ended():
            return []
        verdict = ask(size.task)
        if verdict.status is not Status.OK:
            outcome = "wrong" if verdict.status is Status.INACCURATE else f"fails ({verdict.status.value})"
            outcome = "refuses to run" if read_refusal(verdict) else outcome
            message = f"right at the task's size, {outcome} at another size that the task allows: take sizes from the arguments and tensors"
            return [AuditFinding(_AUDIT, outcome, verdict.status, message)]
        rows.append(_score_size(size, verdict))
    sizes = tuple(sorted(rows, key=lambda row: row.entry))
    return [AuditFinding(_AUDIT, f"right at {len(drawn)} of them", sizes=sizes)] if drawn else []


def _score_size(size: DrawnSize, verdict: Verdict) -> SizeScore:
    """The row of a size at which the kernel is right; a verdict that should have a time and has none says why."""
    note = verdict.message if verdict.timing is None and verdict.message.startswith("not timed") else ""
    return SizeScore(entry=size.entry, sizes=size.sizes, timing=verdict.timing, note=note)
