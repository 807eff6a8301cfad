"""The label of a kernel after a second view of what its forward launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tritonsmith.evaluator.channel.report import ForwardReport
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.schema import Label, LaunchFacts, Status, TaskFacts, Verdict

_FAR_FROM_NOTHING = 0.5
"""Part of the task's work that torch operators must do before a kernel is no longer called one."""
_NOTE_CHARACTERS = 300
"""Length of a note in the verdict."""
_MESSAGE_CHARACTERS = 4000
"""Length of a message in the verdict."""


def add_second_opinion(verdict: Verdict, ask: Callable[[bool], dict[str, Any]], task: Callable[[], TaskFacts]) -> Verdict:
    """The verdict with the less flattering of two labels: the profiler's in the candidate's process, and the compiler's view.

    A candidate would have to fool both processes to have torch's operators pass for its own kernels. Without a second view the label is
    at most hybrid: nothing but the candidate's own process says that it is a kernel, and which share of the time it has.

    Args:
        verdict: what the card said.
        ask: gives a report of `confined/compiler` or raises InfrastructureError; where the process died it is called again, with True.
        task: gives what the task's reference costs.
    """
    if verdict.status is not Status.OK or verdict.label is Label.LIBRARY:
        return verdict
    for again in (False, True):
        try:
            report = ask(again)
            if Status(report["status"]) is Status.OK:
                return _choose_label(verdict, report, task())
        except InfrastructureError as error:
            why = str(error)
        except (TypeError, ValueError, OverflowError):  # the process runs the candidate
            why = "the compiler's report is unreadable"
            break
        else:
            why = f"{report['status']}: {report.get('message', '')}"
            if Status(report["status"]) is not Status.CRASHED:
                break
    note = f"not had, so that the label is not above hybrid: {why}"[:_NOTE_CHARACTERS]
    facts = verdict.facts.model_copy(update={"own_time_share": None})
    return verdict.model_copy(
        update={"label": Label.HYBRID, "facts": facts, "environment": verdict.environment | {"second_opinion": note}}
    )


def _choose_label(verdict: Verdict, report: dict[str, Any], task: TaskFacts) -> Verdict:
    seen = ForwardReport.from_dict(report)
    if not seen.torch_ops:
        return verdict
    most = seen.torch_flops >= _FAR_FROM_NOTHING * task.flops > 0 or seen.torch_bytes >= _FAR_FROM_NOTHING * task.min_bytes > 0
    label = Label.LIBRARY if not report.get("kernels") else Label.HYBRID if most else verdict.label
    if label is verdict.label:
        return verdict
    facts: LaunchFacts = verdict.facts.model_copy(update={"library_calls": {**seen.torch_ops, **verdict.facts.library_calls}})
    note = "compiled without the card, forward calls torch operators that do most of the task's work"
    return verdict.model_copy(update={"label": label, "facts": facts, "environment": verdict.environment | {"second_opinion": note}})


def find_refusal(report: dict[str, Any]) -> tuple[Status, str] | None:
    """Status and message of a candidate that the card need not see: it does not import or compile, or cannot be launched."""
    status = Status(report["status"])
    if status in (Status.COMPILE_ERROR, Status.LAUNCH_ERROR):
        return status, str(report.get("message", ""))[:_MESSAGE_CHARACTERS]
    return None
