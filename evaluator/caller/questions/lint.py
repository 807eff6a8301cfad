"""Is a task fit to judge kernels by? Asks a process of its own whether a degenerate answer would pass."""

from __future__ import annotations

from tritonsmith.evaluator.caller.questions.process import TaskProcess
from tritonsmith.evaluator.schema import Record, Task

LINT_SECONDS = 300.0
"""Longest time for linting one task."""


class LintFinding(Record):
    """One way in which a task can be passed without doing it, or not be judged at all."""

    name: str
    """`zeros`, `constant`, `other inputs`, `other weights`, `first input`, `rounded`, `input unused`, `weight unused`,
    `inputs do not vary`, `inputs changed`, `random`, `not finite`, `empty`, `no float64 oracle` or `size` (one that SHAPES declares)."""
    reason: str


class LintReport(Record):
    """What the linter found about one task at one size."""

    task: str
    size: str
    findings: tuple[LintFinding, ...] = ()
    notes: tuple[str, ...] = ()
    """What is worth knowing but lets no wrong answer pass."""


def lint_task(task: Task, timeout: float = LINT_SECONDS) -> LintReport:
    """Run the reference a few times on the CPU and ask the acceptance rule about degenerate answers.

    Raises:
        TaskError: the reference does not run; one sentence for the user.
        InfrastructureError: the linter itself failed.
    """
    late = f"linting took longer than {timeout:.0f} s"
    return TaskProcess("tritonsmith.evaluator.oracle.lint", "the linter").ask(task, timeout, late, LintReport.model_validate)
