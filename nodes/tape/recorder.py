"""Writes a recording line by line, so that a run that is killed leaves what it had."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

from langgraph.errors import GraphDrained

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.storage.files import append_text, drop_cut_line
from tritonsmith.nodes.tape.tape import FORMAT, Line, Tape, load_tape, read_lines

_OWN = ""
"""Stands for the option where the tape is the run's own, which no option names."""
_IDENTITY = ("kind", "key", "name", "call", "task", "kernel", "profile", "branch", "fault", "fatal", "race")
"""Fields that make two lines the same line."""
_SAID = ("tape", "hardware", "reply", "memory", "fault")
"""Kinds of lines that hold no judgement of a task."""


class TapeRecorder:
    """Writes a recording line by line, so that a run that is killed leaves what it had."""

    def __init__(self, path: Path, *, model: str = "", more: bool = False, option: str = "--record") -> None:
        """Begin the file; `more` goes on with one that is there, and writes no line that it has.

        Raises UsageError for a file that holds something already, OSError for one of a run's folder that cannot be written.
        """
        self.path = path
        self._lock = threading.Lock()
        self._known: set[str] = set()
        try:
            if path.exists() and path.stat().st_size and not more:
                raise UsageError(f"{option} {path}: the file is there already; name a new one, so that no recording is overwritten")
            path.parent.mkdir(parents=True, exist_ok=True)
            if more and path.exists():
                drop_cut_line(path)
                self._known = {_identity(line) for line in read_lines(path, option)}
            path.touch()
            if not path.stat().st_size:
                self.write({"kind": "tape", "format": FORMAT, "model": model})
        except OSError as error:
            if not option:
                raise  # the caller that has the run's folder knows what to say
            raise UsageError(f"{option} {path}: cannot write there ({error.strerror}); name another file") from error

    def forget_judgements(self) -> None:
        """Write new answers about a task also where the file has old ones; the last line of a kind counts."""
        with self._lock:
            self._known = {known for known in self._known if json.loads(known)[0] in _SAID}

    def write(self, line: Line) -> None:
        """Add one line. Raises OSError."""
        text = json.dumps(line, ensure_ascii=False) + "\n"  # in the order of its fields: prompts are made from them
        with self._lock:
            if not self._known or _identity(line) not in self._known:
                append_text(self.path, text)


class RunTape:
    """What a run keeps for itself, so that it can go on: opened when its folder is known."""

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self.tape: Tape | None = None
        self.recorder: TapeRecorder | None = None
        self.stopping: Callable[[], str | None] = lambda: None
        """Why the run is about to stop; nothing new is asked or judged then."""
        self.replies_only = False
        """Whether what an earlier part of the run judged does not count."""

    def open(self, path: Path, model: str) -> tuple[Tape, TapeRecorder]:
        """Read what an earlier part of the run has kept, and continue writing there. Raises UsageError for a broken line.

        A last line that a kill has cut is dropped: its work was not finished.
        """
        drop_cut_line(path)
        self.tape = load_tape(path, _OWN) if path.is_file() and path.stat().st_size else Tape([], path)
        self.recorder = TapeRecorder(path, model=model, more=True, option=_OWN)
        if self.replies_only:
            self.tape.forget_judgements()
            self.recorder.forget_judgements()
        return self.tape, self.recorder


def _identity(line: Line) -> str:
    return json.dumps([line.get(name) for name in _IDENTITY])


def refuse_when(stopping: Callable[[], str | None]) -> None:
    """Ask and judge nothing new once the run is about to stop. Raises GraphDrained with the reason."""
    reason = stopping()
    if reason is not None:
        raise GraphDrained(reason)
