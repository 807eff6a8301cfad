"""Rows on lines of a file: each is added when it is there, so that a run that was cut short goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from tritonsmith.benchmarks.kernelbench.records import JudgeJob, JudgeRow
from tritonsmith.evaluator.errors import UsageError


class RowFile:
    """A JSON-lines file of rows. The last row of a name and kind counts.

    Args:
        path: the file; made when the first row is added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[JudgeRow]:
        """The rows that count, in the order of their first appearance. Raises UsageError for a line that is no row.

        A last line without its end is what a kill left of a row; it is passed over.
        """
        if not self.path.exists():
            return []
        rows: dict[tuple[str, str], JudgeRow] = {}
        lines = self.path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines[:-1], 1):
            try:
                row = JudgeRow.model_validate_json(line)
            except ValidationError:
                raise UsageError(f"{self.path}, line {number}: is no row; remove the line or name another file with --rows") from None
            rows[row.key] = row
        return list(rows.values())

    def add(self, row: JudgeRow) -> None:
        """Add a row at the end, in the place of half a line that a kill left."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            file.seek(0)
            whole = file.read()
            file.truncate(whole.rfind(b"\n") + 1)
            file.write(row.model_dump_json().encode() + b"\n")


def select_open(jobs: Iterable[JudgeJob], rows: Iterable[JudgeRow], again: Sequence[str] = ()) -> list[JudgeJob]:
    """The jobs without a row, and those whose ruling is to be asked for again."""
    finished = {row.key for row in rows if row.ruling.value not in again}
    return [job for job in jobs if job.key not in finished]
