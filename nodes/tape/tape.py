"""Recordings: every request with its reply and every verdict, one JSON object per line.

A request is found by its text, not by its place, so parallel branches may come in any order. Keys are not in it: only messages and
replies are written, never the request as it goes over the wire.
"""

import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.storage.files import fault_of, lines_of, parse_object
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.nodes.chat.records import Request

FORMAT = 1
"""Version of the lines of a recording; one of another version is not played."""
_SHOWN = 160
"""Characters of a line that a message quotes."""

Line = dict[str, Any]
"""One line of a recording."""


class Tape:
    """A recording in memory. Replies to one question are given in the order in which they were recorded."""

    def __init__(self, lines: list[Line], path: Path) -> None:
        """`path` names the file in messages."""
        self.path = path
        heads = [line for line in lines if line.get("kind") == "tape"]
        self.head: Line = heads[0] if heads else {}
        for line in lines:
            if line.get("kind") == "hardware":
                self.head.setdefault("hardware", line["hardware"])
        self.requests = [line for line in lines if line.get("kind") == "reply"]
        self._replies: defaultdict[str, list[Line]] = defaultdict(list)
        for line in self.requests:
            self._replies[line["key"]].append(line)
        self.facts = {line["task"]: line["facts"] for line in lines if line.get("kind") == "facts"}
        self.memories: dict[str, Line] = {
            line["task"]: {name: line.get(name, ()) for name in ("examples", "failures")} for line in lines if line.get("kind") == "memory"
        }
        """What the run was told of earlier runs, by task."""
        self.verdicts = {(line["task"], line["kernel"], line["profile"]): line for line in lines if line.get("kind") == "verdict"}
        self.races = {(line["task"], line["race"]): line for line in lines if line.get("kind") == "race"}
        """Answers to timed races."""
        self.regions = {(line["task"], line["race"]): line for line in lines if line.get("kind") == "regions"}
        """Answers to races of regions."""
        self.codes = {(line["task"], line["kernel"]): line for line in lines if line.get("kind") == "code"}
        """Digests of what texts compile to."""
        self.counters = {(line["task"], line["kernel"]): line for line in lines if line.get("kind") == "counters"}
        """What a card counted of texts."""
        self.seeds = {line["task"]: line for line in lines if line.get("kind") == "seed"}
        """Texts of a compiler by task."""
        self.faults = [line for line in lines if line.get("kind") == "fault"]
        """Branches that the author failed."""
        self._lock = threading.Lock()

    @property
    def model(self) -> str:
        """The name of the author that was recorded."""
        return str(self.head.get("model", ""))

    def find(self, request: Request) -> Line | None:
        """The recorded answer to the same question; None when it was never asked."""
        with self._lock:
            waiting = self._replies.get(request.key)
            if not waiting:
                return None
            named = [line for line in waiting if (line["name"], line["call"]) == (request.name, request.call)]
            own = next((line for line in named if "reply" in line), (named or waiting)[0])  # a resumed run got it after a failure
            if len(waiting) > 1:
                waiting.remove(own)
            return own

    def find_exact(self, request: Request) -> Line | None:
        """The reply to this very request, however often it is wanted; None when it has none."""
        named = (line for line in self._replies.get(request.key, ()) if (line["name"], line["call"]) == (request.name, request.call))
        return next((line for line in named if "reply" in line), None)

    def add(self, line: Line) -> None:
        """Know one more reply, for a process that goes on with its run itself."""
        with self._lock:
            self._replies[line["key"]].append(line)

    def forget_judgements(self) -> None:
        """Keep replies alone: what was judged does not count where nobody knows whether the task is still the same."""
        for judged in (self.facts, self.verdicts, self.races, self.regions, self.codes, self.counters, self.seeds):
            judged.clear()

    def reply(self, request: Request) -> Line:
        """The recorded answer. Raises UsageError that shows where the question differs from the recorded one."""
        found = self.find(request)
        if found is not None:
            return found
        raise UsageError(f"--replay {self.path}: {self._difference(request)}; record the run again, or use the version that recorded it")

    def _difference(self, request: Request) -> str:
        named = [line for line in self.requests if (line["name"], line["call"]) == (request.name, request.call)]
        if not named:
            return f"the recording has no request {request.label}, so an earlier decision differs"
        old = _lines(named[0]["messages"])
        new = _lines([message.model_dump() for message in request.messages])
        for number, (recorded, asked) in enumerate(zip(old, new, strict=False), start=1):
            if recorded != asked:
                at = next((i for i, (a, b) in enumerate(zip(recorded, asked, strict=False)) if a != b), min(len(recorded), len(asked)))
                start = max(0, at - _SHOWN // 2)
                parts = (text[start : start + _SHOWN] for text in (recorded, asked))
                return f"request {request.label} differs in line {number}: recorded {next(parts)!r}, now {next(parts)!r}"
        return f"request {request.label} differs in its length: {count_words(len(old), 'line')} recorded, now {len(new)}"


def read_lines(path: Path, option: str) -> list[Line]:
    """The lines of a recording, which an option names, or of a run's own tape. Raises UsageError that names the line that is broken."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{_quote_place(path, option)}: cannot be read ({fault_of(error)}); {_way_out(option)}") from error
    lines: list[Line] = []
    for number, line in enumerate(lines_of(data), start=1):
        try:
            lines.append(_check_line(parse_object(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{_quote_place(path, option)}: line {number} is not a line of a recording ({fault_of(error)}); remove that line, or "
                f"{_way_out(option)}"
            ) from error
    return lines


def load_tape(path: str | Path, option: str = "--replay") -> Tape:
    """Read a recording. Raises UsageError that names the line that cannot be read."""
    file = Path(path)
    lines = read_lines(file, option)
    if not lines or lines[0].get("kind") != "tape":
        raise UsageError(f"{_quote_place(file, option)}: this is not a recording; {_way_out(option)}")
    if lines[0].get("format") != FORMAT:
        raise UsageError(f"{_quote_place(file, option)}: format {lines[0].get('format')} is not {FORMAT}; use the version that recorded it")
    return Tape(lines, file)


def _quote_place(path: Path, option: str) -> str:
    return f"{option} {path}" if option else str(path)


def _way_out(option: str) -> str:
    if option:
        return "name a file that --record wrote"
    return "remove the file and go on with the run: what only it held is asked and judged again"


_NEEDED = {
    "reply": ("key", "name", "call", "messages"),
    "facts": ("task", "facts"),
    "verdict": ("task", "kernel", "profile"),
    "race": ("task", "race", "report"),
    "regions": ("task", "race", "report"),
    "code": ("task", "kernel", "code"),
    "counters": ("task", "kernel", "counters"),
    "memory": ("task", "examples"),
    "seed": ("task", "seed"),
    "fault": ("branch", "error", "fatal"),
}
"""Fields that a line of each kind must have."""
_TEXTS = ("kind", "key", "name", "task", "kernel", "profile", "branch", "race", "code")
"""Fields that must be text."""


def _check_line(line: Line) -> Line:
    missing = [key for key in _NEEDED.get(str(line.get("kind")), ()) if key not in line]
    if missing:
        raise ValueError(f"no {', '.join(missing)}")
    wrong = [name for name in _TEXTS if not isinstance(line.get(name, ""), str)]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} must be text")
    return line


def _lines(messages: list[Any]) -> list[str]:
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages).splitlines()
