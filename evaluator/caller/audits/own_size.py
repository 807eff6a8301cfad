"""A promoted candidate at the task's own size, where it was judged at a smaller one and the task computes whole numbers.

Whole numbers that follow from places grow with the size. A kernel that has them in 32 bits may be right at a small size and wrong at the
task's own: PyTorch's places have 64 bits. So it is called there too, as far as the interpreter can do that.
"""

from __future__ import annotations

from collections.abc import Callable

from tritonsmith.evaluator.caller.audits.findings import AuditFinding, read_refusal
from tritonsmith.evaluator.errors import TaskError
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
    task: Task,
    facts: TaskFacts,
    ask: Callable[[Task], Verdict],
    describe: Callable[[Task], TaskFacts],
    ended: Callable[[], bool] = lambda: False,
) -> list[AuditFinding]:
    """The finding about a candidate at the task's own size; none where it was judged there, or where no whole number is computed.

    Where the whole task takes too long there, each of its sizes has its own value in turn, and the others stay small.
    A kernel that refuses a size is honest, and nothing else is known of it there.

    Args:
        task: at the size that it was judged at.
        facts: at that size, with those at its own.
        ask: the verdict about the candidate at another size.
        describe: the facts of the task at another size; raises TaskError where it does not run.
        ended: whether nobody asks any more.
    """
    if task.meant is None or not any(map(_counts, facts.ops)) or ended():
        return []
    seconds = predict_seconds(facts.full.ops) if facts.full is not None and facts.full.ops else None
    if seconds is not None and seconds <= MOST_SECONDS:
        return [_read(ask(at_meant_size(task)), "at the task's own size")]
    takes = "forward needs values" if seconds is None else f"a verdict takes {say_seconds(seconds)} in the interpreter"
    findings = _audit_in_turn(task, ask, describe, ended)
    if findings and findings[-1].status:
        return findings[-1:]
    unseen = f"not run as a whole ({takes}): whole numbers that leave 32 bits there alone would not be seen"
    return [AuditFinding(_AUDIT, "; ".join([*(finding.outcome for finding in findings), unseen]))]


def _audit_in_turn(
    task: Task, ask: Callable[[Task], Verdict], describe: Callable[[Task], TaskFacts], ended: Callable[[], bool]
) -> list[AuditFinding]:
    """The findings where one size at a time is the task's own, up to the first refusal and for `MOST_SECONDS` in all."""
    assert task.meant is not None, "a smaller size stands for another"
    findings: list[AuditFinding] = []
    left = MOST_SECONDS
    for name in task.overrides if len(task.overrides) > 1 else ():
        others = {other: value for other, value in task.overrides.items() if other != name}
        own = {name: task.meant[name]} if name in task.meant else {}
        sized = task.model_copy(update={"overrides": {**others, **own}, "size": "custom", "meant": None})
        try:
            seconds = predict_seconds(describe(sized).ops)
        except TaskError:
            continue  # sizes that only go together
        if seconds > left or ended():
            continue
        left -= seconds
        findings.append(_read(ask(sized), f"with {name} of the task's own size"))
        if findings[-1].status:
            break
    return findings


def _read(verdict: Verdict, where: str) -> AuditFinding:
    """What a verdict at another size says."""
    if verdict.status is Status.OK:
        return AuditFinding(_AUDIT, f"right {where}")
    if verdict.status in _REFUSED:
        outcome = "wrong" if verdict.status is Status.INACCURATE else "racy"
        message = (
            f"right at the size that is judged, {outcome} {where}: compute places and whole numbers that may reach 2**31 "
            f"there in 64 bits, as PyTorch does ({verdict.message[:_REASON_CHARACTERS]})"
        )
        return AuditFinding(_AUDIT, outcome, verdict.status, message)
    if refusal := read_refusal(verdict):
        return AuditFinding(_AUDIT, f"not run {where}, the kernel refuses it: {refusal[:_REASON_CHARACTERS]}")
    return AuditFinding(_AUDIT, f"not known {where} ({verdict.status.value}: {verdict.message[:_REASON_CHARACTERS]})")


def _counts(node: OpNode) -> bool:
    """Whether a node computes whole numbers."""
    return node.op not in _GIVEN and any(spec.dtype in _WHOLE for spec in node.outputs)
