"""One question to an evaluator, and its row: score against eager with its interval, memory plan, and the card's peak memory."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from tritonsmith.benchmarks.host import shorten_paths
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob, JudgeRow, Ruling
from tritonsmith.benchmarks.timing.study import pair_ratios
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.machine import card_memory_in_use, versions
from tritonsmith.evaluator.errors import InfrastructureError, TaskError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.timing.paired import Paired
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task, TaskFacts, TensorSpec, Timing, Verdict
from tritonsmith.evaluator.tasks.files import at_chosen_size, choose_load_size, load_task

_SAMPLE_SECONDS = 0.05
"""Between two readings of the card's memory; a pool that is shorter-lived may be missed."""
_MESSAGE_CHARACTERS = 500
"""How much of a message a row keeps."""
_BLAMELESS = (Status.UNSUPPORTED,)
"""Statuses that say nothing against the candidate."""


class PeakMemory:
    """The card's memory in use before and at its highest, read while a block of code runs; None without a card."""

    def __init__(self) -> None:
        self.before = self.peak = card_memory_in_use()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="card memory")

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            used = card_memory_in_use()
            if used is not None:
                self.peak = max(self.peak or 0, used)

    def __enter__(self) -> PeakMemory:
        if self.before is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()


def count_bytes(facts: TaskFacts) -> int:
    """Bytes of a task's inputs and outputs."""
    return sum(_tensor_bytes(spec) for spec in (*facts.inputs, *facts.outputs) if spec is not None)


def _tensor_bytes(spec: TensorSpec) -> int:
    bits = re.search(r"\d+", spec.dtype)
    elements = 1
    for size in spec.shape:
        elements *= size
    return elements * (int(bits[0]) if bits else 8) // 8


def load_job_task(job: JudgeJob, present: bool) -> Task:
    """The task of a job at its size; without a card an evaluator may choose a small size. Raises TaskError."""
    precision = PrecisionClass(job.precision) if job.precision else None
    return load_task(job.task, choose_load_size(job.size, present), dict(job.overrides), precision)


async def judge_job(evaluator: Evaluator, job: JudgeJob) -> JudgeRow:
    """The row of a question. An error of the task or the evaluator becomes a row that is not judged, with its sentence."""
    about: dict[str, Any] = {}
    started = time.monotonic()
    with PeakMemory() as memory:
        try:
            task = load_job_task(job, evaluator.hardware.present)
            facts = await evaluator.describe(task)
            task, about["task_bytes"] = at_chosen_size(task, facts.chosen), count_bytes(facts)
            about["describe_seconds"] = round(time.monotonic() - started, 2)
            started = time.monotonic()
            verdict = await evaluator.evaluate(task, KernelText.of(job.text), job.profile)
            about |= {"seconds": round(time.monotonic() - started, 2), "precision": task.precision.value}
            about |= _describe_verdict(verdict)
        except (TaskError, InfrastructureError) as error:
            about |= {"ruling": Ruling.OPEN, "message": _cut_message(str(error)), "seconds": round(time.monotonic() - started, 2)}
    about |= {"card_bytes_before": memory.before, "card_bytes_peak": memory.peak}
    return make_row(job, **about)


def describe_ahead(evaluator: LocalEvaluator, job: JudgeJob) -> None:
    """Have the task of a job to come traced meanwhile; what is wrong with it is said when it is asked for."""
    with contextlib.suppress(TaskError):
        evaluator.describe_ahead(load_job_task(job, evaluator.hardware.present))


def make_row(job: JudgeJob, **about: Any) -> JudgeRow:
    """A row of a job, with versions and date where the answer brings none."""
    head = {"versions": versions(), "date": datetime.now(UTC).isoformat(timespec="seconds")}
    named = job.model_dump(include={"name", "kind", "profile", "size", "expected"})
    return JudgeRow.model_validate(head | named | about)


def _cut_message(message: str) -> str:
    return shorten_paths(message)[:_MESSAGE_CHARACTERS]


def _describe_verdict(verdict: Verdict) -> dict[str, Any]:
    accepted = verdict.status is Status.OK
    ruling = Ruling.JUDGED if accepted else Ruling.OPEN if verdict.status in _BLAMELESS else Ruling.REFUSED
    environment, correctness = verdict.environment, verdict.correctness
    reached = correctness.precision_class if correctness else None
    about: dict[str, Any] = {
        "ruling": ruling, "status": verdict.status.value, "message": _cut_message(verdict.message),
        "memory": environment.get("memory") or {}, "label": verdict.label.value if verdict.label else "",
        "precision_class": reached.value if reached else "",
        "mode": str(environment.get("mode") or ""), "card": str(environment.get("card") or environment.get("target") or ""),
        "versions": environment.get("versions") or versions(),
        "seconds_by_step": {**environment.get("seconds_by_step", {}), **environment.get("audit_seconds", {})},
    }  # fmt: skip
    if asked := environment.get("precision"):  # the class that was found in the task's types
        about["precision"] = str(asked)
    return about | (_describe_timing(verdict, verdict.timing) if verdict.timing else {})


def _describe_timing(verdict: Verdict, timing: Timing) -> dict[str, Any]:
    ratios = pair_ratios(verdict, "eager")
    return {
        "timing": timing.kind.value, "score": timing.score, "score_eager": timing.score_eager, "baseline": timing.baseline,
        "interval_eager": timing.interval if timing.baseline == "eager" else _interval_of(ratios), "ratios_eager": tuple(ratios),
        "median_ms": timing.median_ms, "baselines_ms": timing.baselines_ms, "control": timing.control.ratio if timing.control else None,
    }  # fmt: skip


def _interval_of(ratios: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the median ratio, as the evaluator computes it."""
    return Paired((1.0,) * len(ratios), tuple(ratios)).interval() if ratios else None
