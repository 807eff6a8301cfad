"""Memory across runs: verified kernels and failed attempts of the same kind on the same card, found again for another run.

Nothing of a task's checks enters: no reference, no small sizes, no message of a check. Of a failure only its status, the author's own
sentence, and a compiler's words are kept.
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tritonsmith.author.worked_examples import choose_worked
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.schema import Candidate, Hardware, OpNode, PrecisionClass, Status, Task, TaskFacts, Verdict
from tritonsmith.graph.state import State
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.nodes.authors.remembered import (
    STRICT,
    FailedAttempt,
    MemoryFolder,
    RememberedKernel,
    Shapes,
    TaskKind,
)
from tritonsmith.nodes.authors.shorten import shorten_kernel
from tritonsmith.nodes.tape.recorder import TapeRecorder
from tritonsmith.nodes.tape.tape import Tape
from tritonsmith.prompts.author import Example, Recalled
from tritonsmith.prompts.node_names import operation_name
from tritonsmith.prompts.templates.families import families_of

MOST_EXAMPLES = 2
"""Kernels of earlier runs that a prompt shows."""
MOST_FAILURES = 5
"""Failures of earlier runs that a prompt names."""
_SHORT = 120
"""Characters of an idea or of a reason."""
_LONGEST_NOTE = 500
"""Characters of a note; a record that somebody has changed says no more."""
_SMALL_BYTES = 1e6
"""Up to so many bytes a forward's time is that of its launches."""
_SLOWER = "slower"
"""The status of a right kernel that was measured below what its run claimed."""
_NUMBER = re.compile(r"\d+")
_REASONS = {
    Status.INVALID_FILE: "no module could be read from it",
    Status.LAUNCH_ERROR: "the launch was refused",
    Status.RUNTIME_ERROR: "it raised an error",
    Status.WRONG_SHAPE: "the outputs had another shape or dtype",
    Status.WRONG_WEIGHTS: "the parameters were others",
    Status.INACCURATE: "the results were not close enough",
    Status.RACY: "the result depended on the order of programs",
    Status.CHEATING: "the result was not computed from the inputs",
    Status.TIMEOUT: "it took too long",
    Status.CRASHED: "its process died",
}
"""What is said of a failure where its message may not be kept."""


class Memory:
    """A folder of records, asked for what fits a task, and given what a run found."""

    def __init__(self, root: Path, *, adds: bool = True) -> None:
        """Make the folder. Raises UsageError when that is not allowed.

        Args:
            root: the folder that `--memory` names.
            adds: whether runs add what they found; False where runs are compared with each other.
        """
        self._folder, self._adds = MemoryFolder(root), adds
        self._folder.make()

    def recall(self, task: Task, facts: TaskFacts, hardware: Hardware) -> Recalled:
        """The kernels that fit a task best, two at most, and up to five failures.

        Only records of the same first op family, the same types and the same card count. A text that was refused for the very same
        task, whenever that was, is never shown.
        """
        kind, key = describe_kind(task, facts, hardware), _make_key(task)
        failures = self._folder.failures()
        refused = {failure.name for failure in failures if failure.status != _SLOWER}
        fitting = [
            kernel for kernel in self._folder.kernels()
            if _fits(kernel, kind, hardware, key) and kernel.name not in refused
        ]  # fmt: skip
        fitting.sort(key=lambda kernel: _rank(kernel, kind, hardware, key))
        examples: dict[str, Example] = {}
        for kernel in fitting:
            shortened = shorten_kernel(kernel.source) if kernel.task_key not in examples and len(examples) < MOST_EXAMPLES else None
            if shortened is not None:
                examples[kernel.task_key] = _write_example(kernel, *shortened, hardware, same=kernel.task_key == key)
        return Recalled(examples=tuple(examples.values()), failures=_list_failures(failures, kind, hardware))

    def remember(self, state: State, sources: Callable[[str], str], hardware: Hardware) -> None:
        """Keep the run's winner, if nothing is held against it, and what failed. Raises OSError."""
        facts = state.get("facts")
        if facts is None or not self._adds:
            return
        task = state["task"]
        about: dict[str, Any] = {
            "task": task.name, "task_key": _make_key(task), "kind": describe_kind(task, facts, hardware), "card": hardware.key,
            "torch": hardware.torch, "triton": hardware.triton, "date": datetime.now(UTC).isoformat(timespec="microseconds"),
        }  # fmt: skip
        winner, behind = state.get("winner"), state.get("behind")
        for candidate_id, verdict in state.get("verdicts", {}).items():
            candidate = state["candidates"][candidate_id]
            if candidate_id == winner and verdict.status is Status.OK and not verdict.quarantine and verdict.timing is not None:
                timing = verdict.timing
                self._folder.put(RememberedKernel(
                    **about, sha=candidate.sha, profile=verdict.profile, timed=timing.kind.value, score=timing.score,
                    baseline=timing.baseline, launches=verdict.facts.launches_per_forward, source=sources(candidate.sha),
                ))  # fmt: skip
            elif verdict.status not in (Status.OK, Status.UNSUPPORTED) or candidate_id == behind:
                self._folder.put(FailedAttempt(**about, sha=candidate.sha, **_describe_failure(candidate, verdict)))


