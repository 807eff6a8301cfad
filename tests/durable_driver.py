"""Kills runs with SIGKILL and goes on with them, in processes of its own: `python durable_driver.py FOLDER KILLS SEED`.

One process imports everything and forks; each child is a run (or its resumption) with a model and an evaluator that answer at once,
by rules alone, and that write down when they are asked and when they have answered. What came of it is printed as JSON.
"""

import asyncio
import hashlib
import json
import os
import random
import runpy
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from tritonsmith.evaluator.cards import named_card
from tritonsmith.evaluator.schema import TaskFacts, text_sha
from tritonsmith.graph.config import RunConfig
from tritonsmith.graph.run import Run
from tritonsmith.nodes.chat_connect import Models
from tritonsmith.nodes.scripted import scripted_verdict

chat = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("chat_server.py"))))
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


class RuledEvaluator:
    """Judges by a rule; a third of all kernels fails."""

    parallel = 2

    def __init__(self, book: Book) -> None:
        self.hardware = named_card("h200")
        self._book = book

    async def describe(self, task: Any) -> TaskFacts:
        await asyncio.sleep(SECONDS)
        return TaskFacts(returns="a tensor")

    async def evaluate(self, task: Any, source: str, profile: str = "quick") -> Any:
        self._book("judge", text_sha(source), profile)
        await asyncio.sleep(SECONDS)
        number = number_of(source)
        verdict = scripted_verdict(None, message="it fails") if number % 3 == 0 else scripted_verdict(0.3 + number % 17 / 10, launches=2)
        self._book("judged", text_sha(source), profile)
        return verdict

    async def aclose(self) -> None:
        pass


async def work(folder: Path, task: Path, fresh: bool) -> None:
    """One process's part of a run."""
    book = Book(folder.with_suffix(".book"))
    players = {"evaluator": RuledEvaluator(book), "models": Models(author=RuledModel(book=book))}
    config = RunConfig(task=str(task), out=str(folder), seeds=3, policy="rescue-all")
    run = Run(config, **players) if fresh else Run.of(folder, **players)
    async for _ in run.stream():
        pass


def child(folder: Path, task: Path, fresh: bool, kill_after: float | None) -> tuple[int, float]:
    """Fork a process for it, and kill that after a while; the exit status and the seconds it took."""
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        status = 1
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


def told_in(folder: Path) -> dict[str, Any]:
    """What must not depend on whether the run was killed."""
    summary = json.loads((folder / "summary.json").read_text())
    rows = [line.rsplit(",", 1)[0] for line in (folder / "usage.csv").read_text().splitlines()]  # without the seconds
    usage = {name: value for name, value in summary["usage"].items() if name != "seconds"}
    return {"decisions": summary["decisions"], "winner": summary["winner"], "candidates": summary["candidates"], "rows": sorted(rows),
            "usage": usage, "why": summary["stopped_because"], "best": (folder / "best.py").read_text().partition("\n")[2]}  # fmt: skip


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


def one_kill(folder: Path, task: Path, chance: random.Random, seconds: float) -> dict[str, Any]:
    """A run that is killed once or more, and then goes on to its end."""
    kills, repeated, fresh = [], 0, True
    for _ in range(1 + chance.randrange(3)):
        after = chance.uniform(0.0, seconds)
        known, before = finished(folder), len(begun(folder))
        status, _ = child(folder, task, fresh, after)
        repeated += sum(word in known for word in begun(folder)[before:])
        kills.append((round(after, 3), status))
        fresh = not (folder / "run.json").is_file()
    known, before = finished(folder), len(begun(folder))
    status, _ = child(folder, task, fresh, None)
    repeated += sum(word in known for word in begun(folder)[before:])
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    starts = [event["resumed"] for event in events if event["event"] == "run"]
    return {
        "kills": kills, "status": status, "repeated": repeated, "known": len(known), "starts": starts,
        "last": events[-1]["event"], "told": told_in(folder), "twice": max(Counter(told_in(folder)["rows"]).values()),
    }  # fmt: skip


def main(root: Path, number: int, seed: int) -> None:
    """Compare runs that are killed with one that is not."""
    task = root / "1_relu.py"
    task.write_text(chat.TASK)
    status, seconds = child(root / "whole", task, True, None)
    whole = told_in(root / "whole")
    chance = random.Random(seed)
    kills = [one_kill(root / f"killed{index}", task, chance, seconds) for index in range(number)]
    for kill in kills:
        told = kill.pop("told")
        kill["differs"] = [name for name in whole if told[name] != whole[name]]
    shape = {"candidates": len(whole["candidates"]), "decisions": len(whole["decisions"]), "rows": len(whole["rows"])}
    print(json.dumps({"status": status, "seconds": seconds, "whole": shape, "kills": kills}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
