"""Recordings: every request with its reply and every verdict, one JSON object per line, and a run that is played from them.

A request is found by what it says, not by its place, so parallel branches may come in any order. Keys are not in it: only
messages and replies are written, never the request as it goes over the wire.
"""

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.errors import GraphDrained
from pydantic import ValidationError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Evaluator, Hardware, Task, TaskFacts, Verdict, text_sha
from tritonsmith.graph.files import append_text, drop_cut_line, fault_of, lines_of, parse_object
from tritonsmith.nodes.chat import Chat, Reply, Request
from tritonsmith.nodes.chat_faults import Fault, ModelFault

FORMAT = 1
_OWN = ""
"""Stands for the option where the tape is the run's own, which no option names."""
_SHOWN = 160
"""Characters of a line that a message quotes."""

Line = dict[str, Any]


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
        self.memories: dict[str, list[Line]] = {line["task"]: line["examples"] for line in lines if line.get("kind") == "memory"}
        """What the run was told of earlier ones."""
        self.verdicts = {(line["task"], line["kernel"], line["profile"]): line for line in lines if line.get("kind") == "verdict"}
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
            own = next((line for line in waiting if (line["name"], line["call"]) == (request.name, request.call)), waiting[0])
            if len(waiting) > 1:
                waiting.remove(own)
            return own

    def exactly(self, request: Request) -> Line | None:
        """The reply to this very request, however often it is wanted; None when it has none."""
        named = (line for line in self._replies.get(request.key, ()) if (line["name"], line["call"]) == (request.name, request.call))
        return next((line for line in named if "reply" in line), None)

    def add(self, line: Line) -> None:
        """Know one more reply, for a process that goes on with its run itself."""
        with self._lock:
            self._replies[line["key"]].append(line)

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
        return f"request {request.label} differs in its length: {len(old)} lines recorded, now {len(new)}"


def read_lines(path: Path, option: str) -> list[Line]:
    """The lines of a recording, which an option names, or of a run's own tape. Raises UsageError that names the line that is broken."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{_named(path, option)}: cannot be read ({fault_of(error)}); {_way_out(option)}") from error
    lines: list[Line] = []
    for number, line in enumerate(lines_of(data), start=1):
        try:
            lines.append(_checked(parse_object(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{_named(path, option)}: line {number} is not a line of a recording ({fault_of(error)}); remove that line, or "
                f"{_way_out(option)}"
            ) from error
    return lines


def load_tape(path: str | Path, option: str = "--replay") -> Tape:
    """Read a recording. Raises UsageError that names the line that cannot be read."""
    file = Path(path)
    lines = read_lines(file, option)
    if not lines or lines[0].get("kind") != "tape":
        raise UsageError(f"{_named(file, option)}: this is not a recording; {_way_out(option)}")
    if lines[0].get("format") != FORMAT:
        raise UsageError(f"{_named(file, option)}: format {lines[0].get('format')} is not {FORMAT}; use the version that recorded it")
    return Tape(lines, file)


def _named(path: Path, option: str) -> str:
    return f"{option} {path}" if option else str(path)


def _way_out(option: str) -> str:
    if option:
        return "name a file that --record wrote"
    return "remove the file and go on with the run: what only it held is asked and judged again"


_NEEDED = {
    "reply": ("key", "name", "call", "messages"),
    "facts": ("task", "facts"),
    "verdict": ("task", "kernel", "profile"),
    "memory": ("task", "examples"),
    "fault": ("branch", "error", "fatal"),
}
_IDENTITY = ("kind", "key", "name", "call", "task", "kernel", "profile", "branch", "fault", "fatal")
"""What makes two lines the same one."""
_TEXTS = ("kind", "key", "name", "task", "kernel", "profile", "branch")


def _checked(line: Line) -> Line:
    missing = [key for key in _NEEDED.get(str(line.get("kind")), ()) if key not in line]
    if missing:
        raise ValueError(f"no {', '.join(missing)}")
    wrong = [name for name in _TEXTS if not isinstance(line.get(name, ""), str)]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} must be text")
    return line


class Recorder:
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
                raise  # whoever has the run's folder knows what to say
            raise UsageError(f"{option} {path}: cannot write there ({error.strerror}); name another file") from error

    def write(self, line: Line) -> None:
        """Add one line. Raises OSError."""
        text = json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n"
        with self._lock:
            if not self._known or _identity(line) not in self._known:
                append_text(self.path, text)


class RecordedChat:
    """Asks another chat and writes down what was said; failures of the model too."""

    def __init__(self, chat: Chat, recorder: Recorder) -> None:
        """The chat that answers, and where it is written."""
        self.name = chat.name
        self._chat, self._recorder = chat, recorder

    @property
    def price(self) -> Any:
        """Of the chat that answers."""
        return getattr(self._chat, "price", None)

    async def ask(self, request: Request) -> Reply:
        """The other chat's reply."""
        line: Line = {"kind": "reply", "key": request.key, **request.model_dump(mode="json")}
        try:
            reply = await self._chat.ask(request)
        except ModelFault as fault:
            await asyncio.to_thread(self._recorder.write, {**line, "fault": fault.fault.value, "error": str(fault)})
            raise
        await asyncio.to_thread(self._recorder.write, {**line, "reply": reply.model_dump(mode="json")})
        return reply


