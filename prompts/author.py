"""The author: it writes, repairs, analyses and tunes kernels. Nodes never know whether it is a model or our recipes."""

from typing import Protocol, runtime_checkable

from pydantic import Field

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.records.contest import Contest, ContestTimes
from tritonsmith.evaluator.schema import Allow, Candidate, Hardware, Record, Stage, Task, TaskFacts, Verdict
from tritonsmith.prompts.analysis import Analysis


class Attempt(Record):
    """One earlier candidate of the same line with its verdict, oldest first in a brief."""

    candidate: Candidate
    source: str
    verdict: Verdict | None = None
    """Its `advice` is what reading the text alone suggests; hints, not findings."""
    refusal: str = ""
    """Why it may not win although it works, such as that a library does the work; empty when it may."""
    promise: str = ""
    """What its analysis promised and what was measured, in one sentence; empty where nothing was promised."""


class Example(Record):
    """A kernel that was proven right, shown as a worked example."""

    title: str
    """What it does, as the end of a sentence."""
    source: str
    reference: str = ""
    """The PyTorch module that it replaces; empty where the title says enough."""
    note: str = ""
    """What to learn from it, or what came of it."""
    start: bool = False
    """Whether it is a kernel of the very same task, to begin from."""


class Recalled(Record):
    """What earlier runs tell of a task."""

    examples: tuple[Example, ...] = ()
    """Verified kernels that fit it, best first."""
    failures: tuple[str, ...] = ()
    """Attempts at tasks of the same kind that failed, a line each."""


class Raced(Record):
    """What the ways to write some regions take, as raced on a card."""

    times: dict[str, ContestTimes] = Field(default_factory=dict)
    """By the key of a contest."""
    seconds: float = 0.0
    note: str = ""
    """Why nothing was raced, where nothing was."""


class Brief(Record):
    """Everything an author may know for one request."""

    task: Task
    facts: TaskFacts
    hardware: Hardware
    branch: int = 0
    """Index of the seed; an author uses it to make its seeds differ."""
    current: Attempt | None = None
    """The candidate to repair, analyse, optimize or tune."""
    history: tuple[Attempt, ...] = ()
    analysis: Analysis | None = None
    stage: Stage = Stage.SEED
    """For tuning: which of the three stages."""
    allow: Allow = Allow.HYBRID
    """Which labels may win."""
    examples: tuple[Example, ...] = ()
    """Verified kernels of earlier runs that fit this task, best first; empty without a memory."""
    failures: tuple[str, ...] = ()
    """Attempts of earlier runs at tasks of the same kind that failed, a line each."""
    raced: Raced | None = None
    """For analyses: the race that the author asked for; None where nobody asked."""


class Draft(Record):
    """A kernel text with the author's reason."""

    source: str
    rationale: str
    author: str = ""
    """Who wrote it, where several authors write."""
    recipe: str = ""
    replaces: str | None = None
    """Id of an autotuned candidate whose place it takes with plain constants, unless it is clearly slower."""
    settings: dict[str, int | float | bool | str] = Field(default_factory=dict)


class AuthorError(UsageError):
    """The author cannot serve this task; the message says why and names the way out."""


class Author(Protocol):
    """Five requests; every one may raise AuthorError with a sentence for the user."""

    name: str
    """As the user named it: `offline` or `openai:NAME`."""

    async def seed(self, brief: Brief) -> Draft:
        """A first kernel; differs by `brief.branch`."""
        ...

    async def repair(self, brief: Brief) -> Draft | None:
        """Repair `brief.current`, which failed or (see its `refusal`) may not win; None when nothing is left to try."""
        ...

    async def analyze(self, brief: Brief) -> Analysis:
        """Say why `brief.current` is slow and propose exactly one change."""
        ...

    async def optimize(self, brief: Brief) -> Draft | None:
        """Write what `brief.analysis` proposes; None when the author cannot."""
        ...

    async def tune(self, brief: Brief) -> tuple[Draft, ...]:
        """Variants of `brief.current` for `brief.stage`; empty when there is nothing to vary."""
        ...


@runtime_checkable
class Computing(Protocol):
    """An author that computes its analyses from times and facts, so that no kernel has to be counted for them."""

    computes_analyses: bool


@runtime_checkable
class Racing(Protocol):
    """An author that cuts a forward by measured times, and knows which regions to race."""

    def list_contests(self, brief: Brief) -> tuple[Contest, ...]:
        """The regions of `brief.current` that are worth a race, each with the ways to write it; the most important ones first."""
        ...


@runtime_checkable
class Choosy(Protocol):
    """An author that knows from a task's facts whether it can write it, so that nobody asks it in vain."""

    def require(self, task: Task, facts: TaskFacts, hardware: Hardware) -> None:
        """Raises AuthorError, which says what it cannot write and names the way out."""
        ...
