"""Verdicts that are kept on this machine: equal questions under equal conditions are measured once, and again with `--fresh`.

A question is task (with every file that it reads and the packages that it imports), kernel, profile, card, versions (of this package's
judging code too) and settings. Where nobody knows what a task reads, nothing is kept, and the log says so. The file is SQLite in the user's
cache folder; `TRITONSMITH_ANSWERS` names another one, or is `off`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import sqlite3
import struct
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tritonsmith.evaluator.caller.sharing.forwarding import ForwardingEvaluator
from tritonsmith.evaluator.cards.machine import card_in_nvml, versions
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.reads.record import UNKEPT
from tritonsmith.evaluator.records.contest import Contest, ContestReport, ContestTimes
from tritonsmith.evaluator.schema import Task, Verdict

VARIABLE = "TRITONSMITH_ANSWERS"
"""Names the file, or is `off`."""
_TABLE = """create table if not exists answers (
    key text primary key, task text, task_sha text, kernel text, profile text, card text, conditions text, verdict text,
    seconds real, made real, used real)"""
_REGIONS = "create table if not exists regions (key text primary key, card text, times text, made real, used real)"
"""What each way to write a region takes, by contest and conditions."""
_EVALUATOR = Path(__file__).resolve().parents[2]
_LOOK_SECONDS = 0.05
"""Between two looks whether another process has answered the same question."""
_OFFSETS = 2**62
"""Places in the file of locks; each question has one by its key."""


@cache
def digest_code() -> str:
    """A hash over the evaluator's own files: an answer of other code is no answer."""
    found = hashlib.sha256()
    for path in list_judging_code():
        found.update(path.relative_to(_EVALUATOR).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def list_judging_code() -> list[Path]:
    """The evaluator's own files, in a fixed order."""
    return sorted(_EVALUATOR.rglob("*.py"))


def find_answers() -> Path | None:
    """The file with answers; None where they are not kept."""
    given = os.environ.get(VARIABLE, "")
    if given:
        return None if given == "off" else Path(given)
    cache_folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_folder) / "tritonsmith" / "answers.sqlite"


@dataclass(frozen=True)
class KeptAnswer:
    """A verdict, and when it was made (seconds since 1970)."""

    verdict: Verdict
    made: float