class Kept:
    """What a run keeps for itself, so that it can go on: opened when its folder is known."""

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self.tape: Tape | None = None
        self.recorder: Recorder | None = None
        self.stopping: Callable[[], str | None] = lambda: None
        """Why the run is about to stop; nothing new is asked or judged then."""

    def open(self, path: Path, model: str) -> tuple[Tape, Recorder]:
        """Read what an earlier part of the run has kept, and go on writing there. Raises UsageError for a broken line.

        A last line that a kill has cut is dropped: what it told was not finished.
        """
        drop_cut_line(path)
        self.tape = load_tape(path, _OWN) if path.is_file() and path.stat().st_size else Tape([], path)
        self.recorder = Recorder(path, model=model, more=True, option=_OWN)
        return self.tape, self.recorder


class KeptChat:
    """Asks another chat once for each question: what was answered in an earlier part of the run is not paid for again."""

    def __init__(self, chat: Chat, kept: Kept) -> None:
        """The chat that answers, and what the run has kept."""
        self.name = chat.name
        self._chat, self._kept = chat, kept

    @property
    def price(self) -> Any:
        """Of the chat that answers."""
        return getattr(self._chat, "price", None)

    async def ask(self, request: Request) -> Reply:
        """The kept reply, or the other chat's; failures are not kept, and the question is then asked again."""
        line = self._kept.tape.exactly(request) if self._kept.tape else None
        if line is not None:
            return Reply.model_validate(line["reply"])
        _refuse_when(self._kept.stopping)
        reply = await self._chat.ask(request)
        if self._kept.recorder is not None:
            line = {"kind": "reply", "key": request.key, **request.model_dump(mode="json"), "reply": reply.model_dump(mode="json")}
            await asyncio.to_thread(self._kept.recorder.write, line)
            if self._kept.tape is not None:
                self._kept.tape.add(line)
        return reply


class ReplayedChat:
    """Answers from a recording, with the tokens and the time that were recorded."""

    def __init__(self, tape: Tape) -> None:
        """The recording that answers."""
        self.name = tape.model
        self._tape = tape

    async def ask(self, request: Request) -> Reply:
        """The recorded reply, or the recorded failure. Raises UsageError for a request that was never recorded."""
        line = self._tape.reply(request)
        if "fault" in line:
            raise ModelFault(str(line["error"]), Fault(line["fault"]))
        return Reply.model_validate(line["reply"])


