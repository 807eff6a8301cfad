"""The trusted process. Holds seeds, reference, clock and verdict; never candidate code.

Reads one JSON request per line on stdin, and answers each with one JSON line on its original stdout; `processes/requests.py` has them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, cast

import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.cards.machine import describe_environment, note_software, present_card
from tritonsmith.evaluator.channel.compiled_code import locate_code
from tritonsmith.evaluator.errors import BaselineError, CardMemoryError, InfrastructureError, TaskError
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask, write_own_call
from tritonsmith.evaluator.oracle.checks.memory import MemoryPlan
from tritonsmith.evaluator.oracle.checks.planning import load_on_card
from tritonsmith.evaluator.oracle.contests import race_contests
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.oracle.judge.on_card import CardJudge
from tritonsmith.evaluator.oracle.judge.other_size import judge_other_size
from tritonsmith.evaluator.oracle.judge.race import run_card_race
from tritonsmith.evaluator.oracle.judge.without_card import CardFreeJudge
from tritonsmith.evaluator.oracle.nsight import is_final, run_nsight
from tritonsmith.evaluator.processes.requests import (
    ORACLE_KINDS,
    Count,
    CountAnswer,
    Evaluate,
    EvaluateAnswer,
    FileAnswer,
    Hello,
    HelloAnswer,
    Prepare,
    Race,
    RaceAnswer,
    RaceRegions,
    Sanitize,
    SanitizeAnswer,
    ServerRequest,
    WriteCall,
)
from tritonsmith.evaluator.processes.serve import serve_requests
from tritonsmith.evaluator.processes.steps import STEPS
from tritonsmith.evaluator.protocol import Fate
from tritonsmith.evaluator.reads.record import UNKEPT
from tritonsmith.evaluator.reads.worlds import find_doubt
from tritonsmith.evaluator.records.contest import NO_CARD, ContestReport
from tritonsmith.evaluator.reference.module import require_same_reads
from tritonsmith.evaluator.reference.precision import set_tf32
from tritonsmith.evaluator.sandbox.policy import sandbox_report
from tritonsmith.evaluator.sandbox.self_test import establish
from tritonsmith.evaluator.sandbox.warm_start import end_warm_start, finish_warm_start, is_warm_start_begun
from tritonsmith.evaluator.schema import CORRECTNESS_ONLY, FORWARD_AND_BACKWARD, Hardware, Record, Status, Task, Verdict

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

    def answer(self, request: ServerRequest[Any]) -> Record:
        """The answer to one request. Raises TaskError or InfrastructureError."""
        match request:
            case Hello():
                return self._greet(request)
            case Evaluate():
                return EvaluateAnswer(verdict=self._evaluate(request))
            case Prepare():
                return FileAnswer(request=self._judge(request.task, request.baselines).session.compile_request)
            case WriteCall():
                return FileAnswer(request=write_own_call(self._judge(request.task, request.baselines).session))
            case Race():
                return self._race(request)
            case RaceRegions():
                return self._race_regions(request)
            case Sanitize():
                assert self._pool is not None  # only the oracle of a card is asked
                found, text = self._pool.sanitize(request.kernel, request.request, request.code, request.seconds)
                self._require_healthy_card()
                return SanitizeAnswer(found=found, text=text)
            case Count():
                counters = run_nsight(request.kernel, request.request, request.seconds)
                self._require_healthy_card()
                return CountAnswer(counters=counters, final=is_final(counters))
            case _:
                raise InfrastructureError(f"an oracle does not answer {request.op!r}")

    def _greet(self, hello: Hello) -> HelloAnswer:
        """The card, once the sandbox is established and what it needs is started. Raises UsageError or InfrastructureError."""
        hardware = self.choose_hardware(hello.target, hello.use_card)
        if self._pool is not None and not hardware.present:  # the driver has a card, and torch cannot use it
            self._pool.close()
            self._pool = None
        if self._pool is None and (hardware.present or not is_warm_start_begun()):
            establish(hello.sandbox, cuda=hardware.present)
            self._pool = RunnerPool.start() if hardware.present else None
        return HelloAnswer(hardware=note_software(hardware))

    def choose_hardware(self, target: str, use_card: bool) -> Hardware:
        """The present card for `auto`, otherwise the named one (then everything is an estimate unless it is the present one)."""
        card = present_card() if use_card else None
        if target == "auto":
            self._hardware = card or named_card(DEFAULT_TARGET)
        else:
            self._hardware = card if card and card.key == target.lower() else named_card(target)
        return self._hardware

    def _evaluate(self, request: Evaluate) -> Verdict:
        started = time.monotonic()
        STEPS.start()
        task, kernel = request.task, request.kernel
        assert self._hardware is not None
        finish_warm_start()
        judged = {"mode": task.mode, "precision": task.precision.value} | ({"call": FORWARD_AND_BACKWARD} if task.backward else {})
        if request.profile == CORRECTNESS_ONLY:
            doubt = ""
            verdict = judge_other_size(
                task, self._hardware, kernel, request.call_seconds, self._pool, timed=request.timed, raw=request.raw, mark=request.measuring
            )
        else:
            judge, verdict = self._judge_in_memory(request)
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

    def _race(self, request: Race) -> RaceAnswer:
        """The rows of a timed race, or why there is none: a failed race is no failed verdict, and nobody asks for it again."""
        STEPS.start()
        judge = self._judge(request.task, request.baselines)
        STEPS.note("race")
        if not isinstance(judge, CardJudge):
            return RaceAnswer(note="there is no card to race on")
        judge.session.mark = request.measuring
        judge.session.code = partial(locate_code, request.code, request.task.sha)
        try:
            rows = run_card_race(
                judge.baselines, judge.timer, request.incumbent, request.entrants, keep=request.keep, limit=request.call_seconds,
                seconds=request.seconds, graphs=request.incumbent.sha in judge.in_graphs,
            )  # fmt: skip
        except InfrastructureError as error:
            judge.session.mark.unlink(missing_ok=True)
            return RaceAnswer(note=str(error))
        if any(row.fate is Fate.FAILED for row in rows):
            self._require_healthy_card()
        return RaceAnswer(rows=tuple(rows))

    def _race_regions(self, request: RaceRegions) -> ContestReport:
        """What the ways of each region take; a note where there is no card."""
        if self._pool is None:
            return ContestReport(note=NO_CARD)
        self._pool.pause()
        request.measuring.touch()
        try:
            report = race_contests(request.contests, request.seconds)
        finally:
            request.measuring.unlink(missing_ok=True)
            self._pool.resume()
        self._require_healthy_card()
        return report

    def _judge_in_memory(self, request: Evaluate) -> tuple[CardJudge | CardFreeJudge, Verdict]:
        """The verdict; where the card's memory runs out, under a leaner plan; where a baseline fails by itself, without it.

        Raises TaskError, and InfrastructureError under the last plan.
        """
        after: MemoryPlan | None = None
        why = ""
        while True:
            judge = self._judge(request.task, request.baselines, after, why)
            judge.take_trace(list(request.trace))
            judge.session.mark = request.measuring
            judge.session.code = partial(locate_code, request.code, request.task.sha)
            STEPS.note("judge the kernel")
            try:
                return judge, judge.judge(request.kernel, request.profile, request.raw, request.call_seconds)
            except BaselineError as error:
                after, why = None, ""
                cast(CardJudge, judge).baselines.leave_out(error)  # no other judge has baselines
            except (torch.OutOfMemoryError, CardMemoryError) as error:  # neither comes without a card
                after, why = judge.session.plan, _explain_shortage(error)

    def _judge(
        self, task: Task, baselines: tuple[str, ...], after: MemoryPlan | None = None, why: str = ""
    ) -> CardJudge | CardFreeJudge:
        """The task's judge with these baselines; a new one with a leaner memory plan than `after`, under which memory ran out, and `why`.

        Raises TaskError, and InfrastructureError where no plan is leaner.
        """
        assert self._hardware is not None
        key = f"{task.sha} {task.asked} {baselines}"
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
                self._judges[key] = CardJudge(session, baselines)
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
        serve_requests(requests, out, ORACLE_KINDS, oracle.answer)
    finally:
        oracle.close()