class AnswerStore:
    """The file. Any number of processes may use it; what cannot be read or written there is measured as if it were empty."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, key: str) -> KeptAnswer | None:
        """What is known; None where nothing is."""
        with contextlib.suppress(sqlite3.Error, OSError, ValidationError):
            if not self.path.is_file():
                return None
            with self._open() as database:
                row = database.execute("select verdict, made from answers where key = ?", (key,)).fetchone()
                if row is None:
                    return None
                database.execute("update answers set used = ? where key = ?", (time.time(), key))
            return KeptAnswer(Verdict.model_validate_json(row[0]), row[1])
        return None

    def get_times(self, key: str) -> ContestTimes | None:
        """What the ways of a contest take; None where nobody has raced them."""
        with contextlib.suppress(sqlite3.Error, OSError, ValidationError):
            if not self.path.is_file():
                return None
            with self._open() as database:
                row = database.execute("select times from regions where key = ?", (key,)).fetchone()
                if row is not None:
                    database.execute("update regions set used = ? where key = ?", (time.time(), key))
                    return ContestTimes.model_validate_json(row[0])
        return None

    def put_times(self, key: str, card: str, times: ContestTimes) -> None:
        """Keep what the ways of a contest take. Where that cannot be written, they are raced again."""
        row = (key, card, times.model_dump_json(), time.time(), time.time())
        with contextlib.suppress(sqlite3.Error, OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._open() as database:
                database.execute("insert or replace into regions values (?, ?, ?, ?, ?)", row)

    def put(self, key: str, about: dict[str, str], verdict: Verdict, seconds: float) -> None:
        """Keep an answer in place of an earlier one. Where that cannot be written, the log says so, and the verdict counts all the same."""
        now = time.time()
        row = {**about, "key": key, "verdict": verdict.model_dump_json(), "seconds": round(seconds, 3), "made": now, "used": now}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._open() as database:
                names = ", ".join(row)
                database.execute(f"insert or replace into answers ({names}) values ({', '.join('?' * len(row))})", tuple(row.values()))
        except (sqlite3.Error, OSError) as error:
            logging.getLogger("tritonsmith").warning("%s: the verdict is not kept for other runs (%s)", self.path, error)

    def summarize(self) -> dict[str, Any]:
        """Answers, bytes, measuring seconds that they stand for, and how many there are per card. Raises UsageError."""
        if not self.path.is_file():
            return {"file": str(self.path), "answers": 0, "bytes": 0, "seconds": 0.0, "cards": {}}
        with self._explain(), self._open() as database:
            count, seconds = database.execute("select count(*), coalesce(sum(seconds), 0) from answers").fetchone()
            cards = dict(database.execute("select card, count(*) from answers group by card order by card").fetchall())
        return {"file": str(self.path), "answers": count, "bytes": self.path.stat().st_size, "seconds": seconds, "cards": cards}

    def evict(
        self, *, everything: bool = False, unused_days: float | None = None, task: str | None = None, most_mb: float | None = None
    ) -> int:
        """Remove answers, and give the space back; returns how many. Raises UsageError.

        Args:
            everything: all of them.
            unused_days: those that nobody has asked for in so many days.
            task: those about tasks of this name, or with this hash.
            most_mb: the least recently used, until the file has at most so many megabytes.
        """
        if not self.path.is_file():
            return 0
        with self._explain(), self._open() as database:
            before = database.execute("select count(*) from answers").fetchone()[0]
            if everything:
                database.execute("delete from answers")
                database.execute("delete from regions")
            if unused_days is not None:
                for table in ("answers", "regions"):
                    database.execute(f"delete from {table} where used < ?", (time.time() - unused_days * 86_400,))
            if task is not None:
                database.execute("delete from answers where task = ? or task_sha = ?", (task, task))
            if most_mb is not None:
                _drop_oldest(database, most_mb * 1e6)
            after: int = database.execute("select count(*) from answers").fetchone()[0]
            database.commit()
            database.execute("vacuum")
        return int(before - after)

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Keep every other process from measuring the same question meanwhile; a process that dies lets go.

        Where the file system cannot lock, nobody is kept away.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError:
            yield
            return
        try:
            place = int(key[:16], 16) % _OFFSETS
            wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
            while True:
                try:
                    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_LOOK_SECONDS)
                except OSError:
                    break
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self.path, timeout=30)
        try:
            database.execute(_TABLE)
            database.execute(_REGIONS)
            yield database
            database.commit()
        finally:
            database.close()

    @contextlib.contextmanager
    def _explain(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise UsageError(f"{self.path}: cannot be used as kept answers ({error}); remove the file, and it is made anew") from error


def _drop_oldest(database: sqlite3.Connection, most: float) -> None:
    kept = 0.0
    for key, size in database.execute("select key, length(verdict) + 500 from answers order by used desc").fetchall():
        kept += size
        if kept > most:
            database.execute("delete from answers where key = ?", (key,))


class KeptEvaluator(ForwardingEvaluator):
    """Has verdicts from a store where it has them; asks another evaluator for the rest, and keeps that.

    Races of whole kernels are measured anew each time: they only choose what gets a verdict. What the ways to write a region take is kept:
    equal regions of other modules have it for nothing.

    Args:
        inner: the evaluator that measures.
        store: where answers are kept.
        settings: what else a verdict depends on, such as the sandbox's mode.
        fresh: measure everything again; new answers take the place of old ones.
    """

    def __init__(self, inner: Evaluator, store: AnswerStore, settings: dict[str, str], *, fresh: bool = False) -> None:
        super().__init__(inner)
        self._store, self._fresh = store, fresh
        self._said: set[tuple[str, str]] = set()
        driver = card_in_nvml().get("driver", "") if self.hardware.present else ""
        told = {"hardware": self.hardware.model_dump(mode="json"), "versions": versions(), "code": digest_code(), "driver": driver}
        self._conditions = json.dumps({**told, "settings": settings}, sort_keys=True)

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """The kept verdict, which says when it was made, or a new one. Nothing is kept where nobody knows what the task reads."""
        reads = task.reads if task.reads is not None else (await self.inner.describe(task)).reads
        if doubt := "the evaluator does not say what it reads" if reads is None else reads.unknown:
            self._warn(task, doubt)
            return await self.inner.evaluate(task, kernel, profile)
        asked = task.model_copy(update={"reads": reads}).sha
        key = hashlib.sha256("\0".join((asked, kernel.sha, profile, self._conditions)).encode()).hexdigest()
        async with self._store.lock(key):
            known = None if self._fresh else await asyncio.to_thread(self._store.get, key)
            if known is not None:
                return _mark_as_kept(known)
            started = time.monotonic()
            verdict = await self.inner.evaluate(task, kernel, profile)
            if doubt := str(verdict.environment.get(UNKEPT, "")):
                self._warn(task, doubt)
                return verdict
            about = {
                "task": task.name, "task_sha": asked, "kernel": kernel.sha, "profile": profile,
                "card": f"{self.hardware.name}{'' if self.hardware.present else ' (estimates)'}", "conditions": self._conditions,
            }  # fmt: skip
            await asyncio.to_thread(self._store.put, key, about, verdict, time.monotonic() - started)
            return verdict

    async def race_regions(self, task: Task, contests: Sequence[Contest], seconds: float) -> ContestReport:
        """What is kept of the contests; the others are raced, and what comes of it is kept. Raises InfrastructureError."""
        keys = [hashlib.sha256(f"{contest.key}\0{self._conditions}".encode()).hexdigest() for contest in contests]
        known = [None if self._fresh else await asyncio.to_thread(self._store.get_times, key) for key in keys]
        left = [contest for contest, times in zip(contests, known, strict=True) if times is None]
        if not left:
            return ContestReport(contests=tuple(times for times in known if times is not None))
        report = await self.inner.race_regions(task, left, seconds)
        raced = iter(report.contests or (ContestTimes(),) * len(left))
        found = [times if times is not None else next(raced) for times in known]
        for key, times, before in zip(keys, found, known, strict=True):
            if before is None and times.times:
                await asyncio.to_thread(self._store.put_times, key, self.hardware.name, times)
        note = report.note if not any(times.times for times in found) else ""
        return report.model_copy(update={"contests": tuple(found), "note": note})

    def _warn(self, task: Task, why: str) -> None:
        """Say once why the verdicts of a task are not kept."""
        if (task.path, why) not in self._said:
            self._said.add((task.path, why))
            logging.getLogger("tritonsmith").warning("%s: its verdicts are not kept for other runs: %s", task.path, why)


def _mark_as_kept(known: KeptAnswer) -> Verdict:
    made = datetime.fromtimestamp(known.made, UTC).isoformat(timespec="seconds")
    verdict = known.verdict.model_copy(update={"environment": known.verdict.environment | {"kept": made}})
    timing = verdict.timing
    if timing is not None and timing.raw is not None and not Path(timing.raw).is_file():  # the samples went with the run that took them
        verdict = verdict.model_copy(update={"timing": timing.model_copy(update={"raw": None})})
    return verdict