class TapeEvaluator:
    """Answers what is on a tape from it; asks another evaluator for the rest, and writes that down."""

    def __init__(
        self,
        tape: Tape,
        inner: Evaluator | None = None,
        recorder: Recorder | None = None,
        *,
        portable: bool = False,
        stopping: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Without another evaluator, what is not on the tape ends the run; `portable` leaves out paths of this machine.

        Raises UsageError for a tape without evaluations, and for one of another card.
        """
        self._stopping = stopping
        self._at_work: set[asyncio.Task[Verdict]] = set()
        self._tape, self._inner, self._recorder, self._portable = tape, inner, recorder, portable
        self.parallel = getattr(inner, "parallel", 1)
        if inner is not None:
            self.hardware: Hardware = inner.hardware
            self._refuse_another_card()
            if recorder is not None and "hardware" not in tape.head:
                tape.head["hardware"] = inner.hardware.model_dump(mode="json")
                recorder.write({"kind": "hardware", "hardware": tape.head["hardware"]})
            return
        try:
            self.hardware = Hardware.model_validate(tape.head.get("hardware"))
        except ValidationError as error:
            raise UsageError(f"--replay {tape.path}: the recording has no evaluations; record a whole run") from error

    def _refuse_another_card(self) -> None:
        """Times of two cards must not be compared within a run."""
        before = self._tape.head.get("hardware")
        if before is None or (before["key"], before["present"]) == (self.hardware.key, self.hardware.present):
            return
        then = before["name"] if before["present"] else f"estimates for {before['name']}"
        now = self.hardware.name if self.hardware.present else f"estimates for {self.hardware.name}"
        raise UsageError(
            f"{self._tape.path.parent}: the run began with {then} and cannot go on with {now}; resume it where the first is, "
            "or start a new run"
        )

    async def describe(self, task: Task) -> TaskFacts:
        """The recorded facts of the task."""
        if task.sha in self._tape.facts:
            return TaskFacts.model_validate(self._tape.facts[task.sha])
        if self._inner is None:
            raise UsageError(
                f"--replay {self._tape.path}: the recording is of another task, size or precision than {task.name} ({task.size})"
            )
        facts = await self._inner.describe(task)
        await self._keep({"kind": "facts", "task": task.sha, "facts": facts.model_dump(mode="json")})
        return facts

    async def evaluate(self, task: Task, source: str, profile: str = "quick") -> Verdict:
        """The recorded verdict about a text."""
        key = (task.sha, text_sha(source), profile)
        line = self._tape.verdicts.get(key)
        if line is not None:
            return Verdict.model_validate(line["verdict"])
        if self._inner is None:
            raise UsageError(
                f"--replay {self._tape.path}: the recording has no {profile} verdict about kernel {key[1]}; an earlier decision differs"
            )
        _refuse_when(self._stopping)
        work = asyncio.ensure_future(self._judge(self._inner, task, source, profile))
        self._at_work.add(work)
        work.add_done_callback(self._at_work.discard)
        return await work

    def knows(self, task: Task, source: str, profile: str = "quick") -> bool:
        """Whether the verdict is on the tape, so that nothing is judged for it."""
        return (task.sha, text_sha(source), profile) in self._tape.verdicts

    async def settle(self) -> None:
        """Wait for what is judged just now, and keep it; whoever asked for it may have gone."""
        await asyncio.gather(*self._at_work, return_exceptions=True)

    async def _judge(self, inner: Evaluator, task: Task, source: str, profile: str) -> Verdict:
        key = (task.sha, text_sha(source), profile)
        verdict = await inner.evaluate(task, source, profile)
        told = verdict.model_dump(mode="json")
        if self._portable and told["timing"]:
            told["timing"]["raw"] = None  # the samples stay where they were measured
        line = {"kind": "verdict", "task": key[0], "kernel": key[1], "profile": profile, "verdict": told}
        self._tape.verdicts[key] = line
        await self._keep(line)
        return verdict

    async def aclose(self) -> None:
        """End the other evaluator."""
        if self._inner is not None:
            await self._inner.aclose()

    async def _keep(self, line: Line) -> None:
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.write, line)


def _refuse_when(stopping: Callable[[], str | None]) -> None:
    reason = stopping()
    if reason is not None:
        raise GraphDrained(reason)


def _identity(line: Line) -> str:
    return json.dumps([line.get(name) for name in _IDENTITY])


def _lines(messages: list[Any]) -> list[str]:
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages).splitlines()
