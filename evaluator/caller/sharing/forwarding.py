"""The base of evaluators that stand before another one: whatever they do not answer themselves, the other one answers."""

from __future__ import annotations

from collections.abc import Sequence

from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import CompilerSeed, Evaluator, RaceReport
from tritonsmith.evaluator.records.contest import Contest, ContestReport
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import LaunchFacts, Task, TaskFacts, Verdict


class ForwardingEvaluator(Evaluator):
    """Passes every question on, and says of itself what the other evaluator says. A wrapper overrides what it changes.

    Args:
        inner: the other evaluator.
    """

    def __init__(self, inner: Evaluator) -> None:
        self.inner = inner
        self.hardware, self.parallel, self.admits, self.cards = inner.hardware, inner.parallel, inner.admits, inner.cards
        self.at_once = inner.at_once

    async def describe(self, task: Task) -> TaskFacts:
        """The other evaluator's facts. Raises TaskError."""
        return await self.inner.describe(task)

    def describe_ahead(self, task: Task) -> None:
        """Passes the hint on."""
        self.inner.describe_ahead(task)

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """The other evaluator's verdict. Raises InfrastructureError."""
        return await self.inner.evaluate(task, kernel, profile)

    async def race(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        """The other evaluator's race; None where it has none. Raises InfrastructureError."""
        return await self.inner.race(task, incumbent, entrants, facts, keep, seconds)

    async def race_regions(self, task: Task, contests: Sequence[Contest], seconds: float) -> ContestReport:
        """What the other evaluator's card takes for regions. Raises InfrastructureError."""
        return await self.inner.race_regions(task, contests, seconds)

    async def count(self, task: Task, kernel: KernelText) -> Counters | None:
        """What the other evaluator's card counts; None where it cannot be asked. Raises InfrastructureError."""
        return await self.inner.count(task, kernel)

    async def read_code(self, task: Task, kernel: KernelText) -> str:
        """What the other evaluator's compilers say. Raises InfrastructureError."""
        return await self.inner.read_code(task, kernel)

    async def write_seed(self, task: Task) -> CompilerSeed | None:
        """The other evaluator's seed; None where it has no way of its own. Raises TaskError or InfrastructureError."""
        return await self.inner.write_seed(task)

    def knows(self, task: Task, kernel: KernelText, profile: str = "quick") -> bool:
        """Whether the other evaluator has the verdict already."""
        return self.inner.knows(task, kernel, profile)

    async def settle(self) -> None:
        """Wait for verdicts that are under way there."""
        await self.inner.settle()

    async def aclose(self) -> None:
        """End the other evaluator."""
        await self.inner.aclose()
