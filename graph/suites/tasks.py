"""Tasks of a suite: folders, patterns, files, a comma list of files and numbers, or a TOML or JSON file with settings of its own."""

import glob
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.schema import PrecisionClass, Record, SizeValue
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.graph.storage.files import fault_of
from tritonsmith.graph.suites.shipped import number_tasks

Overrides = dict[str, SizeValue]
_PATTERN = re.compile(r"[*?\[]")


class PlannedTask(Record):
    """One task at one size, precision class and mode."""

    key: str
    """Its folder, and its name in every table."""
    path: str
    """As seen from where the command was given; not part of what makes two plans the same."""
    size: str | None = None
    """`full` or `small`; None: full on a card, small without one."""
    overrides: dict[str, SizeValue] = Field(default_factory=dict)
    precision: PrecisionClass | None = None
    """What its entry asks for; None: what the plan says for all tasks."""
    mode: str | None = None
    """`eval` or `train`, where its entry says so; None: what the plan says for all tasks."""
    sha: str = ""
    """Of the file's text: a changed file makes another experiment."""
    fault: str = ""
    """Why the file cannot be used; empty for one that can. Only suites that go on without a task have such entries."""


class _Entry(BaseModel):
    """One `[[tasks]]` of a suite file."""

    model_config = ConfigDict(extra="forbid")

    task: str | int
    """A file, relative to the suite's, or the number of a task that comes along."""
    name: str | None = None
    size: str | None = Field(default=None, pattern="^(full|small)$")
    set: Overrides = Field(default_factory=dict)
    precision: PrecisionClass | None = None
    mode: Literal["eval", "train"] | None = None


class _Suite(BaseModel):
    """A suite file."""

    model_config = ConfigDict(extra="forbid")

    tasks: list[_Entry] = Field(min_length=1)


class _WordError(Exception):
    """What is wrong with a word that names tasks, without the argument's name before it."""


@contextmanager
def _name_argument(argument: str) -> Iterator[None]:
    """Have faults of words begin with the name of the argument that the command gives them."""
    try:
        yield
    except _WordError as fault:
        raise UsageError(f"{argument} {fault}") from fault.__cause__


def load_suite(
    suite: str, *, size: str | None = None, overrides: Overrides | None = None, precision: PrecisionClass | None = None,
    mode: str | None = None, argument: str = "SUITE",
) -> tuple[PlannedTask, ...]:  # fmt: skip
    """The tasks of a suite, each read and checked; what is given besides `suite` holds where an entry says nothing else.

    Raises UsageError that names the entry, behind the command's argument that gives the suite.
    """
    with _name_argument(argument):
        tasks = [_plan_task(entry, base, suite, size, overrides or {}, precision, mode) for entry, base in _find_entries(suite)]
        twice = sorted({task.key for task in tasks if sum(task.key == other.key for other in tasks) > 1})
        if twice:
            raise _WordError(f"{suite}: {', '.join(twice)} is there twice; give the entries of a suite file different names (name = ...)")
    return tuple(tasks)


def find_tasks(
    names: Sequence[str], *, size: str | None = None, overrides: Overrides | None = None, precision: PrecisionClass | None = None,
    mode: str | None = None,
) -> tuple[PlannedTask, ...]:  # fmt: skip
    """The tasks that these words name: task files, folders, patterns (`tasks/*.py`), comma lists, numbers, and TOML or JSON files.

    A file that is no task is an entry with its fault. A task that is named twice for the same run is there once, and two of one name get
    numbers. Raises UsageError where a word names nothing.
    """
    planned: list[PlannedTask] = []

    def run_of(task: PlannedTask) -> tuple[object, ...]:
        return task.path, task.size, task.overrides, task.precision or precision, task.mode or mode

    with _name_argument("TASK"):
        for name in names:
            for entry, base in _find_entries(name):
                task = _plan_or_note(entry, base, name, size, overrides or {}, precision, mode)
                if not any(run_of(task) == run_of(other) for other in planned):
                    keys = {other.key for other in planned}
                    key = next(key for number in count(1) if (key := f"{task.key}-{number}" if number > 1 else task.key) not in keys)
                    planned.append(task.model_copy(update={"key": key}))
    return tuple(planned)


