"""The trusted process. Holds seeds, reference, clock and verdict; never candidate code.

Reads one JSON request per line on stdin and answers each with one JSON line on its original stdout:

    {"op": "hello", "target": key, "use_card": bool, "sandbox": mode}      -> {"hardware": {...}}
    {"op": "evaluate", "task": {...}, "trace": [...], "kernel": {"text", "sha"},
     "profile": name, "raw": path, "call_seconds": limit, "baselines": [names, none: by profile],
     "measuring": path of a file that exists while something is timed,
     "code": folder for what texts compile to}                             -> {"verdict": {...}}
    {"op": "prepare", "task": {...}, "baselines": [...]}                  -> {"request": path that compilers read}
    {"op": "own_call", "task": {...}, "baselines": [...]}                  -> {"request": path of one call's arguments and weights}
    {"op": "race", "task": {...}, "incumbent": {"text", "sha"}, "entrants": [...], "keep": count,
     "call_seconds": limit, "seconds": limit, "measuring": path, "code": folder} -> {"rows": [...], "note": why there are none}
    {"op": "sanitize", "kernel": {"text", "sha"}, "request": path, "code": path, "seconds": limit} -> {"found": bool, "text": sentence}
    {"op": "count", "kernel": {"text", "sha"}, "request": path, "seconds": limit}     -> {"counters": {...}, "final": bool}
    faults                         -> {"error": sentence, "kind": "task" | "usage" | "infrastructure"}
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.cards.machine import describe_environment, present_card
from tritonsmith.evaluator.channel.compiled_code import locate_code
from tritonsmith.evaluator.errors import BaselineError, CardMemoryError, InfrastructureError, TaskError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask, write_own_call
from tritonsmith.evaluator.oracle.checks.memory import MemoryPlan
from tritonsmith.evaluator.oracle.checks.other_size import judge_correctness
from tritonsmith.evaluator.oracle.checks.planning import load_on_card
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.oracle.judge.on_card import CardJudge
from tritonsmith.evaluator.oracle.judge.race import run_card_race
from tritonsmith.evaluator.oracle.judge.without_card import CardFreeJudge
from tritonsmith.evaluator.oracle.nsight import is_final, run_nsight
from tritonsmith.evaluator.processes.serve import serve_requests
from tritonsmith.evaluator.processes.steps import STEPS
from tritonsmith.evaluator.protocol import Fate
from tritonsmith.evaluator.reads.record import UNKEPT
from tritonsmith.evaluator.reads.worlds import find_doubt
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.reference.module import require_same_reads
from tritonsmith.evaluator.reference.precision import set_tf32
from tritonsmith.evaluator.sandbox.policy import sandbox_report
from tritonsmith.evaluator.sandbox.self_test import establish
from tritonsmith.evaluator.sandbox.warm_start import end_warm_start, finish_warm_start, is_warm_start_begun
from tritonsmith.evaluator.schema import CORRECTNESS_ONLY, Hardware, Status, Task, Verdict

_CURE = "stop what else uses this card, or choose a smaller size with --set"
_OUTPUT = re.compile(r"\boutput (\d+)\b")
"""How messages name an output."""

DEFAULT_TARGET = "h200"
"""The card that estimates are made for when none is named and none is present."""


class Oracle:
    """Keeps one judge per task; answers requests one at a time.

    Args:
        pool: processes for a card that were started ahead, in the sandbox that was established for them.
    """

    def __init__(self, pool: RunnerPool | None = None) -> None:
        self._hardware: Hardware | None = None
        self._judges: dict[str, CardJudge | CardFreeJudge] = {}
        self._pool = pool
        self._baselines: tuple[str, ...] = ()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request. Raises TaskError or InfrastructureError."""
        if request["op"] == "hello":
            hardware = self.choose_hardware(request["target"], request["use_card"])
            if self._pool is not None and not hardware.present:  # the driver has a card, and torch cannot use it
                self._pool.close()
                self._pool = None
            if self._pool is None and (hardware.present or not is_warm_start_begun()):
                establish(request.get("sandbox", "auto"), cuda=hardware.present)
                self._pool = RunnerPool.start() if hardware.present else None
            return {"hardware": hardware.model_dump(mode="json")}
        self._baselines = tuple(request.get("baselines") or ())
        if request["op"] == "prepare":
            return {"request": str(self._judge(Task.model_validate(request["task"])).session.compile_request)}
        if request["op"] == "own_call":
            return {"request": str(write_own_call(self._judge(Task.model_validate(request["task"])).session))}
        if request["op"] == "race":
            return self._race(request)
        if request["op"] == "sanitize":
            assert self._pool is not None  # only the oracle of a card is asked
            paths = Path(request["request"]), Path(request["code"])
            found, text = self._pool.sanitize(KernelText(**request["kernel"]), *paths, request["seconds"])
            self._require_healthy_card()
            return {"found": found, "text": text}
        if request["op"] == "count":
            counters = run_nsight(KernelText(**request["kernel"]), Path(request["request"]), request["seconds"])
            self._require_healthy_card()
            return {"counters": counters.model_dump(mode="json"), "final": is_final(counters)}
        return {"verdict": self._evaluate(request).model_dump(mode="json")}

    def choose_hardware(self, target: str, use_card: bool) -> Hardware:
        """The present card for `auto`, otherwise the named one (then everything is an estimate unless it is the present one)."""
        card = present_card() if use_card else None
        if target == "auto":
            self._hardware = card or named_card(DEFAULT_TARGET)
        else:
            self._hardware = card if card and card.key == target.lower() else named_card(target)
        return self._hardware

    def _evaluate(self, request: dict[str, Any]) -> Verdict:
        started = time.monotonic()
        STEPS.start()
        task = Task.model_validate(request["task"])
        kernel, profile = KernelText(**request["kernel"]), request["profile"]
        assert self._hardware is not None
        finish_warm_start()
        judged = {"mode": task.mode, "precision": task.precision.value}
        if profile == CORRECTNESS_ONLY:
            doubt = ""
            verdict = judge_correctness(task, self._hardware, kernel, request["call_seconds"], self._pool)
        else:
            judge, verdict = self._judge_in_memory(task, request, kernel)
            verdict = verdict.model_copy(update={"message": _name_buffers(verdict.message, judge.session)})
            judged["precision"] = judge.session.task.precision.value
            doubt = find_doubt(judge.session.reference.world, task.reads)
            require_same_reads(task, judge.session.reference.world)
        if verdict.status not in (Status.OK, Status.INACCURATE) and self._hardware.present:
            self._require_healthy_card()
        seconds = time.monotonic() - started
        judged |= {UNKEPT: doubt} if doubt else {}
        environment = describe_environment(self._hardware) | {"sandbox": sandbox_report()} | judged | verdict.environment
        return verdict.model_copy(update={"environment": environment, "seconds": seconds})

    def _race(self, request: dict[str, Any]) -> dict[str, Any]:
        """The rows of a timed race, or why there is none: a failed race is no failed verdict, and nobody asks for it again."""
        STEPS.start()
        task = Task.model_validate(request["task"])
        judge = self._judge(task)
        STEPS.note("race")
        if not isinstance(judge, CardJudge):
            return {"rows": [], "note": "there is no card to race on"}
        judge.session.mark = Path(request["measuring"])
        judge.session.code = partial(locate_code, Path(request["code"]), task.sha)
        try:
            rows = run_card_race(
                judge.baselines, judge.timer, KernelText(**request["incumbent"]), [KernelText(**text) for text in request["entrants"]],
                keep=request["keep"], limit=request["call_seconds"], seconds=request["seconds"],
                graphs=request["incumbent"]["sha"] in judge.in_graphs,
            )  # fmt: skip
        except InfrastructureError as error:
            judge.session.mark.unlink(missing_ok=True)
            return {"rows": [], "note": str(error)}
        if any(row.fate is Fate.FAILED for row in rows):
            self._require_healthy_card()
        return {"rows": [row.model_dump(mode="json") for row in rows], "note": ""}

    def _judge_in_memory(self, task: Task, request: dict[str, Any], kernel: KernelText) -> tuple[CardJudge | CardFreeJudge, Verdict]:
        """The verdict; where the card's memory runs out, under a leaner plan; where a baseline fails by itself, without it.

        Raises TaskError, and InfrastructureError under the last plan.
        """
        after: MemoryPlan | None = None
        why = ""
        while True:
            judge = self._judge(task, after, why)
            judge.take_trace([OperatorCost(**cost) for cost in request["trace"]])
            judge.session.mark = Path(request["measuring"])
            judge.session.code = partial(locate_code, Path(request["code"]), task.sha)
            STEPS.note("judge the kernel")
            try:
                return judge, judge.judge(kernel, request["profile"], Path(request["raw"]), request["call_seconds"])
            except BaselineError as error:
                after, why = None, ""
                cast(CardJudge, judge).baselines.leave_out(error)  # no other judge has baselines
            except (torch.OutOfMemoryError, CardMemoryError) as error:  # neither comes without a card
                after, why = judge.session.plan, _explain_shortage(error)

    def _judge(self, task: Task, after: MemoryPlan | None = None, why: str = "") -> CardJudge | CardFreeJudge:
        """The task's judge; a new one with a leaner memory plan than `after`, under which memory ran out, and `why`.

        Raises TaskError, and InfrastructureError where no plan is leaner.
        """
        assert self._hardware is not None
        key = f"{task.sha} {task.asked} {self._baselines}"
        if key in self._judges and after is None:
            return self._judges[key]
        STEPS.note(f"load the task once more: {why}" if why else "load the task")
        for old in self._judges.values():
            old.close()
        self._judges.clear()
        if not self._hardware.present:
            self._judges[key] = CardFreeJudge(LoadedTask(task, self._hardware, "cpu"))
        while key not in self._judges:
            session = self._load_on_card(task, after, why)
            try:
                self._judges[key] = CardJudge(session, self._baselines)
            except (torch.OutOfMemoryError, CardMemoryError) as error:
                session.close()
                after, why = session.plan, _explain_shortage(error)
        return self._judges[key]

    def _load_on_card(self, task: Task, after: MemoryPlan | None, why: str) -> LoadedTask:
        assert self._hardware is not None
        torch.cuda.empty_cache()
        try:
            return load_on_card(task, self._hardware, self._pool, after=after)
        except TaskError as error:
            if after is None:
                raise
            raise InfrastructureError(f"{why}, under the plan {after.describe()}, and no leaner one fits: {_CURE}") from error
        except (torch.OutOfMemoryError, CardMemoryError) as error:
            raise InfrastructureError(f"the card's memory ran out while the task was loaded: {_CURE}") from error

    def _require_healthy_card(self) -> None:
        """After a death on the card: a small product must still be right. Raises InfrastructureError."""
        try:
            factor = torch.arange(64 * 64, device="cuda", dtype=torch.float64).view(64, 64)
            if not torch.equal((factor @ factor).cpu(), factor.cpu() @ factor.cpu()):
                raise InfrastructureError("the card gave a wrong product after a candidate failed")
        except RuntimeError as error:
            raise InfrastructureError(f"the card does not answer after a candidate failed: {error}") from error

    def close(self) -> None:
        """End what the judges keep."""
        for judge in self._judges.values():
            judge.close()
        self._judges.clear()
        end_warm_start()
        if self._pool is not None:
            self._pool.close()


def _explain_shortage(error: Exception) -> str:
    """What ran out of the card's memory, for a sentence that goes on."""
    return str(error) if isinstance(error, CardMemoryError) else "the evaluator ran out of the card's memory"


def _name_buffers(text: str, loaded: LoadedTask) -> str:
    """A message about outputs, with the names of those that are buffers or inputs after the call."""
    known = [f"buffer {name} after the call" for name in loaded.updates] + [loaded.input_names[number] for number in loaded.written]
    names = {str(number): name for number, name in enumerate(known, start=len(loaded.results) - len(known))}
    return _OUTPUT.sub(lambda at: names.get(at[1], at[0]), text)


def serve(requests: Iterable[str], out: int, pool: RunnerPool | None = None) -> None:
    """Answer requests on the descriptor `out` until there are no more."""
    set_tf32(False)
    oracle = Oracle(pool)
    try:
        serve_requests(requests, out, oracle.answer)
    finally:
        oracle.close()
