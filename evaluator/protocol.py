"""What every evaluator answers, whichever process or machine judges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum

from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.records.contest import NO_CARD, Contest, ContestReport
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


class CompilerSeed(Record):
    """A compiler's text for a task as one self-contained file, or why there is none."""

    text: str = ""
    reason: str = ""
    """Half a sentence; empty where there is a text."""


class Evaluator(ABC):
    """Answers questions about tasks and candidates; owns the processes that do.

    An evaluator derives from this class and writes `hardware`, `describe` and `evaluate`; the rest says what it can do besides, and is
    there with the answer of one that cannot. `caller/sharing/forwarding.py` has the base of those that stand before another evaluator.
    """

    hardware: Hardware
    """The card that it judges for."""
    parallel: int = 1
    """How many questions it answers side by side."""
    admits: int = 1
    """How many questions it can use at a time, where these are more than `parallel`: one is compiled while another is measured."""
    cards: int = 1
    """How many cards it has."""
    at_once: bool = True
    """Whether an answer comes in this process; else a question waits for a later one, and none is asked that nobody needs."""

    @abstractmethod
    async def describe(self, task: Task) -> TaskFacts:
        """Run and trace the reference once. Raises TaskError with a sentence for the user."""

    def describe_ahead(self, task: Task) -> None:
        """Begin what `describe` needs no card for, where that can go on beside other work; a hint, which may do nothing."""
        del task

    @abstractmethod
    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """One verdict about a candidate's text; `profile` is `quick` or `strict`. Raises InfrastructureError only."""

    async def race(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        """A timed race of texts against the best so far; None where this evaluator has none. Raises InfrastructureError only.

        Without races a tuning search has its first configurations judged in full.

        Args:
            task: what they do.
            incumbent: the text that is best so far.
            entrants: the others.
            facts: what the incumbent launches, from its verdict.
            keep: how many are to be left over.
            seconds: after so many nothing more is timed.
        """
        del task, incumbent, entrants, facts, keep, seconds
        return None

    async def race_regions(self, task: Task, contests: Sequence[Contest], seconds: float) -> ContestReport:
        """What each way to write some regions of a task takes on the card; a note in place of times where there is none.

        Raises InfrastructureError only.

        Args:
            task: what they are regions of.
            contests: the most important ones first.
            seconds: after so many no further contest begins.
        """
        del task, contests, seconds
        return ContestReport(note=NO_CARD)

    async def count(self, task: Task, kernel: KernelText) -> Counters | None:
        """What Nsight Compute counts of a working kernel, or the reason why it cannot; None without a card.

        Raises InfrastructureError only.
        """
        del task, kernel
        return None

    async def read_code(self, task: Task, kernel: KernelText) -> str:
        """A digest of all kernels that one forward launches, with grids and library calls; empty where the text does not compile or nobody
        can compile for the card. Raises InfrastructureError only."""
        del task, kernel
        return ""

    async def write_seed(self, task: Task) -> CompilerSeed | None:
        """A compiler's text for the task; None: it has no way of its own, and `questions/compiler_seed.py` has this machine write it.

        Raises TaskError or InfrastructureError.
        """
        del task
        return None

    def knows(self, task: Task, kernel: KernelText, profile: str = "quick") -> bool:
        """Whether the verdict is there already, so that nothing is judged for it."""
        del task, kernel, profile
        return False

    async def settle(self) -> None:  # noqa: B027 - most keep nothing
        """Wait for verdicts that are under way, whose callers may have gone, where these are kept."""

    async def aclose(self) -> None:  # noqa: B027 - many run nothing
        """End every process; safe to call twice."""
