"""What tuning did, variant by variant: each against the kernel that it was made from, by their first verdicts."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from tritonsmith.benchmarks.ablation.cells import Cell, first_score
from tritonsmith.benchmarks.ablation.schema import CellState, TuningRow
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Record, Stage
from tritonsmith.graph.storage.summary import CandidateRow, read_summary

_STAGES = (Stage.TUNE_GRID.value, Stage.TUNE_BLOCK.value, Stage.TUNE_MEMORY.value)
_NOISE = 0.01
"""Within 1 % of its parent a variant is neither better nor worse."""


class Variant(Record):
    """One kernel that tuning made."""

    task: str
    repeat: int
    parent: str
    """Sha of the kernel that was tuned."""
    sha: str
    persistent: bool
    """Whether the kernel that went into tuning was found to be persistent."""
    ratio: float | None
    """Score over the parent's score; None for a variant that does not work."""


def variants_of(cells: Iterable[Cell], root: Path) -> tuple[Variant, ...]:
    """Every variant of every finished run; one that several runs of a task and repeat share is there once."""
    found: dict[tuple[str, int, str, str], Variant] = {}
    for cell in cells:
        if cell.state(root) is CellState.DONE:
            for variant in _find_variants(cell, root):
                found[variant.task, variant.repeat, variant.parent, variant.sha] = variant
    return tuple(found.values())


def tuning_rows(tasks: Sequence[str], variants: Sequence[Variant]) -> tuple[TuningRow, ...]:
    """Persistent and other kernels apart, over all tasks and for each."""
    rows = []
    for name in ("all", *tasks):
        for persistent in (True, False):
            chosen = [variant for variant in variants if name in ("all", variant.task) and variant.persistent is persistent]
            if chosen:
                rows.append(_tuning_row(name, persistent, chosen))
    return tuple(rows)


def _find_variants(cell: Cell, root: Path) -> Iterable[Variant]:
    try:
        summary = read_summary(cell.folder(root))
    except UsageError:  # its row says so, and the tables of the others do without it
        return
    if summary is None:
        return
    rows = {row.id: row for row in summary.candidates}
    for row in summary.candidates:
        parent = rows.get(row.parent or "")
        before = None if parent is None else first_score(parent)
        if row.stage not in _STAGES or parent is None or not before:
            continue
        if row.status == "not evaluated":
            continue
        start = _find_tuned_kernel(row, rows)
        labels = {label["name"] for label in summary.findings.get(start.id, ())}
        after = first_score(row)
        yield Variant(
            task=cell.task.key, repeat=cell.repeat, parent=parent.sha, sha=row.sha, persistent="persistent" in labels,
            ratio=None if after is None else after / before,
        )  # fmt: skip


def _find_tuned_kernel(row: CandidateRow, rows: dict[str, CandidateRow]) -> CandidateRow:
    """The kernel that went into tuning: the last ancestor that no tuning stage wrote."""
    while row.stage in _STAGES and row.parent in rows:
        row = rows[row.parent]
    return row


def _tuning_row(task: str, persistent: bool, variants: Sequence[Variant]) -> TuningRow:
    ratios = [variant.ratio for variant in variants if variant.ratio is not None]
    return TuningRow(
        task=task,
        persistent=persistent,
        variants=len(variants),
        not_working=len(variants) - len(ratios),
        better=sum(ratio > 1 + _NOISE for ratio in ratios),
        worse=sum(ratio < 1 - _NOISE for ratio in ratios),
        lowest=min(ratios, default=None),
        median=median(ratios) if ratios else None,
        highest=max(ratios, default=None),
    )