class Recall:
    """What earlier runs tell: looked up once, and kept with a recording, so that a replay gets the same."""

    def __init__(self, memory: Memory | None, tape: Tape | None = None, recorders: Sequence[TapeRecorder] = ()) -> None:
        """Without a memory, what the tape has."""
        self._memory, self._recorders = memory, recorders
        self._lock = threading.Lock()
        self._recalled = {sha: Recalled.model_validate(told) for sha, told in (tape.memories if tape else {}).items()}

    async def __call__(self, task: Task, facts: TaskFacts, hardware: Hardware) -> Recalled:
        """What there is for a task."""
        return await asyncio.to_thread(self._look_up, task, facts, hardware)

    def _look_up(self, task: Task, facts: TaskFacts, hardware: Hardware) -> Recalled:
        with self._lock:
            if task.sha not in self._recalled:
                recalled = self._memory.recall(task, facts, hardware) if self._memory else Recalled()
                self._recalled[task.sha] = recalled
                for recorder in self._recorders:
                    recorder.write({"kind": "memory", "task": task.sha, **recalled.model_dump(mode="json")})
            return self._recalled[task.sha]


def describe_kind(task: Task, facts: TaskFacts, hardware: Hardware) -> TaskKind:
    """What a task is made of, at the size that kernels are for.

    Args:
        task: in the arithmetic that its kernels are held to.
        facts: of the task, as its evaluator found them.
        hardware: the card; the size of its L2 divides tasks into classes.
    """
    told = facts.full or facts
    families = families_of(told, task.source)
    hidden = facts.full is None and task.size == "small"  # small sizes are a part of the checks
    half = PrecisionClass.HALF in (told.precision, task.precision)
    dtype = next((spec.dtype for spec in (*told.outputs, *told.inputs) if spec is not None), "float32")
    size = "large" if told.min_bytes > hardware.l2_bytes else "in L2" if told.min_bytes > _SMALL_BYTES else "small"
    return TaskKind(
        families=tuple(family.value for family in families),
        types=PrecisionClass.HALF.value if half else f"{dtype} {task.precision.value}",
        size="" if hidden else size,
        designs=choose_worked(families, task, told),
        operators=tuple(sorted({name for node in told.ops if (name := _name_operator(node))})),
        shapes=() if hidden else tuple(tuple(spec.shape) for spec in told.inputs if spec is not None),
    )


def _name_operator(node: OpNode) -> str:
    if node.op == "call_module":
        return operation_name(node) or node.module_type
    if node.op not in ("call_function", "call_method"):
        return ""
    return operation_name(node) or node.target.rpartition(".")[2].strip("_")


def _make_key(task: Task) -> str:
    """The address of a task at the size that its kernels are for, wherever they are checked."""
    sizes = task.overrides if task.meant is None else task.meant
    return text_sha(repr((task.source, sorted(sizes.items()), task.precision.value, task.mode)))


def _fits(kernel: RememberedKernel, kind: TaskKind, hardware: Hardware, key: str) -> bool:
    if kernel.card != hardware.key or not _is_alike(kernel.kind, kind):
        return False
    if kernel.task_key == key:
        return True
    shares = not kernel.kind.operators or not kind.operators or _measure_overlap(kernel.kind.operators, kind.operators) > 0
    return shares and (kernel.timed != "measured" or kernel.score >= 1.0)


def _is_alike(first: TaskKind, second: TaskKind) -> bool:
    """Whether both have the same first family and the same types."""
    return (first.families[:1], first.types) == (second.families[:1], second.types)


def _rank(kernel: RememberedKernel, kind: TaskKind, hardware: Hardware, key: str) -> tuple[Any, ...]:
    """The best one first: of the very same task, proven, measured, nearest in what it does, then in size, versions and score."""
    theirs = kernel.kind
    return (
        kernel.task_key != key, kernel.profile != STRICT, kernel.timed != "measured", -len({*theirs.designs} & {*kind.designs}),
        -round(_measure_overlap(theirs.operators, kind.operators), 2), theirs.size != kind.size,
        round(_measure_distance(theirs.shapes, kind.shapes), 2), _minor(kernel.triton) != _minor(hardware.triton),
        -kernel.score, kernel.name,
    )  # fmt: skip


