"""What further examinations say about a kernel that measured well, and what becomes of its verdict. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.evaluator.schema import Status, Verdict


@dataclass(frozen=True)
class Finding:
    """The outcome of one audit; with a status it refuses the kernel."""

    audit: str
    outcome: str
    status: Status | None = None
    message: str = ""


def of_interpreter(verdict: Verdict) -> Finding:
    """A race that this card did not show still refuses a kernel; what the interpreter cannot run is only noted."""
    if verdict.status is Status.RACY:
        return Finding("interpreter", "racy", Status.RACY, f"correct on the card, but in the interpreter {verdict.message}")
    return Finding("interpreter", "no race found" if verdict.status is Status.OK else f"{verdict.status.value}: {verdict.message[:300]}")


def of_sanitizer(found: bool, text: str) -> Finding:
    """Memory errors that the results did not show refuse a kernel."""
    if found:
        return Finding("compute-sanitizer", text, Status.RUNTIME_ERROR, f"the results are right, but compute-sanitizer reports: {text}")
    return Finding("compute-sanitizer", text)


def settled(verdict: Verdict, findings: list[Finding]) -> Verdict:
    """The verdict after its audits: refused by the first finding that refuses, else as it was, out of quarantine, with every outcome."""
    outcomes = {one.audit: one.outcome for one in findings}
    if verdict.quarantine:
        outcomes["quarantine"] = verdict.quarantine
    environment = verdict.environment | {"audit": verdict.environment.get("audit", {}) | outcomes}
    refusing = next((one for one in findings if one.status is not None), None)
    if refusing is not None and refusing.status is not None:
        return Verdict(
            status=refusing.status, sha=verdict.sha, profile=verdict.profile, message=refusing.message, environment=environment,
            seconds=verdict.seconds, correctness=verdict.correctness,
        )  # fmt: skip
    return verdict.model_copy(update={"environment": environment, "quarantine": ""})
