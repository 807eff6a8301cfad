"""The page of the built-in author's kernels: how many are accepted in each level, and how they stand against the strongest baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from tritonsmith.benchmarks.kernelbench.rows.pages import print_figures, require_measured, tabulate, tabulate_figures, write_page
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeRow, Ruling
from tritonsmith.benchmarks.timing.figures import Figure

ACCEPTED = {"level1": 85, "level2": 85, "level3": 30}
"""Least tasks of each level that are accepted with kernels of their own."""
GEOMETRIC_MEAN = {"level1": 1.3, "level2": 2.0}
"""Least geometric mean of the accepted scores against the strongest baseline."""
_MARKS = (1.0, 1.5, 2.0)


def summarize_author(rows: Sequence[JudgeRow], names: Sequence[str]) -> list[Figure]:
    """What is required of the built-in author in each level, and what was reached."""
    figures: list[Figure] = []
    for level, least in ACCEPTED.items():
        tasks = [name for name in names if name.startswith(f"{level}/")]
        if not tasks:
            continue
        accepted = select_accepted([row for row in rows if row.name in tasks])
        count = len(accepted)
        figures.append(Figure(f"{level}: accepted with own kernels", f"{least} of {len(tasks)}", str(count), count >= least))
        if level in GEOMETRIC_MEAN:
            mean = find_mean([row.score or 0.0 for row in accepted])
            wanted = GEOMETRIC_MEAN[level]
            figures.append(Figure(f"{level}: geometric mean against the strongest", f"at least {wanted}", f"{mean:.2f}", mean >= wanted))
    return figures


def select_accepted(rows: Sequence[JudgeRow]) -> list[JudgeRow]:
    """Rows of right kernels that are not the library's."""
    return [row for row in rows if row.ruling is Ruling.JUDGED and row.label in ("kernel", "hybrid") and row.score]


def find_mean(scores: Sequence[float]) -> float:
    """The geometric mean; 0 of nothing."""
    return math.exp(sum(map(math.log, scores)) / len(scores)) if scores else 0.0


def _tabulate_shares(rows: Sequence[JudgeRow]) -> list[str]:
    """How many accepted kernels of each level are above each mark."""
    marks = " | ".join(f"above {mark}x" for mark in _MARKS)
    lines = ["## Shares of the accepted", "", f"| level | geometric mean | {marks} |", "|--|--|--|--|--|"]
    for level in ACCEPTED:
        scores = [row.score or 0.0 for row in select_accepted([row for row in rows if row.name.startswith(f"{level}/")])]
        counts = [f"{sum(score > mark for score in scores)} of {len(scores)}" for mark in _MARKS]
        lines.append(f"| {level} | {find_mean(scores):.2f}x | {' | '.join(counts)} |")
    return lines


def write_author(rows: Sequence[JudgeRow], names: Sequence[str], results: Path, name: str) -> bool:
    """Write the page and the data, and print the figures. True when all are reached. Raises UsageError without measured rows."""
    rows = [row for row in rows if row.name in set(names)]
    path = results / name
    require_measured(rows, path)
    figures = summarize_author(rows, names)
    lines = [*tabulate_figures(figures), "", *_tabulate_shares(rows)]
    columns = ("task", "profile", "ruling", "label", "x strongest", "of", "x eager", "ms", "why not")
    body = []
    for row in sorted(rows, key=lambda row: list(names).index(row.name)):
        score, eager = (f"{one:.3f}" if one is not None else "" for one in (row.score, row.score_eager))
        time = f"{row.median_ms:.4g}" if row.median_ms is not None else ""
        why = "" if row.ruling is Ruling.JUDGED else f"{row.status} {row.message}"
        of = f"{row.baseline}, of {len(row.baselines_ms)}" if row.baselines_ms else row.baseline
        body.append((row.name, row.profile, row.ruling.value, row.label, score, of, eager, time, why))
    lines += ["", "## All", "", *tabulate(columns, body)]
    missing = [name for name in names if name not in {row.name for row in rows}]
    lines += ["", f"No row: {', '.join(missing) or 'none'}."]
    write_page("Kernels of the built-in author", "The best recipe with its plain settings, one kernel for each task.", lines, rows, path)
    return print_figures(figures)
