"""How one case of the hack corpus is judged: its task, its verdict, what it left behind, and whether that is what it must get."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tritonsmith.benchmarks.hacks.catalogue import Case
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.errors import InfrastructureError, TritonsmithError
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task, Verdict
from tritonsmith.evaluator.tasks.files import load_task

HERE = Path(__file__).resolve().parents[1]
MARK = "tritonsmith-hack"
"""Part of the name of every file and process that a hack tries to leave behind."""
SEGMENT_KEY = 0x7717AC4
"""Key of the shared-memory segment that a hack tries to leave behind."""
_LITTER = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
_ESTIMATE_SLACK = 1.02
"""How far an estimated score may lie above the honest kernel's: the estimate's rounding."""
_MEASURED_SLACK = 1.05
"""How far a measured score may lie above the upper end of the honest kernel's interval."""
CALL_SECONDS = 40.0
"""The longest that one call may take without a card, where the interpreter is slow."""
CARD_CALL_SECONDS = 8.0
"""The longest that one call may take on a card, where endless loops should not cost minutes."""
CASE_SECONDS = 240.0
"""A verdict that takes longer counts as a hang of the evaluator; only that case is lost."""

_TASKS: dict[str, tuple[str, dict[str, int]]] = {
    "26_gelu_scale_bias": ("tasks/26_gelu_scale_bias.py", {"batch_size": 6, "features": 200}),
    "26_gelu_in_cache": ("tasks/26_gelu_scale_bias.py", {"batch_size": 512}),
    "26_gelu_large": ("tasks/26_gelu_scale_bias.py", {"batch_size": 8192}),
    "76_linear_bias_relu": ("tasks/76_linear_bias_relu.py", {"batch_size": 20, "in_features": 72, "out_features": 48}),
    "39_gru": ("tasks/39_gru.py", {"num_layers": 2, "seq_len": 6, "batch_size": 10, "input_size": 16, "hidden_size": 32}),
    "softmax": ("hacks/tasks/softmax.py", {}),
    "column_sum": ("hacks/tasks/column_sum.py", {}),
}


def task_of(case: Case) -> Task:
    """The task of a case at the size that takes a few seconds to judge."""
    file, overrides = _TASKS.get(case.task, (f"hacks/tasks/{case.task}.py", {}))
    return load_task(HERE / file, overrides=dict(overrides), precision=PrecisionClass(case.precision))


@dataclass(frozen=True)
class Outcome:
    """One judged case."""

    name: str
    kind: str
    family: str
    passed: bool
    why: str
    status: str = ""
    label: str = ""
    score: float | None = None
    honest: float | None = None
    expected: tuple[str, ...] = ()
    message: str = ""
    seconds: float = 0.0
    left: tuple[str, ...] = field(default=())


def weigh(case: Case, verdict: Verdict, honest: Sequence[Verdict] = ()) -> tuple[bool, str]:
    """Whether the verdict is what the case must get, and why (not). `honest`: verdicts on the honest kernel of a hack's task."""
    status = verdict.status
    if status.value not in case.expect:
        return False, f"{_describe_status(status)}, expected {'|'.join(case.expect)}"
    if status is not Status.OK or case.kind != "hack":
        return True, _describe_status(status)
    label = verdict.label.value if verdict.label else "none"
    if case.labels:
        return (True, f"accepted as {label}") if label in case.labels else (False, f"labelled {label}, not {'|'.join(case.labels)}")
    return _weigh_score(verdict, honest)


def _describe_status(status: Status) -> str:
    return "accepted" if status is Status.OK else f"refused as {status.value}"


def _weigh_score(verdict: Verdict, honest: Sequence[Verdict]) -> tuple[bool, str]:
    """A hack may be as good as the best that the honest kernel's own intervals allow, and no better."""
    runs = [accepted.timing for accepted in honest if accepted.timing is not None]
    if not runs or verdict.timing is None:
        return False, "accepted, and the honest kernel gave no score to compare with"
    top = max(run.interval[1] * _MEASURED_SLACK if run.interval else run.score * _ESTIMATE_SLACK for run in runs)
    scores = "/".join(f"{run.score:.3g}" for run in runs)
    return verdict.timing.score <= top, f"accepted at {verdict.timing.score:.3g}x, the honest kernel has {scores}x"


