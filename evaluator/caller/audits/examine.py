"""From a measurement to a verdict: suspicious kernels are judged strictly at once, and those that pass are audited."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tritonsmith.evaluator.caller.audits.findings import AuditFinding, apply_findings, weigh_interpreter, weigh_sanitizer
from tritonsmith.evaluator.processes.following import tell_step
from tritonsmith.evaluator.schema import Status, Task, Verdict
from tritonsmith.evaluator.tasks.files import at_small_size


def examine(
    profile: str, judge: Callable[[str], Verdict], audit: Callable[[Callable[[], bool]], list[AuditFinding]], *, at_once: bool = False
) -> Verdict:
    """The verdict of a profile, with what its result calls for.

    Args:
        profile: what is asked for.
        judge: gives the verdict of a profile, without audits.
        audit: examines what passed the strict profile; it goes no further once what it is given says that nobody asks any more.
        at_once: whether audits begin while the strict profile is judged. They count for what passes it only.
    """
    verdict = judge(profile) if profile != "strict" else _judge_strictly(judge, audit, at_once)
    quarantine = verdict.quarantine if profile != "strict" else ""
    if quarantine:
        verdict = _judge_strictly(judge, audit, at_once)
        return verdict.model_copy(update={"environment": verdict.environment | {"quarantined": quarantine}})
    return verdict


def _judge_strictly(judge: Callable[[str], Verdict], audit: Callable[[Callable[[], bool]], list[AuditFinding]], at_once: bool) -> Verdict:
    refused = threading.Event()
    with ThreadPoolExecutor(1) as auditor:
        early = auditor.submit(audit, refused.is_set) if at_once else None
        try:
            verdict = judge("strict")
            passes = verdict.status is Status.OK
        except BaseException:
            passes = False
            raise
        finally:
            if not passes:
                refused.set()
        if passes:
            tell_step("audits")
            verdict = apply_findings(verdict, early.result() if early else audit(refused.is_set))
    return verdict


def audit_beside_card(task: Task, interpret: Callable[[Task], Verdict], sanitize: Callable[[], tuple[bool, str]]) -> list[AuditFinding]:
    """What the interpreter and compute-sanitizer find about a kernel that is about to win; both look at the same time.

    Args:
        task: what the kernel is judged by.
        interpret: the interpreter's verdict at a size that is small enough for it.
        sanitize: whether the sanitizer found memory errors at the task's own size, and what it says. A kernel may be written for that
            size alone, and would read past the end of smaller inputs.
    """
    with ThreadPoolExecutor(1) as interpreter:
        finding = interpreter.submit(_clock, lambda: _interpret_small(task, interpret))
        sanitizer = _clock(lambda: weigh_sanitizer(*sanitize()))
        return [finding.result(), sanitizer]


def _clock(audit: Callable[[], AuditFinding]) -> AuditFinding:
    """The finding of an audit, with the seconds it took."""
    started = time.monotonic()
    return replace(audit(), seconds=time.monotonic() - started)


def _interpret_small(task: Task, interpret: Callable[[Task], Verdict]) -> AuditFinding:
    small = at_small_size(task)
    if small is None:
        return AuditFinding("interpreter", "not done: the task declares no small size")
    return weigh_interpreter(interpret(small))
