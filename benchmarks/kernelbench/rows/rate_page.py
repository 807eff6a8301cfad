"""The page of `rate`: medians and verdicts per hour, ours and KernelBench's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from tritonsmith.benchmarks.kernelbench.rows.pages import print_figures, require_measured, tabulate_figures, write_page
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeRow
from tritonsmith.benchmarks.timing.figures import Figure

FIRST = "first"
"""The kind of the row that makes what candidates share."""
OUTSIDE = "kernelbench"
"""How the kinds of KernelBench's rows begin."""
PROFILES = ("quick", "strict")
QUICK_SECONDS = 4.0
"""Most seconds of a quick verdict about a second or later candidate, in the middle of the kernels."""
LEAST_TIMES = {"quick": 3.0, "strict": 1.0}
"""How many times KernelBench's verdicts per hour ours must be."""


def select_side(rows: Sequence[JudgeRow], side: str) -> dict[tuple[str, str], JudgeRow]:
    """The rows of a profile or of KernelBench, by task and variant."""
    return {(row.name, row.kind.partition(": ")[2]): row for row in rows if row.kind.startswith(f"{side}: ")}


def count_per_hour(rows: Sequence[JudgeRow]) -> float:
    """Verdicts per hour without a pause; 0 without rows."""
    seconds = sum(row.seconds for row in rows)
    return 3600 * len(rows) / seconds if seconds else 0.0


def summarize_rate(rows: Sequence[JudgeRow], keys: Sequence[tuple[str, str]]) -> list[Figure]:
    """What is required of the price, and what was reached; a row that is missing counts against the first figure."""
    missing = len(set(keys) - {row.key for row in rows})
    refused = [row for row in rows if not row.as_expected and not row.kind.startswith(f"{OUTSIDE}: ")]
    sides = {side: list(select_side(rows, side).values()) for side in (*PROFILES, OUTSIDE)}
    outside = count_per_hour(sides[OUTSIDE])
    quick = statistics.median(row.seconds for row in sides["quick"]) if sides["quick"] else float("inf")
    limit = f"median at most {QUICK_SECONDS} s"
    figures = [
        Figure("verdicts", f"all {len(keys)}", str(len(keys) - missing), missing == 0),
        Figure("right kernels that were not accepted", "0", str(len(refused)), not refused),
        Figure("quick verdict of a second or later candidate", limit, f"{quick:.2f} s", quick <= QUICK_SECONDS),
    ]  # fmt: skip
    for profile, least in LEAST_TIMES.items():
        times = count_per_hour(sides[profile]) / outside if outside else 0.0
        reached = f"{times:.2f} times ({count_per_hour(sides[profile]):.0f} and {outside:.0f})"
        figures.append(Figure(f"{profile} verdicts per hour, over KernelBench's", f"at least {least} times", reached, times >= least))
    return figures


def write_rate(rows: Sequence[JudgeRow], keys: Sequence[tuple[str, str]], path: Path) -> bool:
    """Write the page and the data, and print the figures. True when all are reached. Raises UsageError without measured rows."""
    rows = [row for row in rows if row.key in set(keys)]
    require_measured(rows, path)
    figures = summarize_rate(rows, keys)
    sides = {side: select_side(rows, side) for side in (*PROFILES, OUTSIDE)}
    first = {row.name: row for row in rows if row.kind == FIRST}
    lines = [*tabulate_figures(figures), "", "## Seconds", "", "| task | first verdict | as it is described |", "|--|--|--|"]
    lines += [f"| {name} | {row.seconds:.1f} | {row.describe_seconds:.1f} |" for name, row in first.items()]
    lines += ["", "| kernel | quick | strict | KernelBench | quick x eager | KernelBench x eager |", "|--|--|--|--|--|--|"]
    for key in sides["quick"]:
        cells = [f"{row.seconds:.1f}" if (row := sides[side].get(key)) else "" for side in sides]
        scores = [_say_score(sides[side].get(key)) for side in ("quick", OUTSIDE)]
        lines.append(f"| {key[0]}, {key[1]} | {' | '.join([*cells, *scores])} |")
    about = (
        "Seconds from the question to the verdict, without a pause in between. KernelBench's evaluation is `eval_kernel_against_ref` with "
        "5 correctness and 100 timing trials, each in a fresh process on the same card, after our evaluator of the task has ended. "
        "It compares fp32 results at a tolerance of 1e-4. What it refuses it does not time."
    )
    write_page("The price of a verdict", about, lines, rows, path)
    return print_figures(figures)


def _say_score(row: JudgeRow | None) -> str:
    """The score against eager, or what came in its place."""
    if row is None:
        return ""
    return f"{row.score_eager:.3f}" if row.score_eager else row.ruling.value
