"""Leaves runs in the middle, kills them or fills their disk, and goes on with them; what came of it is printed as JSON.

    python durable_driver.py kills FOLDER NUMBER SEED    killed at random moments, some of them more than once
    python durable_driver.py lines FOLDER 2,5,9          killed as soon as the tape has so many lines: before any checkpoint of it
    python durable_driver.py disk FOLDER 200,300         in a file system of so many kilobytes (run it in a mount namespace)
    python durable_driver.py limit FOLDER 20,30          with files that may not grow beyond so many kilobytes, and without checkpoints

One process imports everything and forks; each child is a run (or its resumption) with a model and an evaluator that answer at once,
by rules alone, and that write down when they are asked and when they have answered.
"""

import asyncio
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import chat_server as chat
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import TritonsmithError
from tritonsmith.evaluator.kernel_text import KernelText, text_sha
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import TaskFacts
from tritonsmith.graph.runs.config import RunConfig
from tritonsmith.graph.runs.run import Run
from tritonsmith.graph.runs.version import graph_version
from tritonsmith.nodes.authors.model import ModelAuthor
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.evaluators.scripted import scripted_verdict
from tritonsmith.nodes.tape import recorder

SECONDS = 0.004


def number_of(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


class Book:
    """Lines that a kill leaves whole: what was begun, and what was done."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, *words: str) -> None:
        os.write(self._file, f"{' '.join(words)}\n".encode())


class RuledModel(BaseChatModel):
    """Answers by a rule: what it writes depends on the question alone."""

    book: Any

    @property
    def _llm_type(self) -> str:
        return "ruled"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
        asked = "\n".join(message.text for message in messages)
        key = text_sha(asked)
        self.book("ask", key)
        time.sleep(SECONDS)
        number = number_of(asked)
        text = chat.analysis() if "response_format" in more else chat.answer(number % 1000).text
        usage = {"input_tokens": len(asked) // 4, "output_tokens": 50, "total_tokens": len(asked) // 4 + 50}
        message = AIMessage(text, usage_metadata=usage, response_metadata={"finish_reason": "stop", "model_name": "ruled"})
        self.book("told", key)
        return ChatResult(generations=[ChatGeneration(message=message)])


class RuledEvaluator(Evaluator):
    """Judges by a rule; a third of all kernels fails."""

    parallel = 2

    def __init__(self, book: Book) -> None:
        self.hardware = named_card("h200")
        self._book = book

    async def describe(self, task: Any) -> TaskFacts:
        await asyncio.sleep(SECONDS)
        return TaskFacts(returns="a tensor")

    async def evaluate(self, task: Any, kernel: KernelText, profile: str = "quick") -> Any:
        self._book("judge", kernel.sha, profile)
        await asyncio.sleep(SECONDS)
        number = number_of(kernel.text)
        verdict = scripted_verdict(None, message="it fails") if number % 3 == 0 else scripted_verdict(0.3 + number % 17 / 10, launches=2)
        self._book("judged", kernel.sha, profile)
        return verdict

    async def aclose(self) -> None:
        pass


async def work(folder: Path, task: Path, fresh: bool, checkpoints: str = os.environ.get("CHECKPOINTS", "sqlite")) -> None:
    """One process's part of a run."""
    book = Book(folder.with_suffix(".book"))
    model = RuledModel(book=book)
    asks = {"author": ModelAuthor(model)} if os.environ.get("AUTHOR") else {"models": Models(author=model)}
    players = {"evaluator": RuledEvaluator(book), **asks}
    config = RunConfig(task=str(task), out=str(folder), seeds=3, policy="rescue-all", checkpoints=checkpoints)
    run = Run(config, **players) if fresh else Run.of(folder, **players)
    async for _ in run.stream():
        pass


async def run_to_end(run):
    return [event async for event in run.stream()]


def outcome_of(out):
    """Decisions, winner, candidates and reason of a finished run."""
    summary = json.loads((Path(out) / "summary.json").read_text())
    return summary["decisions"], summary["winner"], summary["candidates"], summary["stopped_because"]


def begin(task, players, out, at="verdict", count=1, branch=None, **options):
    """A run that was left in the middle, at that many events of a kind, in one branch where that is given."""

    async def leave():
        run, seen = Run(RunConfig(task=str(task), out=str(out), **options), **players), 0
        events = run.stream()
        async for event in events:
            seen += event["event"] == at and branch in (None, event["branch"])
            if seen == count:
                break
        await events.aclose()

    asyncio.run(leave())


def die_at_line(number: int) -> None:
    """Kill this process as soon as it has written so many lines of its tape."""
    written, append = [0], recorder.append_text

    def appended(path: Path, text: str) -> None:
        append(path, text)
        written[0] += 1
        if written[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    recorder.append_text = appended  # type: ignore[attr-defined]


def child(folder: Path, task: Path, fresh: bool, kill_after: float | None = None, lines: int | None = None) -> tuple[int, float]:
    """Fork a process for it, and kill that after a while; the exit status and the seconds it took."""
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        status = 1
        if lines is not None:
            die_at_line(lines)
        try:
            asyncio.run(work(folder, task, fresh))
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return status, time.monotonic() - started


def text_of(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def told_in(folder: Path) -> dict[str, Any]:
    """What must not depend on whether the run was killed."""
    summary = json.loads((folder / "summary.json").read_text())
    rows = [line.rsplit(",", 1)[0] for line in text_of(folder / "usage.csv").splitlines()]  # without the seconds
    usage = {name: value for name, value in summary["usage"].items() if name != "seconds"}
    return {"decisions": summary["decisions"], "winner": summary["winner"], "candidates": summary["candidates"], "rows": sorted(rows),
            "usage": usage, "why": summary["stopped_because"], "best": text_of(folder / "best.py").partition("\n")[2]}  # fmt: skip


def finished(folder: Path) -> set[tuple[str, ...]]:
    """What the tape has: kernels that were judged, questions that were answered."""
    found: set[tuple[str, ...]] = set()
    tape = folder / "tape.jsonl"
    for text in tape.read_text().splitlines(keepends=True) if tape.is_file() else ():
        if text.endswith("\n"):
            line = json.loads(text)
            if line["kind"] == "verdict":
                found.add(("judge", line["kernel"], line["profile"]))
            elif line["kind"] == "reply":
                found.add(("ask", text_sha("\n".join(message["content"] for message in line["messages"]))))
    return found


def begun(folder: Path) -> list[tuple[str, ...]]:
    book = folder.with_suffix(".book")
    lines = book.read_text().splitlines() if book.is_file() else []
    return [tuple(line.split()) for line in lines if line.startswith(("judge ", "ask "))]


def killed(folder: Path, task: Path, ways: list[dict[str, Any]]) -> dict[str, Any]:
    """A run that is killed in these ways, one after the other, and then goes on to its end."""
    kills, repeated, fresh = [], 0, True
    for way in ways:
        known, before = finished(folder), len(begun(folder))
        status, _ = child(folder, task, fresh, **way)
        repeated += sum(word in known for word in begun(folder)[before:])
        kills.append((*way.values(), status))
        fresh = not (folder / "run.json").is_file()
    known, before = finished(folder), len(begun(folder))
    status, _ = child(folder, task, fresh)
    repeated += sum(word in known for word in begun(folder)[before:])
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    starts = [event["resumed"] for event in events if event["event"] == "run"]
    return {
        "kills": kills, "status": status, "repeated": repeated, "known": len(known), "starts": starts,
        "last": events[-1]["event"], "told": told_in(folder), "twice": max(Counter(told_in(folder)["rows"]).values(), default=0),
    }  # fmt: skip


def filled(folder: Path, task: Path, kilobytes: int) -> dict[str, Any]:
    """A run whose disk is full before it is over; then there is room, and it goes on."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(folder)], check=True)
    said, run = "", folder / "run"
    book = folder.parent / f"{folder.name}.book"
    run.with_suffix(".book").symlink_to(book)  # what is counted must not be lost
    try:
        asyncio.run(work(run, task, True))
    except TritonsmithError as error:
        said = f"{type(error).__name__}: {error}"
    known, before = finished(run), len(begun(run))
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
    asyncio.run(work(run, task, not (run / "run.json").is_file()))
    repeated = sum(word in known for word in begun(run)[before:])
    return {"said": said.replace(str(run), "RUN"), "known": len(known), "repeated": repeated, "told": told_in(run)}


def limited(folder: Path, task: Path, kilobytes: int) -> dict[str, Any]:
    """The same where no file system can be made: a limit on files stands for the full disk."""
    said = ""
    before_all = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, before_all[1]))
    try:
        asyncio.run(work(folder, task, True, "none"))
    except TritonsmithError as error:
        said = f"{type(error).__name__}: {error}"
    resource.setrlimit(resource.RLIMIT_FSIZE, before_all)
    known, before = finished(folder), len(begun(folder))
    asyncio.run(work(folder, task, False))
    repeated = sum(word in known for word in begun(folder)[before:])
    return {"said": said.replace(str(folder), "RUN"), "known": len(known), "repeated": repeated, "told": told_in(folder)}


def main(what: str, root: Path, *how: str) -> None:
    """Compare runs that were in trouble with one that was not."""
    task = root / "1_relu.py"
    task.write_text(chat.TASK)
    graph_version()  # kept for all children
    status, seconds = child(root / "whole", task, True)
    whole = told_in(root / "whole")
    if what == "kills":
        chance = random.Random(int(how[1]))
        ways = [[{"kill_after": chance.uniform(0.0, seconds)} for _ in range(1 + chance.randrange(3))] for _ in range(int(how[0]))]
        cases = [killed(root / f"killed{index}", task, one) for index, one in enumerate(ways)]
    elif what == "lines":
        cases = [killed(root / f"killed{number}", task, [{"lines": int(number)}]) for number in how[0].split(",")]
    elif what == "limit":
        cases = [limited(root / f"limit{size}", task, int(size)) for size in how[0].split(",")]
    else:
        cases = [filled(root / f"disk{size}", task, int(size)) for size in how[0].split(",")]
    for case in cases:
        told = case.pop("told")
        case["differs"] = [name for name in whole if told[name] != whole[name]]
    shape = {"candidates": len(whole["candidates"]), "decisions": len(whole["decisions"]), "rows": len(whole["rows"])}
    shape["lines"] = len((root / "whole" / "tape.jsonl").read_text().splitlines())
    sys.stdout.write(json.dumps({"status": status, "seconds": seconds, "whole": shape, "cases": cases}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
