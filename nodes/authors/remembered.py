"""The records of the memory across runs, and the folder that holds them: a file for each kernel and for each failed attempt.

A file is put in place whole, under a name made of its task and its text. So runs that end at the same time do no harm, and a kill leaves
every record readable. Nothing here runs a text: it is shown in prompts, and whatever comes of it is judged like any other candidate.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Record
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.graph.storage.records import write_record

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of a task's inputs."""

STRICT = "strict"
"""The profile that proves a kernel right."""
_KERNELS, _FAILURES = "kernels", "failures"
_NAMED = 3
"""Records that a message names."""


class TaskKind(Record):
    """What a task is made of, as far as it says which kernels help with it."""

    families: tuple[str, ...]
    """Kinds of operation, the most telling first."""
    types: str
    """`16-bit`, else the dtype of its results with the arithmetic that it allows: `float32 ieee`."""
    size: str = ""
    """`small`, `in L2` or `large`, by the bytes that forward must move; empty where the size is a part of the checks."""
    designs: tuple[str, ...] = ()
    """Worked examples that fit it, such as `skinny_product`."""
    operators: tuple[str, ...] = ()
    """Names of what forward calls, sorted; empty where it was not traced."""
    shapes: Shapes = ()
    """Of its inputs; empty where the size is a part of the checks."""


class Remembered(Record):
    """What every record tells: which task, of what kind, where and when."""

    task: str
    """Its name."""
    task_key: str
    """The address of its text, sizes, precision and mode: equal for the very same task."""
    sha: str
    """The content address of the kernel's text."""
    kind: TaskKind
    card: str
    torch: str = ""
    triton: str = ""
    date: str = ""
    """In UTC, as ISO 8601 writes it."""

    @property
    def name(self) -> str:
        """The name of its file, without the ending."""
        return f"{self.task_key}-{self.sha}"


class RememberedKernel(Remembered):
    """A kernel that was judged right in an earlier run."""

    profile: str = STRICT
    """`quick` where the run ended before the strict profile judged it."""
    timed: str
    """`measured` or `estimated`."""
    score: float
    baseline: str
    launches: int
    source: str


class FailedAttempt(Remembered):
    """An attempt of an earlier run that did not work, or was slower than the module."""

    status: str
    idea: str = ""
    """The author's, in a sentence."""
    reason: str = ""
    """In a few words."""


Kept = TypeVar("Kept", bound=Remembered)


class MemoryFolder:
    """A folder of records. Files that cannot be read are passed over: a memory is a help, not a condition."""

    def __init__(self, root: Path) -> None:
        """Nothing is read or made yet.

        Args:
            root: the folder that `--memory` names.
        """
        self.root = root

    def make(self) -> None:
        """Make the folder where there is none. Raises UsageError when that is not allowed."""
        try:
            for name in (_KERNELS, _FAILURES):
                (self.root / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--memory {self.root}: cannot make the folder ({error.strerror}); name another one") from error

    def require(self) -> None:
        """Raise UsageError where no memory lies there."""
        if not self.root.is_dir():
            raise UsageError(f"{self.root}: there is no such folder; name one that `optimize --memory DIR` made")
        if not any((self.root / name).is_dir() for name in (_KERNELS, _FAILURES)):
            raise UsageError(f"{self.root}: this is no memory of runs; name a folder that `optimize --memory DIR` made")

    def kernels(self) -> list[RememberedKernel]:
        """The kernels, in the order of their names."""
        return self._read(_KERNELS, RememberedKernel)

    def failures(self) -> list[FailedAttempt]:
        """The failed attempts, in the order of their names."""
        return self._read(_FAILURES, FailedAttempt)

    def put(self, record: RememberedKernel | FailedAttempt) -> None:
        """Keep a record. A quick verdict never takes the place of a strict one. Raises OSError."""
        if isinstance(record, FailedAttempt):
            write_record(self._path(_FAILURES, record.name), record)
            return
        path = self._path(_KERNELS, record.name)
        earlier = _read_record(path, RememberedKernel) if path.is_file() else None
        if earlier is None or record.profile == STRICT or earlier.profile != STRICT:
            write_record(path, record)

    def find(self, name: str) -> RememberedKernel | FailedAttempt:
        """The record whose name begins so. Raises UsageError where there is none, or several."""
        every: list[RememberedKernel | FailedAttempt] = [*self.kernels(), *self.failures()]
        records = [record for record in every if record.name.startswith(name)]
        if not records:
            raise UsageError(f"{name}: {self.root} has no record of that name; `tritonsmith memory {self.root}` lists them")
        if len(records) > 1:
            named = ", ".join(record.name for record in records[:_NAMED])
            raise UsageError(f"{name}: {count_words(len(records), 'record')} begin so ({named}); give more of the name")
        return records[0]

    def forget(self, names: list[str]) -> int:
        """Remove the records whose names begin so; nothing where one of them is not there.

        Returns:
            How many were removed.

        Raises:
            UsageError: as `find`, or where a file cannot be removed.
        """
        records = {record.name: record for record in map(self.find, names)}
        for record in records.values():
            self._remove(self._path(_FAILURES if isinstance(record, FailedAttempt) else _KERNELS, record.name))
        return len(records)

    def clear(self) -> int:
        """Remove every record, also those that cannot be read, and what a kill left half written. Gives the number of records."""
        files = [path for name in (_KERNELS, _FAILURES) for path in (self.root / name).glob("*") if path.suffix in (".json", ".part")]
        for path in files:
            self._remove(path)
        return sum(path.suffix == ".json" for path in files)

    def count_unreadable(self) -> int:
        """Files that no record of this version can be read from."""
        files = sum(1 for name in (_KERNELS, _FAILURES) for _ in (self.root / name).glob("*.json"))
        return files - len(self.kernels()) - len(self.failures())

    def _path(self, folder: str, name: str) -> Path:
        return self.root / folder / f"{name}.json"

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: cannot be removed ({error.strerror}); check who may write there") from error

    def _read(self, folder: str, kind: type[Kept]) -> list[Kept]:
        records = (_read_record(path, kind) for path in sorted((self.root / folder).glob("*.json")))
        return [record for record in records if record is not None]


def _read_record(path: Path, kind: type[Kept]) -> Kept | None:
    """The record in a file; None where none can be read, or where the file has another record's name."""
    try:
        record = kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return None
    return record if record.name == path.stem else None
