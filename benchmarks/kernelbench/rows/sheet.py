"""Records on lines of a file: each is added when it is there, so that a run that was cut short goes on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob, JudgeRow
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Record

Kept = TypeVar("Kept", bound=Record)


class RecordFile(Generic[Kept]):
    """A JSON-lines file of records. The last record of a key counts.

    Args:
        path: the file; made when the first record is added.
        kind: the records' class.
        find_key: what tells a record from others.
        name: what a record is called; the option that names the file has it in the plural.
    """

    def __init__(self, path: Path, kind: type[Kept], find_key: Callable[[Kept], Hashable], name: str) -> None:
        self.path = path
        self._kind, self._find_key, self._name = kind, find_key, name

    def read(self) -> list[Kept]:
        """The records that count, in the order of their first appearance. Raises UsageError for a line that is none.

        A last line without its end is what a kill left of a record; it is passed over.
        """
        if not self.path.exists():
            return []
        if self.path.is_dir():
            raise UsageError(f"{self.path}: is a folder; name a file with --{self._name}s")
        found: dict[Hashable, Kept] = {}
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], 1):
            try:
                record = self._kind.model_validate_json(line)
            except ValidationError:
                cure = f"remove the line or name another file with --{self._name}s"
                raise UsageError(f"{self.path}, line {number}: is no {self._name}; {cure}") from None
            found[self._find_key(record)] = record
        return list(found.values())

    def add(self, record: Kept) -> None:
        """Add a record at the end, in the place of half a line that a kill left."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            file.seek(0)
            whole = file.read()
            file.truncate(whole.rfind(b"\n") + 1)
            file.write(record.model_dump_json().encode() + b"\n")


class RowFile(RecordFile[JudgeRow]):
    """A file of rows, each found by its name and kind."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, JudgeRow, lambda row: row.key, "row")


def select_open(jobs: Iterable[JudgeJob], rows: Iterable[JudgeRow], again: Sequence[str] = ()) -> list[JudgeJob]:
    """The jobs without a row, and those whose ruling is to be asked for again."""
    finished = {row.key for row in rows if row.ruling.value not in again}
    return [job for job in jobs if job.key not in finished]
