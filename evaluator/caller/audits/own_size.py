"""A promoted candidate at the task's own size, where it was judged at a smaller one and the task computes whole numbers.

Whole numbers that follow from places grow with the size. A kernel that has them in 32 bits may be right at a small size and wrong at the
task's own: PyTorch's places have 64 bits. So it is called there too, as far as the interpreter can do that.
"""

from __future__ import annotations

from collections.abc import Callable

from tritonsmith.evaluator.caller.audits.findings import AuditFinding, read_refusal
from tritonsmith.evaluator.reference.interpreter_time import predict_seconds, say_seconds
from tritonsmith.evaluator.schema import OpNode, Status, Task, TaskFacts, Verdict
from tritonsmith.evaluator.tasks.files import at_meant_size

MOST_SECONDS = 60.0
"""The longest predicted verdict at the task's own size."""
_AUDIT = "own size"
"""The audit's name in reports."""
_GIVEN = ("placeholder", "get_attr", "output")
"""Nodes of a trace that compute nothing."""
_WHOLE = ("int64", "int32", "int16", "int8", "uint8")
_REFUSED = (Status.INACCURATE, Status.RACY)
"""What says that a kernel computes something else there. Anything else may be the trouble of a size that is hard to interpret."""
_REASON_CHARACTERS = 200


def audit_own_size(
    task: Task, facts: TaskFacts, ask: Callable[[Task], Verdict], ended: Callable[[], bool] = lambda: False
) -> list[AuditFinding]:
    """The finding about a candidate at the task's own size; none where it was judged there, or where no whole number is computed.

    A kernel that refuses that size is honest, and nothing else is known of it there.

    Args:
        task: at the size that it was judged at.
        facts: at that size, with those at its own.
        ask: the verdict about the candidate at another size.
        ended: whether nobody asks any more.
    """
    if task.meant is None or not any(map(_counts, facts.ops)) or ended():
        return []
    seconds = predict_seconds(facts.full.ops) if facts.full is not None and facts.full.ops else None
    if seconds is None or seconds > MOST_SECONDS:
        takes = "forward needs values" if seconds is None else f"a verdict takes {say_seconds(seconds)} in the interpreter"
        return [AuditFinding(_AUDIT, f"not run ({takes}): whole numbers that leave 32 bits there would not be seen")]
    verdict = ask(at_meant_size(task))
    if verdict.status is Status.OK:
        return [AuditFinding(_AUDIT, "right there")]
    if verdict.status in _REFUSED:
        outcome = "wrong" if verdict.status is Status.INACCURATE else "racy"
        message = (
            f"right at the size that is judged, {outcome} at the task's own size: compute places and whole numbers that may reach 2**31 "
            f"there in 64 bits, as PyTorch does ({verdict.message[:_REASON_CHARACTERS]})"
        )
        return [AuditFinding(_AUDIT, outcome, verdict.status, message)]
    if refusal := read_refusal(verdict):
        return [AuditFinding(_AUDIT, f"not run, the kernel refuses it: {refusal[:_REASON_CHARACTERS]}")]
    return [AuditFinding(_AUDIT, f"not known there ({verdict.status.value}: {verdict.message[:_REASON_CHARACTERS]})")]


def _counts(node: OpNode) -> bool:
    """Whether a node computes whole numbers."""
    return node.op not in _GIVEN and any(spec.dtype in _WHOLE for spec in node.outputs)