def _measure_overlap(first: Sequence[str], second: Sequence[str]) -> float:
    """The share of operators that both have, of all that either has."""
    either = {*first} | {*second}
    return len({*first} & {*second}) / len(either) if either else 0.0


def _measure_distance(first: Shapes, second: Shapes) -> float:
    """How far two sets of inputs are apart: by their number, then by the ratio of their elements."""
    pairs = zip(first, second, strict=False)
    return 100.0 * abs(len(first) - len(second)) + sum(abs(math.log(max(1, math.prod(a)) / max(1, math.prod(b)))) for a, b in pairs)


def _minor(version: str) -> str:
    """`3.6` of `3.6.0`."""
    return ".".join(version.split(".")[:2])


def _write_example(kernel: RememberedKernel, source: str, left_out: str, hardware: Hardware, *, same: bool) -> Example:
    shapes = ", ".join(str(shape) for shape in kernel.kind.shapes)
    title = "a kernel of this very task" if same else f"what {kernel.task} does{f', with inputs of shape {shapes}' if shapes else ''}"
    judged = "Proven right by the strict profile" if kernel.profile == STRICT else "Right by the quick checks, and not proven"
    judged += ", without a card," if kernel.timed == "estimated" else ""
    known = [f"{name} {_minor(version)}" for name, version in (("Triton", kernel.triton), ("PyTorch", kernel.torch)) if version]
    versions = f" with {' and '.join(known)}" if known else ""
    launches = count_words(kernel.launches, "launch", "launches")
    sentences = [
        f"{judged} in an earlier run: {kernel.score:.2f}x {kernel.baseline}, {kernel.timed} on {kernel.card}"
        f"{versions}, {launches} per forward."
    ]
    if _minor(kernel.triton) != _minor(hardware.triton):
        before, here = _minor(kernel.triton) or "an unknown version", _minor(hardware.triton) or "an unknown one"
        sentences.append(f"It was judged with Triton {before}; this task is judged with {here}.")
    note = " ".join(" ".join([*sentences, left_out]).split())
    return Example(title=title, source=source, note=note[:_LONGEST_NOTE], start=same)


def _describe_failure(candidate: Candidate, verdict: Verdict) -> dict[str, Any]:
    """Status, idea and reason of a failure, each short."""
    idea = _cut(candidate.rationale)
    if verdict.status is Status.OK and verdict.timing is not None:
        reason = f"{verdict.timing.score:.2f}x {verdict.timing.baseline}, {verdict.timing.kind.value}"
        return {"status": _SLOWER, "idea": idea, "reason": reason}
    compiler = verdict.message.strip().partition("\n")[0] if verdict.status is Status.COMPILE_ERROR else ""
    return {"status": verdict.status.value, "idea": idea, "reason": _cut(compiler) or _REASONS.get(verdict.status, "")}


def _cut(text: str) -> str:
    """The text in one line that is not too long; its first sentence, where that is short."""
    line = " ".join(text.split())
    sentence = line.partition(". ")[0]
    line = f"{sentence}." if sentence != line else line
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 4]} ..."


def _list_failures(failures: Sequence[FailedAttempt], kind: TaskKind, hardware: Hardware) -> tuple[str, ...]:
    """Failures of the kind on the card, one line each: of each sort the newest first, and only then others of the same sort."""
    fitting = [
        failure for failure in failures
        if failure.card == hardware.key and _is_alike(failure.kind, kind)
        and (failure.status != Status.COMPILE_ERROR or _minor(failure.triton) == _minor(hardware.triton))
    ]  # fmt: skip
    fitting.sort(key=lambda failure: (failure.date, failure.name), reverse=True)
    seen: dict[tuple[str, str], int] = {}
    lines: list[tuple[int, str]] = []
    for failure in fitting:
        sort = (failure.status, _NUMBER.sub("0", failure.reason))
        seen[sort] = seen.get(sort, 0) + 1
        quoted = f', "{_cut(failure.idea).replace(chr(34), chr(39))}"' if failure.idea else ""
        why = f": {_cut(failure.reason)}" if failure.reason else ""
        lines.append((seen[sort], f"{_cut(failure.task)}{quoted} -> {failure.status}{why}"))
    lines.sort(key=lambda line: line[0])
    return tuple(dict.fromkeys(line for _, line in lines))[:MOST_FAILURES]