def _find_entries(suite: str) -> list[tuple[_Entry, Path]]:
    """The entries that one word names, each with the folder that its path starts from. Raises _WordError."""
    found = Path(suite)
    if found.suffix in (".toml", ".json"):
        return [(entry, found.parent) for entry in _read_entries(found)]
    if found.is_dir():
        files = sorted(path for path in found.glob("*.py") if not path.name.startswith("_"))
        if not files:
            raise _WordError(f"{suite}: the folder has no task files (*.py); name another folder, a list such as 39,40,26, or a file")
        return [(_Entry(task=str(path)), Path()) for path in files]
    if _PATTERN.search(suite) and not found.exists():
        matched = sorted(path for path in glob.glob(suite, recursive=True) if path.endswith(".py"))
        if not matched:
            raise _WordError(f"{suite}: no Python file matches this pattern; name another one, or a folder")
        return [(_Entry(task=path), Path()) for path in matched]
    names = [name.strip() for name in suite.split(",") if name.strip()]
    if not names:
        raise _WordError("is empty; name a folder, task files or numbers such as 39,40,26, or a TOML or JSON file")
    return [(_Entry(task=name), Path()) for name in names]


def _read_entries(path: Path) -> list[_Entry]:
    try:
        text = path.read_text(encoding="utf-8")
        content: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except FileNotFoundError:
        raise _WordError(f"{path}: there is no such file; name a folder, task numbers such as 39,40,26, or another file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _WordError(f"{path}: cannot be read ({fault_of(error)}); name another file") from error
    except (ValueError, RecursionError) as error:
        raise _WordError(f"{path}: is not {path.suffix[1:].upper()} ({fault_of(error)}); fix the file") from error
    if isinstance(content, list):
        content = {"tasks": content}
    try:
        return _Suite.model_validate(content).tasks
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise _WordError(
            f"{path}: {where}: {first['msg']}; an entry is [[tasks]] with task (a file or a number), and may have name, size, set, "
            "precision, mode"
        ) from error


def _plan_task(
    entry: _Entry, base: Path, suite: str, size: str | None, overrides: Overrides, precision: PrecisionClass | None, mode: str | None
) -> PlannedTask:
    path = _find_file(str(entry.task), base, suite)
    planned = _name_task(entry, path, size, overrides)
    task = load_task(path, planned.size or "full", planned.overrides, planned.precision or precision, planned.mode or mode)
    return planned.model_copy(update={"sha": text_sha(task.source)})


def _plan_or_note(
    entry: _Entry, base: Path, suite: str, size: str | None, overrides: Overrides, precision: PrecisionClass | None, mode: str | None
) -> PlannedTask:
    """As `_plan_task`, with what is wrong with the file in the entry."""
    try:
        return _plan_task(entry, base, suite, size, overrides, precision, mode)
    except UsageError as error:
        path = base / str(entry.task)
        if not path.is_file():
            raise
        return _name_task(entry, path, size, overrides).model_copy(update={"fault": str(error)})


def _name_task(entry: _Entry, path: Path, size: str | None, overrides: Overrides) -> PlannedTask:
    key = re.sub(r"[^A-Za-z0-9_.-]+", "_", entry.name or path.stem).strip(".") or "task"
    return PlannedTask(
        key=key, path=shorten_path(path), size=entry.size or size, overrides=entry.set or overrides,
        precision=entry.precision, mode=entry.mode,
    )  # fmt: skip


def shorten_path(path: Path) -> str:
    """The path from the working directory where it lies below it, else the whole one."""
    whole, here = path.resolve(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


def _find_file(name: str, base: Path, suite: str) -> Path:
    if name.isdigit():
        numbered = number_tasks()
        if name not in numbered:
            raise _WordError(f"{suite}: no task that comes along has number {name}; there are {', '.join(sorted(numbered, key=int))}")
        return numbered[name]
    path = base / name
    if not path.exists() and path.suffix != ".py":
        raise _WordError(f"{suite}: {name} is no folder, no file and no number of a task; write such as 39,40,26 or path/to/task.py")
    return path
