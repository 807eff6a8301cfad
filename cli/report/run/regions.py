"""What each part of the best kernel takes, as rows of words for the screen and the pages."""

from __future__ import annotations

from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.graph.storage.summary import Summary
from tritonsmith.prompts.regions import RegionRow

REGION_COLUMNS = ("part", "by", "launches", "before", "ms", "at least", "why")
MORE = "summary.json"
"""Where all rows stand."""
_DASH = "-"


def list_regions(summary: Summary, most: int) -> list[tuple[str, ...]]:
    """The cells of the parts that take longest, in forward's order.

    Args:
        summary: of the run.
        most: rows.
    """
    kept = {id(row) for row in sorted(summary.regions, key=_weigh, reverse=True)[:most]}
    return [_write_row(row) for row in summary.regions if id(row) in kept]


def tell_rest(summary: Summary, most: int, where: str) -> str:
    """What the rows leave out, and what all library calls take together; empty where that is nothing."""
    left = len(summary.regions) - most
    calls = sum(not row.own for row in summary.regions)
    parts = [f"{count_words(left, 'further part')} in {where}"] if left > 0 else []
    if summary.library_ms is not None:
        parts.append(f"{count_words(calls, 'library call')} together: {summary.library_ms:.3g} ms of the card")
    return "; ".join(parts)


def describe_launches(summary: Summary) -> str:
    """`12 per forward: 9 of own kernels, 3 of the library`; empty without a kernel."""
    facts = summary.best.verdict.facts if summary.best else None
    if facts is None or not facts.launches_per_forward:
        return ""
    others = facts.launches_per_forward - facts.triton_launches
    split = f": {facts.triton_launches} of own kernels, {others} of the library" if others > 0 else ""
    return f"{facts.launches_per_forward} per forward{split}"


def _weigh(row: RegionRow) -> float:
    """The measured time; else the least time, which says at least an order."""
    return row.ms if row.ms is not None else row.least_ms or 0.0


def _write_row(row: RegionRow) -> tuple[str, ...]:
    return (
        row.what, "own kernel" if row.own else "library", _DASH if row.launches is None else str(row.launches), _write_ms(row.before_ms),
        _write_ms(row.ms), _write_ms(row.least_ms), row.why,
    )  # fmt: skip


def _write_ms(value: float | None) -> str:
    return _DASH if value is None else f"{value:.3g}"
