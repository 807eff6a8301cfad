"""The records of a suite: its plan (`suite.json`), one row per task, and all of them together (`results.json`)."""

import csv
import io
import math
from enum import StrEnum
from typing import Any

from pydantic import Field

from tritonsmith.evaluator.schema import PrecisionClass, Record
from tritonsmith.graph.storage.outcome import count_words, digits
from tritonsmith.graph.suites.tasks import PlannedTask

FORMAT = 1


class RowState(StrEnum):
    """How far the run of one task is."""

    DONE = "done"
    """It is over, with or without a kernel."""
    WAITING = "waiting"
    """It waits for replies or verdicts in files."""
    FAILED = "failed"
    """It could not be made; `reason` says why. The same command tries it again."""
    OPEN = "open"
    """Not run yet, or not to its end."""


class SuitePlan(Record):
    """What is optimized, and how; fixed when the suite begins."""

    format: int = FORMAT
    tasks: tuple[PlannedTask, ...]
    settings: dict[str, Any] = Field(default_factory=dict)
    """Fields of RunConfig that all runs have in common."""
    precision: PrecisionClass | None = None
    """For tasks whose entry names none; so is `mode`."""
    mode: str | None = None
    parallel: int | None = None
    """Tasks that are worked on at a time; None: `each_card` for each card."""
    each_card: int = 2
    """Tasks at a time for each card, where nobody said how many."""
    model_calls: int = 8
    """Requests to models that are under way at a time, over all tasks."""
    card: str = ""
    """The card that the figures are for; set by the first process."""
    kind: str = ""
    """`measured` or `estimated`; set by the first process."""
    date: str = ""


class SuiteRow(Record):
    """One task: a row of `results.csv`."""

    task: str
    path: str = ""
    state: RowState = RowState.OPEN
    outcome: str = ""
    """A RunOutcome: `faster`, `not_faster`, `kept`, `right`, `not_confirmed`, `no_kernel` or `waiting`; empty before that."""
    reason: str = ""
    """Why it failed, what it waits for, or why the search stopped."""
    score: float | None = None
    """The best right kernel's, against the strongest baseline; of a module that is kept it is no result."""
    kind: str = ""
    comparison: str = ""
    baseline: str = ""
    baselines: int = 0
    """Baselines that were measured or estimated, of which that one is the strongest; 0 in older rows."""
    median_ms: float | None = None
    baseline_ms: float | None = None
    label: str = ""
    precision: str = ""
    size: str = ""
    candidates: int = 0
    seconds: float = 0.0
    """Wall time of the run, in which others went on beside it."""
    tokens: int = 0
    money: float = 0.0
    """US dollars, where prices are known."""
    folder: str = ""
    """The run's, relative to the suite's."""


class SuiteResults(Record):
    """All rows with their totals."""

    plan: SuitePlan
    rows: tuple[SuiteRow, ...]
    date: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """How many tasks ended in which way, without those ways that none took."""
        words = [row.outcome.replace("_", " ") if row.state is RowState.DONE else row.state.value for row in self.rows]
        return {word: words.count(word) for word in dict.fromkeys(words)}

    @property
    def faster(self) -> int:
        """Tasks with a kernel that is faster than every baseline."""
        return sum(row.state is RowState.DONE and row.outcome == "faster" for row in self.rows)

    @property
    def mean(self) -> float | None:
        """Geometric mean of what a user has afterwards: the score where it is proven faster, else 1. None before a run is over."""
        done = [row for row in self.rows if row.state is RowState.DONE]
        gains = [row.score if row.outcome == "faster" and row.score else 1.0 for row in done]
        return math.exp(sum(map(math.log, gains)) / len(gains)) if gains else None

    @property
    def kept(self) -> int:
        """Tasks whose module is best kept."""
        return sum(row.state is RowState.DONE and row.outcome == "kept" for row in self.rows)

    @property
    def plain_mean(self) -> float | None:
        """Geometric mean of the scores as they are, over tasks with a right kernel; None without one."""
        scores = [row.score for row in self.rows if row.state is RowState.DONE and row.score]
        return math.exp(sum(map(math.log, scores)) / len(scores)) if scores else None

    @property
    def mean_words(self) -> str:
        """Both means in a sentence or two; empty before a run is over."""
        if self.mean is None:
            return ""
        kept = f" ({self.kept} of them {'is' if self.kept == 1 else 'are'} a module that is kept)" if self.kept else ""
        plain = "" if self.plain_mean is None else f" Of the scores as they are: {digits(self.plain_mean)}x."
        return f"Geometric mean over tasks that are over, counting 1 where no kernel is proven faster{kept}: {digits(self.mean)}x.{plain}"

    @property
    def headline(self) -> str:
        """`7 of 12 tasks FASTER (estimates for NVIDIA H200), 1 failed`."""
        for_card = f" ({'measured on' if self.plan.kind == 'measured' else 'ESTIMATES for'} {self.plan.card})" if self.plan.card else ""
        others = [f"{number} {word}" for word, number in self.counts.items() if word != "faster"]
        return ", ".join([f"{self.faster} of {count_words(len(self.rows), 'task')} FASTER{for_card}", *others])


def results_csv(results: SuiteResults) -> str:
    """The rows as CSV, with a heading."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(SuiteRow.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.model_dump(mode="json") for row in results.rows)
    return text.getvalue()
