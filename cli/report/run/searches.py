"""Tuning searches of a run, for pages and tables: every configuration that was tried, and what came of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tritonsmith.cli.report.run.records import RunReport
from tritonsmith.evaluator.schema import TimingKind
from tritonsmith.graph.searches import Search, SearchTrial

_MOST_SHOWN = 60
"""Trials of one search on a page; `searches.csv` has all of them."""
SEARCHES = (
    "stage", "base", "number", "configuration", "fate", "ratio", "interval_low", "interval_high", "pairs", "kind", "registers", "spills",
    "shared_memory", "candidate", "reason", "sha",
)  # fmt: skip
"""Columns of `searches.csv`; the ratio is the searched kernel's time over the configuration's."""


@dataclass(frozen=True)
class TrialRow:
    """One configuration in words."""

    number: int
    configuration: str
    fate: str
    ratio: str
    trial: SearchTrial


@dataclass(frozen=True)
class SearchView:
    """One search in words, its best configurations first."""

    title: str
    sentence: str
    space: tuple[tuple[str, str, str], ...]
    """Parameter, its values, and what it was read from."""
    rows: tuple[TrialRow, ...]
    left_out: int


def search_views(report: RunReport) -> list[SearchView]:
    """The searches in their order."""
    return [_view(search) for search in report.summary.searches]


def list_trials(report: RunReport) -> Iterator[dict[str, Any]]:
    """Every trial of every search, as the table has it."""
    for search in report.summary.searches:
        for number, trial in enumerate(search.trials, start=1):
            low, high = trial.interval or (None, None)
            yield {
                **trial.model_dump(exclude={"values", "interval"}), "stage": search.stage, "base": search.base, "number": number,
                "configuration": _words(trial), "interval_low": low, "interval_high": high,
                "kind": search.kind.value if search.kind and trial.ratio is not None else None,
            }  # fmt: skip


def _view(search: Search) -> SearchView:
    ranked = sorted(enumerate(search.trials, start=1), key=lambda entry: (not entry[1].candidate, -(entry[1].ratio or 0.0), entry[0]))
    estimate = " ESTIMATE" if search.kind is TimingKind.ESTIMATED else ""
    rows = [
        TrialRow(number, _words(trial), trial.fate, "\N{EN DASH}" if trial.ratio is None else f"{trial.ratio:.3f}x{estimate}", trial)
        for number, trial in ranked[:_MOST_SHOWN]
    ]
    space = tuple((name, ", ".join(map(str, values)), search.origins.get(name, "")) for name, values in search.space.items())
    name = "all stages" if search.joint else search.stage.removeprefix("tune_")
    sentence = f"{search.sentence()}; {search.ended}" if search.trials else search.sentence()
    unread = "".join(f"; {line}" for line in search.unread)
    proposed = " Optuna proposed them." if search.proposed_by == "optuna" else ""
    spent = f" {search.seconds:.0f} s of compiling and racing." if search.seconds else ""
    linked = "".join(f" {option} was proposed together with {', '.join(names)}." for option, names in search.linked.items())
    summary = f"{sentence}{unread}.{proposed}{linked}{spent}"
    return SearchView(f"{name}, around {search.base}", summary, space, tuple(rows), len(ranked) - len(rows))


def _words(trial: SearchTrial) -> str:
    return ", ".join(f"{name} = {value}" for name, value in trial.values.items()) or "plain constants"
