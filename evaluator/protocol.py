"""What every evaluator answers, whichever process or machine judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.limits import Counters
from tritonsmith.evaluator.schema import Hardware, LaunchFacts, Task, TaskFacts, Verdict
from tritonsmith.evaluator.timed_race import RaceReport


class Evaluator(Protocol):
    """Answers questions about tasks and candidates; owns the processes that do. Used as an async context manager."""

    hardware: Hardware

    async def describe(self, task: Task) -> TaskFacts:
        """Run and trace the reference once. Raises TaskError with a sentence for the user."""

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """One verdict about a candidate's text; `profile` is `quick` or `strict`. Raises InfrastructureError only."""

    async def aclose(self) -> None:
        """End every process; safe to call twice."""


@runtime_checkable
class Racing(Protocol):
    """An evaluator that can also race texts, for tuning searches. Without it a search has its first configurations judged in full."""

    async def race(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        """A timed race of texts against the best so far; None where this evaluator has none. Raises InfrastructureError only.

        Args:
            task: what they do.
            incumbent: the text that is best so far.
            entrants: the others.
            facts: what the incumbent launches, from its verdict.
            keep: how many are to be left over.
            seconds: after so many nothing more is timed.
        """
        ...


async def race_with(
    evaluator: Evaluator, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
) -> RaceReport | None:
    """The race of any evaluator; None where it has none. What stands before another evaluator passes a race on with this."""
    return await evaluator.race(task, incumbent, entrants, facts, keep, seconds) if isinstance(evaluator, Racing) else None


@runtime_checkable
class Counting(Protocol):
    """An evaluator that can have a card's counters read while nothing is timed."""

    async def count(self, task: Task, kernel: KernelText) -> Counters | None:
        """What Nsight Compute counts of a working kernel, or the reason why it cannot; None without a card.

        Raises InfrastructureError only.
        """
        ...


@runtime_checkable
class CodeReading(Protocol):
    """An evaluator that can tell what a text compiles to before anything is measured."""

    async def read_code(self, task: Task, kernel: KernelText) -> str:
        """A digest of all kernels that one forward launches, with grids and library calls; empty where the text does not compile or nobody
        can compile for the card. Raises InfrastructureError only."""
        ...
