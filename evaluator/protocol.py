"""What every evaluator answers, whichever process or machine judges."""

from __future__ import annotations

from typing import Protocol

from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Hardware, Task, TaskFacts, Verdict


class Evaluator(Protocol):
    """Answers questions about tasks and candidates; owns the processes that do. Used as an async context manager."""

    hardware: Hardware

    async def describe(self, task: Task) -> TaskFacts:
        """Run and trace the reference once. Raises TaskError with a sentence for the user."""

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """One verdict about a candidate's text; `profile` is `quick` or `strict`. Raises InfrastructureError only."""

    async def aclose(self) -> None:
        """End every process; safe to call twice."""