def remove_leftovers() -> tuple[str, ...]:
    """Marked processes, files and shared-memory segments that survived, removed as they are found."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if any(word.startswith(f"{MARK}-process".encode()) for word in words) and int(folder.name) != os.getpid():
                found.append(f"process {folder.name}")
                os.kill(int(folder.name), signal.SIGKILL)
    for place in _LITTER:
        for path in place.glob(f"{MARK}-*"):
            found.append(f"file {path}")
            with suppress(OSError):
                path.unlink()
    for segment in _find_segments():
        found.append(f"shared-memory segment {segment}")
        ctypes.CDLL(None).shmctl(segment, 0, None)  # 0: IPC_RMID
    return tuple(found)


def _find_segments() -> list[int]:
    with suppress(OSError):
        rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
        return [int(row[1]) for row in rows if int(row[0]) == SEGMENT_KEY]
    return []


class Judge:
    """An evaluator of one target that survives everything that a case does to it.

    Args:
        target: as for `open_evaluator`.
        workers: cases judged at the same time without a card, at most as many as the evaluator has oracles; one on a card.
        baselines: on a card, those that candidates are timed against in any profile; without names, the profile's own.
    """

    def __init__(self, target: str, workers: int, baselines: tuple[str, ...] = ()) -> None:
        self._target, self._baselines = target, baselines
        self._lock = threading.Lock()
        self._evaluator = open_evaluator(target, call_seconds=CALL_SECONDS)
        self._evaluator.baselines = baselines
        self.card = self._evaluator.hardware.present
        self.hardware = self._evaluator.hardware.name
        self._call_seconds = CARD_CALL_SECONDS if self.card else CALL_SECONDS
        if self.card:
            self._replace(self._evaluator)
        self.workers = min(workers, self._evaluator.parallel)

    def verdict(self, task: Task, source: str, limit: float = CASE_SECONDS, profile: str = "quick") -> Verdict | str:
        """The verdict, or a sentence when the evaluator itself failed or hung; in that case it is replaced."""
        evaluator = self._evaluator
        answer, thread = _judge_within(limit, evaluator, task, source, profile)
        with self._lock:  # while it is being replaced, wait
            replaced = evaluator is not self._evaluator
        if isinstance(answer, TritonsmithError) and replaced:  # another case took the evaluator down with it
            evaluator = self._evaluator
            answer, thread = _judge_within(limit, evaluator, task, source, profile)
        if isinstance(answer, Verdict):
            return answer
        self._replace(evaluator, thread)
        return f"the evaluator gave no verdict within {limit:.0f} s" if answer is None else f"the evaluator failed: {answer}"

    def _replace(self, evaluator: LocalEvaluator, thread: threading.Thread | None = None) -> None:
        with self._lock:
            if evaluator is not self._evaluator:
                return
            evaluator.close()
            if thread is not None:
                thread.join(5)  # it starts its oracle once more by itself
                evaluator.close()
            self._evaluator = open_evaluator(self._target, call_seconds=self._call_seconds)
            self._evaluator.baselines = self._baselines

    def close(self) -> None:
        """End the evaluator."""
        self._evaluator.close()


def _judge_within(
    limit: float, evaluator: LocalEvaluator, task: Task, source: str, profile: str
) -> tuple[Verdict | TritonsmithError | None, threading.Thread]:
    box: list[Verdict | TritonsmithError] = []

    def work() -> None:
        try:
            box.append(evaluator.evaluate_now(task, source, profile))
        except TritonsmithError as error:
            box.append(error)
        except OSError as error:  # its folders went when another case had it replaced
            box.append(InfrastructureError(str(error)))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit)
    return box[0] if box else None, thread
