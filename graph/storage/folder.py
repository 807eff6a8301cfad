"""The folder of a run: making it, locking it for one process, and writing its events."""

import errno
import fcntl
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.errors import RunError, UsageError
from tritonsmith.graph.storage.files import append_text, drop_cut_line, fault_of, lines_of, parse_object

Event = dict[str, Any]
"""One line of `events.jsonl`. `event` is run, stage, candidate, evaluating, verdict, usage, search, analysis, findings, decision, pause,
fault, waiting, stop, stopped or end; `time`, `node`, `branch` and `candidate` are always there."""

OnEvent = Callable[[Event], None]
"""Listens to the events of a run."""

EVENTS = "events.jsonl"
"""Every event of a run, one JSON object per line."""
TAPE = "tape.jsonl"
"""Every reply and verdict of a run, so that none is asked for twice."""
MANIFEST = "run.json"
"""What the run was started with."""
LOCK = "run.lock"
"""The file that the process at work on a run has locked."""
CHECKPOINTS = "checkpoints.sqlite"
"""The newest state of each line of work."""
_START = {TAPE, LOCK, "kernels", "parent.json", "task"}
"""What may lie in a folder before a run begins there: replies and verdicts of another one, and a module that was brought in as a task."""
_ROOM = 256 * 1024
"""Bytes that a step may need; a disk with less is full."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk, a quota or a file that can take no more."""


def name_folder(out: str | None, task_name: str) -> Path:
    """The folder that `out` names, else one under `runs/` with the task's name and the time."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return Path(out) if out else Path("runs") / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', task_name)}-{stamp}"


def make_folder(folder: Path) -> None:
    """Make the folder of a new run. Raises UsageError when it is a file, holds anything else or cannot be written."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder}: that is a file; name a new folder")
    try:
        there = {path.name for path in folder.iterdir() if path.suffix != ".part"} if folder.exists() else set()  # .part: a kill cut it
        if not there <= _START:
            raise UsageError(f"--out {folder}: the folder is not empty; name a new one, so that no earlier result is overwritten")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot write there ({error.strerror}); name a folder that you may write to") from error


class RunBusy(UsageError):
    """Another process works on a run."""


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Keep every other process away from a run. Raises RunBusy when one works on it, UsageError when the folder cannot be written."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError(f"{folder}: cannot write there ({error.strerror}); a run needs a folder that it may write to") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(descriptor, 80).decode(errors="replace").strip() or "unknown"
            raise RunBusy(f"{folder}: another process works on this run (pid {other}); wait for it, or stop it first") from None
        except OSError as error:  # some network file systems
            raise UsageError(f"{folder}: the file system cannot lock {LOCK} ({error.strerror}); put the run on another one") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)  # the lock goes with it; the file stays, for a file that is removed can be locked twice


@contextmanager
def explain_disk_errors(folder: Path) -> Iterator[None]:
    """Turn what a full disk or a removed folder raises anywhere in a run into one sentence. Raises RunError or UsageError."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        again = f"then go on with: tritonsmith resume {folder}"
        if not folder.is_dir():
            raise UsageError(f"{folder}: the folder of the run was removed or renamed while it went on; start it again") from error
        of_database = isinstance(error, sqlite3.Error)
        if getattr(error, "errno", None) in _DISK_FULL or "disk is full" in str(error) or (of_database and _is_full(folder)):
            raise RunError(f"{folder}: no space is left on the disk; what was finished is kept; make space, {again}") from error
        if of_database and re.search("malformed|not a database", str(error)):
            path = folder / CHECKPOINTS
            raise UsageError(f"{path}: cannot be read ({error}); remove it, and the run goes on from what its tape has") from error
        about = str(getattr(error, "filename", None) or "")
        if of_database or about.startswith(str(folder)):
            what = f"{about}: {getattr(error, 'strerror', None) or error}" if about else f"checkpoints: {error}"
            raise UsageError(f"{folder}: the run's files cannot be written or read ({what}); fix that, {again}") from error
        raise


def _is_full(folder: Path) -> bool:
    """Whether there is no room for a step; SQLite tells of some full disks as of broken ones."""
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize < _ROOM


def drop_if_fruitless(folder: Path) -> None:
    """Remove the folder of a run that could not start: no kernel was written and no model has answered."""
    answers = (path for path in (folder / "llm").glob("*.json") if not path.stem.endswith(".failed"))
    if not any((folder / "kernels").glob("*.py")) and not any(answers):
        shutil.rmtree(folder, ignore_errors=True)


class EventLog:
    """Appends events to a file, one JSON object per line."""

    def __init__(self, path: Path) -> None:
        """The file; what an earlier process has written stays. Raises OSError."""
        self._path = path
        drop_cut_line(path)
        path.touch()

    def __call__(self, data: Event) -> Event:
        """Write one event; returns it with its time. Raises OSError."""
        event = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **data}
        append_text(self._path, json.dumps(event, ensure_ascii=False, default=str) + "\n")
        return event


def seconds_in(path: Path) -> tuple[float, int]:
    """The wall seconds of all processes that have written to an `events.jsonl`, and how many there were. Raises UsageError."""
    drop_cut_line(path)
    spans: list[tuple[datetime, datetime]] = []
    for number, line in enumerate(lines_of(path.read_bytes()) if path.is_file() else (), start=1):
        try:
            event = parse_object(line)
            time = datetime.fromisoformat(event["time"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}: line {number} is not an event ({fault_of(error)}); remove that line, and resume again") from error
        spans[-1:] = [(spans[-1][0], time)] if spans and event.get("event") != "run" else [*spans[-1:], (time, time)]
    return sum(max(0.0, (last - first).total_seconds()) for first, last in spans), len(spans)
