"""One evaluator behind many runs: each run has a view of it, and views take fair turns."""

from __future__ import annotations

from collections.abc import Sequence

from tritonsmith.evaluator.caller.sharing.forwarding import ForwardingEvaluator
from tritonsmith.evaluator.caller.sharing.turns import PATIENCE, FairTurns
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Evaluator, RaceReport
from tritonsmith.evaluator.records.contest import Contest, ContestReport
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import LaunchFacts, Task, TaskFacts, Verdict


class SharedEvaluator:
    """One evaluator for all runs of a process; no more questions at a time than it can use. It stays open when a run ends.

    Args:
        inner: the evaluator.
    """

    def __init__(self, inner: Evaluator) -> None:
        self.inner = inner
        self.parallel = max(1, inner.parallel)
        self.admits = max(self.parallel, inner.admits)
        self.cards = max(1, inner.cards)
        self.turns = FairTurns(self.admits, self.cards, PATIENCE if inner.hardware.present else 0.0)

    def view(self, owner: str) -> EvaluatorView:
        """The evaluator as one run sees it."""
        return EvaluatorView(self, owner)


class EvaluatorView(ForwardingEvaluator):
    """The evaluator of one of several runs. What is asked of a card waits for a turn; compilers need none.

    Args:
        shared: what answers.
        owner: names the run among those that wait for a turn.
    """

    def __init__(self, shared: SharedEvaluator, owner: str) -> None:
        super().__init__(shared.inner)
        self.parallel, self.admits, self.cards = shared.parallel, shared.admits, shared.cards
        self.broken = ""
        """Why the machinery failed twice on one kernel: what the run found is then no result."""
        self._failed: set[tuple[str, str]] = set()
        self._asked: set[str] = set()
        """Tasks that this run asked about."""
        self._shared, self._owner = shared, owner

    async def describe(self, task: Task) -> TaskFacts:
        """The facts of the task. The trace begins while the run waits for its turn. Raises TaskError."""
        if self.hardware.present:  # else it is the trace that takes the turn
            self.inner.describe_ahead(task)
        async with self._shared.turns.turn(self._owner, self._note(task)):
            return await super().describe(task)

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """The verdict about a text. Raises InfrastructureError."""
        try:
            return await self._judge(task, kernel, profile)
        except InfrastructureError as error:
            key = (kernel.sha, profile)
            if key in self._failed:
                self.broken = f"the evaluator failed twice on kernel {key[0]}: {error}"
            self._failed.add(key)
            raise

    async def race(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        """The race of the texts, in a turn like a verdict's; None where the evaluator has none. Raises InfrastructureError."""
        async with self._shared.turns.turn(self._owner, self._note(task)):
            return await super().race(task, incumbent, entrants, facts, keep, seconds)

    async def race_regions(self, task: Task, contests: Sequence[Contest], seconds: float) -> ContestReport:
        """What regions take on the card, in this run's turn. Raises InfrastructureError."""
        async with self._shared.turns.turn(self._owner, self._note(task)):
            return await super().race_regions(task, contests, seconds)

    async def count(self, task: Task, kernel: KernelText) -> Counters | None:
        """What the card counts, in this run's turn; None where it cannot be asked."""
        async with self._shared.turns.turn(self._owner, self._note(task)):
            return await super().count(task, kernel)

    async def _judge(self, task: Task, kernel: KernelText, profile: str) -> Verdict:
        async with self._shared.turns.turn(self._owner, self._note(task)):
            return await super().evaluate(task, kernel, profile)

    def _note(self, task: Task) -> str:
        self._asked.add(task.sha)
        return task.sha

    def leave(self) -> None:
        """The run is over: no card waits for its next question."""
        for task in self._asked:
            self._shared.turns.leave(task)

    async def aclose(self) -> None:
        """Nothing: other runs use the evaluator."""
