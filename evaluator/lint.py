"""Is a task fit to judge kernels by? Asks a process of its own whether a degenerate answer would pass; the caller never loads torch."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from tritonsmith.evaluator.describe import ask_process
from tritonsmith.evaluator.errors import InfrastructureError, TaskError
from tritonsmith.evaluator.schema import Record, Task

LINT_SECONDS = 300.0

_Answer: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


class Finding(Record):
    """One way in which a task can be passed without doing it, or not be judged at all."""

    name: str
    """`zeros`, `constant`, `other inputs`, `other weights`, `first input`, `rounded`, `input unused`, `weight unused`,
    `inputs do not vary`, `inputs changed`, `random`, `not finite`, `empty`, `no float64 oracle` or `size` (one that SHAPES declares)."""
    reason: str


class LintReport(Record):
    """What the linter found about one task at one size."""

    task: str
    size: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    """What is worth knowing but lets no wrong answer pass."""


def lint_task(task: Task, timeout: float = LINT_SECONDS) -> LintReport:
    """Run the reference a few times on the CPU and ask the acceptance rule about degenerate answers.

    Raises:
        TaskError: the reference does not run; one sentence for the user.
        InfrastructureError: the linter itself failed.
    """
    late = f"linting took longer than {timeout:.0f} s"
    out, log, code = ask_process("tritonsmith.evaluator.lint_process", task, timeout, late)
    try:
        answer = _Answer.validate_json(out)
        if "error" in answer:
            raise TaskError(str(answer["error"]))
        return LintReport.model_validate(answer)
    except ValidationError:
        tail = log.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise InfrastructureError(f"the linter failed (exit code {code}): {tail[0][:300]}") from None
