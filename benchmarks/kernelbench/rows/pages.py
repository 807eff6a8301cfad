"""Pages and data of the results: counts with what is required, then the rows behind them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tritonsmith.benchmarks.host import print_line
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeRow, Ruling
from tritonsmith.benchmarks.timing.figures import Figure
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import TimingKind

EQUAL_LOW = 0.97
"""Least score of a copy against eager."""
EQUAL_HIGH = 1.03
"""Highest score of a copy against eager."""
EQUAL_SHARE = 0.95
"""Least share of the judged copies that lie between the two."""
MOST_OPEN = 5
"""Copies that may lack a verdict, each with its sentence."""
_TOP = 10
"""Rows in the tables of the slowest and the biggest."""
MOST_IN_CELL = 300
"""Characters of a table's cell; a longer text stands below the table."""
_SHOWN = 80
"""Characters of such a text that stand in the cell."""


def summarize_copies(rows: Sequence[JudgeRow], names: Sequence[str]) -> list[Figure]:
    """What is required of copies, and what was reached. A task without a row counts against the first figure."""
    judged, refused, unanswered = (_select(rows, ruling) for ruling in (Ruling.JUDGED, Ruling.REFUSED, Ruling.OPEN))
    missing = len(set(names) - {row.name for row in rows})
    equal = sum(_is_equal(row) for row in judged)
    share = equal / len(judged) if judged else 0.0
    return [
        Figure("tasks with a row", f"all {len(names)}", str(len(names) - missing), missing == 0),
        Figure("refused", "0", str(len(refused)), not refused),
        Figure("not judged", f"at most {MOST_OPEN}", str(len(unanswered)), len(unanswered) <= MOST_OPEN),
        Figure(
            f"score against eager from {EQUAL_LOW} to {EQUAL_HIGH}", f"at least {EQUAL_SHARE:.0%} of the judged",
            f"{equal} of {len(judged)} ({share:.1%})", share >= EQUAL_SHARE,
        ),
    ]  # fmt: skip


def summarize_pairs(rows: Sequence[JudgeRow], keys: Sequence[tuple[str, str]]) -> list[Figure]:
    """What is required of right and wrong candidates: each is accepted or refused as it must be."""
    figures = []
    for expected in ("accepted", "refused"):
        asked = [row for row in rows if row.expected == expected]
        right = sum(row.as_expected for row in asked)
        figures.append(Figure(f"candidates that must be {expected}", f"all {len(asked)}", str(right), bool(asked) and right == len(asked)))
    missing = len(set(keys) - {row.key for row in rows})
    return [Figure("candidates with a row", f"all {len(keys)}", str(len(keys) - missing), missing == 0), *figures]


def write_copies(rows: Sequence[JudgeRow], names: Sequence[str], results: Path, name: str) -> bool:
    """Write the page and the data of copies, and print the figures. True when all are reached. Raises UsageError without measured rows."""
    rows = [row for row in rows if row.name in set(names)]
    off = [row for row in _select(rows, Ruling.JUDGED) if not _is_equal(row)]
    sections = [
        ("Refused", _table(("task", "status", "message"), _select(rows, Ruling.REFUSED), lambda row: (row.name, row.status, row.message))),
        ("Not judged", _table(("task", "why"), _select(rows, Ruling.OPEN), lambda row: (row.name, row.message))),
        (f"Outside {EQUAL_LOW} to {EQUAL_HIGH}", _table(_COLUMNS, off, _cells)),
        ("The slowest verdicts", _table(_COLUMNS, _highest(rows, lambda row: row.seconds), _cells)),
        ("The most memory of the card", _table(_COLUMNS, _highest(rows, lambda row: row.card_bytes_peak or 0), _cells)),
        ("All", _table(_COLUMNS, rows, _cells)),
    ]
    about = "The reference's own text (class renamed) as candidate. Memory is that of the whole card while the verdict was made."
    if free := sorted({row.card_gb for row in rows if row.card_gb is not None}):
        about += f" An idle process held memory, so that {' or '.join(f'{size:g}' for size in free)} GB were free at the start."
    return _write("Copies of references", about, summarize_copies(rows, names), sections, rows, results / name)


def write_pairs(title: str, about: str, rows: Sequence[JudgeRow], keys: Sequence[tuple[str, str]], path: Path) -> bool:
    """Write the page and the data of right and wrong candidates. True when each was accepted or refused as it must be."""
    rows = [row for row in rows if row.key in set(keys)]
    columns = ("candidate", "must be", "is", "message", *_COLUMNS[2:])
    table = _table(columns, rows, lambda row: (
        f"{row.name} {row.kind}", row.expected, f"{row.ruling.value} {row.status}", row.message, *_cells(row)[2:],
    ))  # fmt: skip
    return _write(title, about, summarize_pairs(rows, keys), [("All", table)], rows, path)


def require_measured(rows: Iterable[JudgeRow], place: Path) -> None:
    """Raises UsageError where a score is an estimate, or where there is no row."""
    rows = list(rows)
    if not rows:
        raise UsageError(f"{place}: there are no rows to write a page of; judge tasks first")
    if estimated := [row.name for row in rows if row.timing == TimingKind.ESTIMATED.value]:
        raise UsageError(f"{estimated[0]} was estimated without a card; results hold measurements only, so name other rows with --rows")


