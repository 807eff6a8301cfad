"""The tables of a report as CSV."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tritonsmith.cli.report.run.records import RunReport
from tritonsmith.cli.report.run.searches import SEARCHES, list_trials
from tritonsmith.graph.storage.outcome import precision_of
from tritonsmith.prompts.promises import read_metric

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
CANDIDATES = (
    "id", "parent", "branch", "stage", "status", "label", "score", "kind", "comparison", "interval_low", "interval_high", "score_eager",
    "search_score", "baseline", "median_ms", "baseline_ms", "precision", "mode", "err_vs_oracle", "launches_per_forward", "own_time_share",
    "floor_ms", "floor_share", "floor_limit", "dram_throughput", "sm_throughput", "seconds",
    "lines_added", "lines_removed", "winner", "not_allowed", "sha", "author", "recipe", "rationale", "message",
)  # fmt: skip
"""Columns of `candidates.csv`; `seconds` is when the candidate was judged, in working seconds of the run."""
DECISIONS = ("id", "seconds", "branch", "gate", "site", "candidate", "choice", "reason", "policy", "evidence")
"""Columns of `decisions.csv`; the evidence is a JSON object."""


def candidates_csv(report: RunReport) -> str:
    """One line per candidate."""
    return csv_text(CANDIDATES, (_candidate_fields(report, row.id) for row in report.summary.candidates))


def decisions_csv(report: RunReport) -> str:
    """One line per decision."""
    rows = (
        {**decision.model_dump(), "seconds": report.times.get(decision.id), "evidence": json.dumps(decision.evidence)}
        for decision in report.summary.decisions
    )
    return csv_text(DECISIONS, rows)


def searches_csv(report: RunReport) -> str:
    """One line per configuration of every tuning search."""
    return csv_text(SEARCHES, list_trials(report))


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Lines under a header. A text that a spreadsheet would take for a formula gets an apostrophe before it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _make_harmless(row.get(name)) for name in columns})
    return text.getvalue()


def _make_harmless(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


def _candidate_fields(report: RunReport, candidate: str) -> dict[str, Any]:
    row = next(row for row in report.summary.candidates if row.id == candidate)
    verdict, change = report.verdicts.get(candidate), report.changes.get(candidate)
    timing = verdict.timing if verdict else None
    correctness = verdict.correctness if verdict else None
    low, high = timing.interval if timing and timing.interval else (None, None)
    winner = report.summary.winner
    return {
        **row.model_dump(),
        "interval_low": low, "interval_high": high, "floor_ms": timing.floor.ms if timing and timing.floor else None,
        "dram_throughput": read_metric("dram_throughput", verdict) if verdict else None,
        "sm_throughput": read_metric("sm_throughput", verdict) if verdict else None,
        "score_eager": timing.score_eager if timing else None,
        "baseline": timing.baseline if timing else None,
        "baseline_ms": timing.baselines_ms.get(timing.baseline) if timing else None,
        "precision": row.precision or (precision_of(verdict) if verdict else "") or None,
        "mode": verdict.environment.get("mode") if verdict else None,
        "err_vs_oracle": correctness.err_vs_oracle if correctness else None,
        "own_time_share": verdict.facts.own_time_share if verdict else None,
        "seconds": next((point.seconds for point in report.points if point.candidate == candidate), None),
        "lines_added": change.added if change else None, "lines_removed": change.removed if change else None,
        "winner": winner is not None and winner.id == candidate,
    }  # fmt: skip
