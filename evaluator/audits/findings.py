"""What further examinations say about a kernel that measured well, and what becomes of its verdict."""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.evaluator.schema import Status, Verdict

_REASON_CHARACTERS = 300
"""Length of the interpreter's message in an outcome."""


@dataclass(frozen=True)
class AuditFinding:
    """The outcome of one audit; with a status it refuses the kernel."""

    audit: str
    outcome: str
    status: Status | None = None
    message: str = ""


def weigh_interpreter(verdict: Verdict) -> AuditFinding:
    """The finding of the interpreter. A race refuses a kernel, also where the card did not show it; other failures are only noted."""
    if verdict.status is Status.RACY:
        return AuditFinding("interpreter", "racy", Status.RACY, f"correct on the card, but in the interpreter {verdict.message}")
    failure = f"{verdict.status.value}: {verdict.message[:_REASON_CHARACTERS]}"
    return AuditFinding("interpreter", "no race found" if verdict.status is Status.OK else failure)


def weigh_sanitizer(found: bool, text: str) -> AuditFinding:
    """The finding of compute-sanitizer: memory errors refuse a kernel, also where the results did not show them."""
    if found:
        message = f"the results are right, but compute-sanitizer reports: {text}"
        return AuditFinding("compute-sanitizer", text, Status.RUNTIME_ERROR, message)
    return AuditFinding("compute-sanitizer", text)


def apply_findings(verdict: Verdict, findings: list[AuditFinding]) -> Verdict:
    """The verdict after its audits: refused by the first finding that refuses, else as it was and out of quarantine.

    Its environment lists every outcome.
    """
    outcomes = {finding.audit: finding.outcome for finding in findings}
    if verdict.quarantine:
        outcomes["quarantine"] = verdict.quarantine
    environment = verdict.environment | {"audit": verdict.environment.get("audit", {}) | outcomes}
    refusing = next((finding for finding in findings if finding.status is not None), None)
    if refusing is not None and refusing.status is not None:
        return Verdict(
            status=refusing.status, sha=verdict.sha, profile=verdict.profile, message=refusing.message, environment=environment,
            seconds=verdict.seconds, correctness=verdict.correctness,
        )  # fmt: skip
    return verdict.model_copy(update={"environment": environment, "quarantine": ""})
