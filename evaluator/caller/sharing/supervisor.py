"""What runs in an actor of a cluster: an evaluator of one card, asked and answering in JSON.

The actor's process holds no CUDA context and runs no candidate. Candidates run in the confined processes of its evaluator, and only our
own records pass from there. All of them end with the actor's process.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.caller.local import BaselineSet, LocalEvaluator
from tritonsmith.evaluator.cards.machine import card_memory_in_use, versions
from tritonsmith.evaluator.errors import InfrastructureError, TaskError, UsageError
from tritonsmith.evaluator.kernel_text import KernelText, text_sha
from tritonsmith.evaluator.processes.run_folder import run_folder
from tritonsmith.evaluator.records.contest import Contest
from tritonsmith.evaluator.schema import LaunchFacts, Record, Task, Verdict

_SETTLE_SECONDS = 30.0
"""The longest wait for memory that processes of an earlier supervisor give back."""
_LOOK_SECONDS = 0.5
_MOST_RAW_BYTES = 8_000_000
"""Samples of one verdict that travel with it; longer ones stay on the card's host."""


class RaceQuestion(Record):
    """A race as it travels to a supervisor; kernels are texts."""

    incumbent: str
    entrants: tuple[str, ...]
    facts: LaunchFacts
    keep: int
    seconds: float


class RegionsQuestion(Record):
    """A race of regions as it travels to a supervisor."""

    contests: tuple[Contest, ...]
    seconds: float


class Supervisor:
    """The evaluator of the card that the cluster gave this process. Questions and answers are JSON texts.

    Args:
        target: as for the evaluator of this machine.
        sandbox: the mode of the sandbox.
        baselines: as for the evaluator of this machine.
    """

    def __init__(self, target: str, sandbox: str, baselines: BaselineSet) -> None:
        wait_for_memory()
        self._folder = run_folder() / "supervisor"
        self._folder.mkdir(exist_ok=True)
        self._folder.chmod(0o711)  # confined processes read tasks below it
        self._evaluator = LocalEvaluator(target, self._folder / "raw", sandbox=sandbox, baselines=baselines)

    def hello(self) -> str:
        """Card, host, process and versions."""
        about = {"node": os.uname().nodename, "pid": os.getpid(), "versions": versions()}
        places = {"parallel": self._evaluator.parallel, "admits": self._evaluator.admits}
        return json.dumps({"hardware": self._evaluator.hardware.model_dump(mode="json"), **about, **places})

    def evaluate(self, task: str, kernel: str, profile: str) -> str:
        """A verdict with its raw samples, or why there is none."""
        place = self._put(Task.model_validate_json(task))
        return self._answer(place, lambda: self._judge(place, KernelText.of(kernel), profile))

    def race(self, task: str, question: str) -> str:
        """A race, None where the evaluator has none, or why there is none."""
        place = self._put(Task.model_validate_json(task))
        return self._answer(place, lambda: self._race(place, RaceQuestion.model_validate_json(question)))

    def race_regions(self, task: str, question: str) -> str:
        """What regions take on the card, or why nothing is known."""
        place, asked = self._put(Task.model_validate_json(task)), RegionsQuestion.model_validate_json(question)

        def race() -> dict[str, Any]:
            return {"regions": self._evaluator.race_regions_now(place, asked.contests, asked.seconds).model_dump(mode="json")}

        return self._answer(place, race)

    async def describe(self, task: str) -> str:
        """The facts of a task, or why there are none."""

        async def ask(place: Task) -> dict[str, Any]:
            return {"facts": (await self._evaluator.describe(place)).model_dump(mode="json")}

        return await self._answer_later(task, ask)

    async def count(self, task: str, kernel: str) -> str:
        """What the card's counters say of a working kernel, or why nobody can ask."""

        async def ask(place: Task) -> dict[str, Any]:
            found = await self._evaluator.count(place, KernelText.of(kernel))
            return {"counters": found and found.model_dump(mode="json")}

        return await self._answer_later(task, ask)

    async def read_code(self, task: str, kernel: str) -> str:
        """A digest of what a text compiles to, or why there is none."""

        async def ask(place: Task) -> dict[str, Any]:
            return {"code": await self._evaluator.read_code(place, KernelText.of(kernel))}

        return await self._answer_later(task, ask)

    async def _answer_later(self, task: str, ask: Callable[[Task], Awaitable[dict[str, Any]]]) -> str:
        place = self._put(Task.model_validate_json(task))
        try:
            return json.dumps(await ask(place))
        except (UsageError, InfrastructureError) as error:
            return _fault(error, place)

    def _judge(self, task: Task, kernel: KernelText, profile: str) -> dict[str, Any]:
        verdict: Verdict = self._evaluator.evaluate_now(task, kernel, profile)
        raw, text = Path(verdict.timing.raw) if verdict.timing and verdict.timing.raw else None, ""
        if raw is not None and raw.is_file():
            if raw.stat().st_size <= _MOST_RAW_BYTES:
                text = raw.read_text(encoding="utf-8")
            raw.unlink()
        verdict = verdict.model_copy(update={"environment": verdict.environment | {"node": os.uname().nodename}})
        return {"verdict": verdict.model_dump(mode="json"), "raw": text}

    def _race(self, task: Task, asked: RaceQuestion) -> dict[str, Any]:
        entrants = [KernelText.of(text) for text in asked.entrants]
        report = self._evaluator.race_now(task, KernelText.of(asked.incumbent), entrants, asked.facts, asked.keep, asked.seconds)
        return {"race": report and report.model_dump(mode="json")}

    def _answer(self, task: Task, work: Any) -> str:
        try:
            return json.dumps(work())
        except (UsageError, InfrastructureError) as error:
            return _fault(error, task)

    def _put(self, task: Task) -> Task:
        """The task with its file on this host, where its own code may look for it."""
        path = self._folder / f"{text_sha(task.source)}.py"
        if not path.is_file():
            partial = path.with_suffix(f".{time.monotonic_ns()}.part")
            partial.write_text(task.source, encoding="utf-8")
            partial.replace(path)
        return task.model_copy(update={"path": str(path)})


def wait_for_memory() -> None:
    """Wait until the card's memory in use falls no further, so that a dead supervisor's processes are gone. At once without a card."""
    deadline, before = time.monotonic() + _SETTLE_SECONDS, card_memory_in_use()
    while before is not None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        now = card_memory_in_use()
        if now is None or now >= before:
            return
        before = now


def _fault(error: Exception, task: Task) -> str:
    kind = "task" if isinstance(error, TaskError) else "usage" if isinstance(error, UsageError) else "machinery"
    return json.dumps({"error": str(error).replace(task.path, f"{task.name}.py"), "kind": kind})
