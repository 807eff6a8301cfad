"""What a run keeps of its tuning searches, and how a policy wants kernels tuned."""

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from tritonsmith.evaluator.protocol import RaceFigures
from tritonsmith.evaluator.schema import Record, TimingKind


class Tuning(StrEnum):
    """Who finds the variants of a tuning stage."""

    SEARCH = "search"
    """A measured search over the kernel's space. Only a text without anything to vary is given to its author."""
    MODEL = "model"
    """The author: a model writes variants, the built-in author lists neighbours of a recipe's settings."""
    BOTH = "both"
    NONE = "none"


class SearchTrial(RaceFigures):
    """One configuration that a search tried, with what its race found; without a card the ratio is an estimate's."""

    values: dict[str, int | float | bool | str | None] = Field(default_factory=dict)
    """What differs from the kernel that was searched."""
    sha: str = ""
    fate: str = ""
    """`pruned`, `failed`, `slower`, `kept`, `alike`, `untimed`, or `foreseen`: no estimate could tell it."""
    candidate: str | None = None
    """Its id where it got a full verdict."""


class Search(Record):
    """One search: a stage of tuning, or all three at once."""

    stage: str
    """`tune_grid`, `tune_block` or `tune_memory`; `tune_grid` where one search covers all three."""
    joint: bool = False
    base: str
    """The candidate that was searched around."""
    kind: TimingKind | None = None
    """`measured` for races on a card, `estimated` without one; None where nothing was raced."""
    space: dict[str, list[int | float | bool | str | None]] = Field(default_factory=dict)
    """Values by parameter."""
    linked: dict[str, list[str]] = Field(default_factory=dict)
    """Options of a later stage that were proposed together with these parameters."""
    origins: dict[str, str] = Field(default_factory=dict)
    """What each parameter was read from."""
    size: int = 0
    """Configurations of the space."""
    proposed_by: str = ""
    """`all` where every configuration is tried, else `optuna`."""
    trials: tuple[SearchTrial, ...] = ()
    seconds: float = 0.0
    """Spent on compiling and racing."""
    ended: str = ""
    """Why it ended, as a sentence."""
    unread: tuple[str, ...] = ()
    """What the text states about its tunables and could not be used."""

    def count(self, *fates: str) -> int:
        """Trials with one of these fates."""
        return sum(trial.fate in fates for trial in self.trials)

    @property
    def finalists(self) -> tuple[SearchTrial, ...]:
        """Trials that got full verdicts."""
        return tuple(trial for trial in self.trials if trial.candidate)

    def sentence(self) -> str:
        """The search in one line; why nothing was tried, where nothing was."""
        if not self.trials:
            return f"nothing searched: {self.ended}"
        unit = "raced" if self.kind is TimingKind.MEASURED else "ranked by estimate"
        several = "s" * (self.size != 1)
        words = [f"{len(self.trials)} of {self.size} configuration{several} tried", f"{self.count('pruned')} pruned by compiling"]
        alike = self.count("foreseen", "alike")
        words += [f"{alike} that the estimate cannot tell from the best"] if alike else []
        words += [f"{self.count('failed')} wrong or failing"] if self.count("failed") else []
        words += [f"{self.count('slower', 'kept')} {unit}", f"{len(self.finalists)} judged in full"]
        return ", ".join(words)


def configurations_tried(searches: Mapping[str, Search]) -> int:
    """Configurations of all searches of a run."""
    return sum(len(search.trials) for search in searches.values())


def seconds_searched(searches: Mapping[str, Search]) -> float:
    """Seconds of all searches of a run."""
    return sum(search.seconds for search in searches.values())
