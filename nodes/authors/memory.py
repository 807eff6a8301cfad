"""Memory across runs: confirmed kernels and failures, found again by op family and shape.

One file per record, named by its content, so runs that end at the same time do no harm. Nothing of a task's checks enters: no reference,
no small sizes, no message of a check. Of a failure only its status, the author's own reason, and a compiler's words are kept.
"""

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Hardware, Record, Status, Task, TaskFacts, Verdict
from tritonsmith.graph.state import State
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.graph.storage.records import write_record
from tritonsmith.nodes.tape.recorder import TapeRecorder
from tritonsmith.nodes.tape.tape import Tape
from tritonsmith.prompts.author import Example
from tritonsmith.prompts.templates.families import families_of

MOST_EXAMPLES = 2
"""Kernels of earlier runs that a prompt shows."""
_MOST_FAILURES = 3
"""Failures of earlier runs that a prompt names."""
_SHORT = 160
"""Characters of a reason or of a compiler's words."""

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of a task's inputs."""


class RememberedKernel(Record):
    """A kernel that was confirmed in an earlier run."""

    task: str
    families: tuple[str, ...]
    shapes: Shapes = ()
    card: str
    precision: str
    kind: str
    """`measured` or `estimated`."""
    score: float
    baseline: str
    launches: int
    source: str


class FailedKernel(Record):
    """A kernel that did not work."""

    task: str
    families: tuple[str, ...]
    status: str
    reason: str = ""
    """The author's, for writing it."""
    compiler: str = ""
    """The compiler's first line, where it did not compile."""


class Memory:
    """A folder of records. Files that cannot be read are passed over: a memory is a help, not a condition."""

    def __init__(self, root: Path) -> None:
        """Make the folders. Raises UsageError when that is not allowed."""
        self._kernels, self._failures = root / "kernels", root / "failures"
        try:
            for folder in (self._kernels, self._failures):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--memory {root}: cannot make the folder ({error.strerror}); name another one") from error

    def recall(self, task: Task, facts: TaskFacts, hardware: Hardware) -> tuple[Example, ...]:
        """The two kernels of the same family that fit best: by precision, card, measurement, and nearest shape."""
        families, shapes = _families(task, facts), _shapes(facts)
        fitting = [kernel for kernel in self._read(self._kernels, RememberedKernel) if kernel.families[:1] == families[:1]]
        fitting.sort(
            key=lambda kernel: (
                kernel.precision != task.precision.value, kernel.card != hardware.key, kernel.kind != "measured",
                _distance(kernel.shapes, shapes), -kernel.score, kernel.task,
            )
        )  # fmt: skip
        failures = [kernel for kernel in self._read(self._failures, FailedKernel) if kernel.families[:1] == families[:1]]
        return tuple(_example(kernel, failures if number == 0 else []) for number, kernel in enumerate(fitting[:MOST_EXAMPLES]))

    def remember(self, state: State, sources: Callable[[str], str], hardware: Hardware) -> None:
        """Keep the run's winner, if it is confirmed, and what failed."""
        task, facts = state["task"], state.get("facts")
        if facts is None:
            return
        about: dict[str, Any] = {"task": task.name, "families": _families(task, facts)}
        shapes = () if task.size == "small" else _shapes(facts)  # small sizes are a part of the checks
        winner = state.get("winner")
        for candidate_id, verdict in state.get("verdicts", {}).items():
            candidate = state["candidates"][candidate_id]
            name = f"{task.sha}-{candidate.sha}.json"
            if candidate_id == winner and _is_verified(verdict) and verdict.timing is not None:
                kernel = RememberedKernel(
                    **about, shapes=shapes, card=hardware.key, precision=task.precision.value, kind=verdict.timing.kind.value,
                    score=verdict.timing.score, baseline=verdict.timing.baseline, launches=verdict.facts.launches_per_forward,
                    source=sources(candidate.sha),
                )  # fmt: skip
                write_record(self._kernels / name, kernel)
            elif verdict.status is not Status.OK:
                words = verdict.message.strip().partition("\n")[0][:_SHORT] if verdict.status is Status.COMPILE_ERROR else ""
                failed = FailedKernel(**about, status=verdict.status.value, reason=candidate.rationale[:_SHORT], compiler=words)
                write_record(self._failures / name, failed)

    def _read(self, folder: Path, kind: type[Any]) -> list[Any]:
        found = []
        for path in sorted(folder.glob("*.json")):
            try:
                found.append(kind.model_validate_json(path.read_text(encoding="utf-8")))
            except (OSError, UnicodeDecodeError, ValidationError):
                continue
        return found


class Recall:
    """Examples of earlier runs: looked up once, and kept with a recording, so that a replay gets the same."""

    def __init__(self, memory: Memory | None, tape: Tape | None = None, recorders: Sequence[TapeRecorder] = ()) -> None:
        """Without a memory, what the tape has."""
        self._memory, self._recorders = memory, recorders
        self._examples: dict[str, tuple[Example, ...]] = {}
        self._lock = threading.Lock()
        for sha, examples in (tape.memories if tape else {}).items():
            self._examples[sha] = tuple(Example.model_validate(example) for example in examples)

    async def __call__(self, task: Task, facts: TaskFacts, hardware: Hardware) -> tuple[Example, ...]:
        """Examples for a task."""
        return await asyncio.to_thread(self._look_up, task, facts, hardware)

    def _look_up(self, task: Task, facts: TaskFacts, hardware: Hardware) -> tuple[Example, ...]:
        with self._lock:
            if task.sha not in self._examples:
                found = self._memory.recall(task, facts, hardware) if self._memory else ()
                self._examples[task.sha] = found
                for recorder in self._recorders:
                    recorder.write({"kind": "memory", "task": task.sha, "examples": [example.model_dump(mode="json") for example in found]})
            return self._examples[task.sha]


def _is_verified(verdict: Verdict) -> bool:
    return verdict.status is Status.OK and verdict.profile == "strict" and not verdict.quarantine


def _families(task: Task, facts: TaskFacts) -> tuple[str, ...]:
    return tuple(family.value for family in families_of(facts, task.source))


def _shapes(facts: TaskFacts) -> Shapes:
    return tuple(tuple(spec.shape) for spec in facts.inputs if spec is not None)


def _distance(first: Shapes, second: Shapes) -> float:
    """How far two sets of inputs are apart: by their number, then by the ratio of their elements."""
    pairs = zip(first, second, strict=False)
    return 100.0 * abs(len(first) - len(second)) + sum(abs(math.log(max(1, math.prod(a)) / max(1, math.prod(b)))) for a, b in pairs)


def _example(kernel: RememberedKernel, failures: list[FailedKernel]) -> Example:
    shapes = ", ".join(str(shape) for shape in kernel.shapes)
    launched = f"{count_words(kernel.launches, 'launch', 'launches')} per forward"
    gained = f"{kernel.score:.2f}x {kernel.baseline} ({kernel.kind} on {kernel.card}), {launched}"
    failed = [f"{bad.status}: {bad.compiler or bad.reason}" for bad in failures if bad.compiler or bad.reason][:_MOST_FAILURES]
    note = f"Confirmed in an earlier run at {gained}.{' What failed for such tasks: ' + '; '.join(failed) + '.' if failed else ''}"
    return Example(title=f"what {kernel.task} does{f', with inputs of shape {shapes}' if shapes else ''}", source=kernel.source, note=note)
