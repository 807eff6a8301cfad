"""What every evaluator answers, whichever process or machine judges."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import Hardware, LaunchFacts, Record, Task, TaskFacts, TimingKind, Verdict

GAIN = 1.005
"""A ratio that is worth having; races tell smaller differences apart by luck only."""


class Fate(StrEnum):
    """What became of one text."""

    PRUNED = "pruned"
    """It does not compile or cannot be launched, or spills far more than the incumbent: found by compiling, without the card."""
    FAILED = "failed"
    """It does not run, or its first checked call is wrong."""
    SLOWER = "slower"
    """It was timed, or estimated, and dropped."""
    ALIKE = "alike"
    """Its estimate cannot be told from the incumbent's."""
    KEPT = "kept"
    """It was among the best to the end."""
    UNTIMED = "untimed"
    """The seconds of the race were spent before its turn."""


class RaceFigures(Record):
    """What a race found about one text."""

    reason: str = ""
    """Why it was pruned or failed, in one sentence."""
    ratio: float | None = None
    """The incumbent's time over its own: above 1 it is faster. By a race alone nothing is called fast."""
    interval: tuple[float, float] | None = None
    """About 95 % of the ratio; None for an estimate."""
    pairs: int = 0
    """Pairs of calls."""
    registers: int | None = None
    """The most registers per thread of its kernels."""
    spills: int | None = None
    """The most bytes of local memory per thread of its kernels."""
    shared_memory: int | None = None
    """The most bytes of shared memory per program of its kernels."""


class RaceRow(RaceFigures):
    """One text of a race."""

    sha: str
    fate: Fate


class RaceReport(Record):
    """The answer to one race."""

    incumbent: str
    """Sha of the text that all others ran against."""
    kind: TimingKind
    rows: tuple[RaceRow, ...] = ()
    """In the order in which the texts were given."""
    seconds: float = 0.0
    note: str = ""
    """Why nothing was timed, where nothing was."""


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
