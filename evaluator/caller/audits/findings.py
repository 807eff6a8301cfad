"""What further examinations say about a kernel that measured well, and what becomes of its verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tritonsmith.evaluator.schema import SizeScore, Status, Verdict

_REFUSAL = re.compile(r"(?:line \d+: )?ValueError: (this kernel is made for .*)")
"""How a verdict's message tells of a kernel that refuses a size: recipes do so, and prompts ask models for it."""
_REASON_CHARACTERS = 300
"""Length of the interpreter's message in an outcome."""


@dataclass(frozen=True)
class AuditFinding:
    """The outcome of one audit; with a status it refuses the kernel."""

    audit: str
    outcome: str
    status: Status | None = None
    message: str = ""
    seconds: float = 0.0
    """What the audit took."""
    sizes: tuple[SizeScore, ...] = ()
    """Other sizes at which the kernel is right."""


def read_refusal(verdict: Verdict) -> str:
    """The sentence by which a kernel says that it is not made for a size; empty where it failed in another way, or did not fail.

    Such a kernel is honest: it computes nothing wrong. The sentence is a candidate's own, so no status depends on it.
    """
    found = _REFUSAL.match(verdict.message) if verdict.status is Status.RUNTIME_ERROR else None
    return found[1] if found else ""


def weigh_interpreter(verdict: Verdict) -> AuditFinding:
    """The finding of the interpreter. A race refuses a kernel, also where the card did not show it; other failures are only noted."""
    if refusal := read_refusal(verdict):
        return AuditFinding("interpreter", f"not run, the kernel refuses the small size: {refusal[:_REASON_CHARACTERS]}")
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
    seconds = {finding.audit: round(finding.seconds, 3) for finding in findings if finding.seconds}
    environment = verdict.environment | {"audit": verdict.environment.get("audit", {}) | outcomes, "audit_seconds": seconds}
    refusing = next((finding for finding in findings if finding.status is not None), None)
    if refusing is not None and refusing.status is not None:
        return Verdict(
            status=refusing.status, sha=verdict.sha, profile=verdict.profile, message=refusing.message, environment=environment,
            seconds=verdict.seconds, correctness=verdict.correctness,
        )  # fmt: skip
    sizes = tuple(size for finding in findings for size in finding.sizes)
    return verdict.model_copy(update={"environment": environment, "quarantine": "", "sizes": sizes})