def write_page(title: str, about: str, lines: Sequence[str], rows: Sequence[JudgeRow], path: Path) -> None:
    """Write `path`.jsonl with the rows, and `path`.md with a head that says how it was made and the digest of the rows.

    Rows that newer ones replaced are not written, so the rows' file is also what `--rows` goes on from.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(f"{row.model_dump_json(exclude_defaults=True)}\n" for row in rows).encode()
    place = path.with_name(f"{path.name}.jsonl")
    place.write_bytes(data)
    made = [
        f"- made by: {_say_commands(sorted({row.command for row in rows}))}",
        f"- card: {', '.join(sorted({row.card for row in rows if row.card}))}",
        f"- host: {', '.join(sorted({row.host for row in rows if row.host}))}",
        f"- from {min(row.date for row in rows)} to {max(row.date for row in rows)}", f"- versions: {_list_versions(rows)}",
        f"- rows with pair ratios, which `--rows` takes: [{place.name}]({place.name}), SHA-256 `{hashlib.sha256(data).hexdigest()}`",
    ]  # fmt: skip
    print_line(f"written: {path}.md, {place}")
    path.with_name(f"{path.name}.md").write_text("\n".join([f"# {title}", "", about, "", *made, "", *lines]) + "\n", encoding="utf-8")


def _say_commands(commands: Sequence[str]) -> str:
    """One command as it is; of several what they begin with, and how many they are."""
    if len(commands) == 1:
        return f"`{commands[0]}`"
    begins = sorted({" ".join(command.split()[:3]) for command in commands})
    return f"{', '.join(f'`{begin}`' for begin in begins)} in {len(commands)} calls; `command` of each row has its words"


def tabulate(columns: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """A table of a page, with texts that are too long for a cell as notes below it; no lines without rows."""
    if not body:
        return []
    notes: list[str] = []

    def fit(cell: str) -> str:
        cell = cell.replace("|", "\\|").replace("\n", " ")
        if len(cell) <= MOST_IN_CELL:
            return cell
        notes.append(cell)
        return f"{cell[:_SHOWN].rstrip()} ... (note {len(notes)})"

    lines = [f"| {' | '.join(columns)} |", "|" + "--|" * len(columns), *(f"| {' | '.join(map(fit, cells))} |" for cells in body)]
    return lines + ([""] if notes else []) + [f"Note {number}: {note}" for number, note in enumerate(notes, 1)]


def tabulate_figures(figures: Sequence[Figure]) -> list[str]:
    """Figures as a table of a page."""
    lines = ["| figure | required | reached | |", "|--|--|--|--|"]
    return lines + [f"| {one.name} | {one.required} | {one.reached} | {'yes' if one.passed else '**no**'} |" for one in figures]


def print_figures(figures: Sequence[Figure]) -> bool:
    """Print what was reached. True when every figure is."""
    for figure in figures:
        print_line(f"{'yes' if figure.passed else 'NO ':3} {figure.name}: {figure.reached} (required: {figure.required})")
    return all(figure.passed for figure in figures)


def _write(
    title: str, about: str, figures: Sequence[Figure], sections: Sequence[tuple[str, list[str]]], rows: Sequence[JudgeRow], path: Path
) -> bool:
    require_measured(rows, path)
    lines = tabulate_figures(figures)
    for heading, table in sections:
        lines += ["", f"## {heading}", "", *(table or ["None."])]
    write_page(title, about, lines, rows, path)
    return print_figures(figures)


def _select(rows: Iterable[JudgeRow], ruling: Ruling) -> list[JudgeRow]:
    return [row for row in rows if row.ruling is ruling]


def _is_equal(row: JudgeRow) -> bool:
    return row.score_eager is not None and EQUAL_LOW <= row.score_eager <= EQUAL_HIGH


def _highest(rows: Iterable[JudgeRow], key: Callable[[JudgeRow], float]) -> list[JudgeRow]:
    return sorted(rows, key=key, reverse=True)[:_TOP]


def _list_versions(rows: Iterable[JudgeRow]) -> str:
    return "; ".join(sorted({", ".join(f"{name} {number}" for name, number in sorted(row.versions.items())) for row in rows}))


_COLUMNS = ("task", "ruling", "x eager", "interval", "class", "mode", "in + out GB", "peak GB", "plan", "s")


def _cells(row: JudgeRow) -> tuple[str, ...]:
    interval = f"{row.interval_eager[0]:.3f} to {row.interval_eager[1]:.3f}" if row.interval_eager else ""
    return (
        row.name, row.ruling.value, f"{row.score_eager:.3f}" if row.score_eager is not None else "", interval,
        row.precision_class or row.precision, row.mode, _gigabytes(row.task_bytes), _gigabytes(row.card_bytes_peak),
        str(row.memory.get("plan", "")), f"{row.describe_seconds + row.seconds:.1f}",
    )  # fmt: skip


def _gigabytes(count: int | None) -> str:
    return f"{count / 1e9:.2f}" if count is not None else ""


def _table(columns: Sequence[str], rows: Sequence[JudgeRow], cells: Callable[[JudgeRow], Sequence[str]]) -> list[str]:
    return tabulate(columns, [cells(row) for row in rows])
