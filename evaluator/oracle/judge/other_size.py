"""Another size of a task: correctness there, and on a card a short timing. Task and runner serve this verdict only. Imports torch."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from tritonsmith.evaluator.channel.doorbell import AS_CALLED, FORMS
from tritonsmith.evaluator.errors import BaselineError, CardMemoryError, InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.inputs import stress_kinds
from tritonsmith.evaluator.oracle.checks.loaded_task import MOVED_WEIGHTS, LoadedTask
from tritonsmith.evaluator.oracle.checks.planning import load_on_card
from tritonsmith.evaluator.oracle.checks.trials import TrialLog, checked_call, require_no_race
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.oracle.handles.process import INTERPRETER
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.oracle.judge.score import Timed, make_timing
from tritonsmith.evaluator.oracle.judge.suspicion import Floor
from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess
from tritonsmith.evaluator.oracle.timing.calls import CallTimer
from tritonsmith.evaluator.oracle.timing.session import TimingSession, write_raw
from tritonsmith.evaluator.processes.steps import STEPS
from tritonsmith.evaluator.schema import CORRECTNESS_ONLY, Hardware, LaunchFacts, Status, Task, Timing, Verdict

SIZE_BASELINES = ("eager", "compile")
"""What a kernel is compared with at another size, as it is called: the module itself, and torch.compile of it."""
_BUILD_SECONDS = 60.0
"""Limit of what both baselines take to start and to be built, beside the checks."""
_REASON_CHARACTERS = 200
"""Length of the reason why a size was not timed."""


def judge_other_size(
    task: Task, hardware: Hardware, kernel: KernelText, call_seconds: float, pool: RunnerPool | None = None, *,
    timed: bool = False, raw: Path | None = None, mark: Path | None = None,
) -> Verdict:  # fmt: skip
    """Whether the candidate is right at this size, on the card where there is one and in the interpreter otherwise. Raises TaskError.

    Args:
        task: at that size.
        hardware: the card.
        kernel: the candidate's text.
        call_seconds: the longest that one call may take.
        pool: processes for a card.
        timed: whether a right candidate is timed too; only a card does that. A size that cannot be timed says why in the message.
        raw: where samples are written.
        mark: a file that exists while something is timed.
    """
    timed = timed and hardware.present
    loaded = load_on_card(task, hardware, pool, timed=False) if hardware.present else LoadedTask(task, hardware, "cpu")
    loaded.mark = mark
    loaded.use_weights(MOVED_WEIGHTS)
    log, timing, message = TrialLog(loaded), None, "right at this size"
    try:
        with contextlib.ExitStack() as stack:
            baselines = stack.enter_context(contextlib.closing(BaselineProcess(loaded, build_seconds=_BUILD_SECONDS))) if timed else None
            if baselines is not None and loaded.plan.together:
                baselines.start(SIZE_BASELINES)  # they are built beside the checks
            runner = stack.enter_context(loaded.runner(kernel, None if hardware.present else INTERPRETER))
            runner.wait_ready()
            _check(log, runner, call_seconds)
            if baselines is not None:
                timing, message = _time_or_tell(loaded, runner, baselines, call_seconds, raw)
    except RunnerFault as fault:
        return Verdict(status=fault.status, sha=kernel.sha, message=str(fault), correctness=log.correctness, profile=CORRECTNESS_ONLY)
    finally:
        loaded.close()
    return Verdict(
        status=Status.OK, sha=kernel.sha, correctness=log.correctness, timing=timing, profile=CORRECTNESS_ONLY, message=message
    )


def _check(log: TrialLog, runner: RunnerHandle, limit: float) -> None:
    """The task's own inputs and those of `quick`, without a card in another order of programs each time. Raises RunnerFault."""
    interpreted = log.loaded.device == "cpu"
    for order, kind in enumerate(("own", "signed", *stress_kinds("quick", interpreted=interpreted))):
        checked_call(log, runner, kind, order if interpreted else FORMS.index(AS_CALLED), limit)
        log.require_accurate()
        if interpreted:
            require_no_race(runner.facts(limit).get("races") or ())


def _time_or_tell(
    loaded: LoadedTask, runner: RunnerHandle, baselines: BaselineProcess, limit: float, raw: Path | None
) -> tuple[Timing | None, str]:
    """The timing, or why there is none: baselines that cannot be had are no fault of the candidate's. Raises RunnerFault."""
    if not loaded.plan.together:
        return None, "not timed: the card's memory holds one process at a time"
    STEPS.note("time another size")
    try:
        return _time(loaded, runner, baselines, limit, raw), "right at this size"
    except (BaselineError, InfrastructureError, CardMemoryError, torch.OutOfMemoryError) as error:
        return None, f"not timed: {str(error)[:_REASON_CHARACTERS]}"


def _time(loaded: LoadedTask, runner: RunnerHandle, baselines: BaselineProcess, limit: float, raw: Path | None) -> Timing:
    """One session of few pairs, under both clocks and with outputs judged, as any other one. Raises RunnerFault, InfrastructureError."""
    timer = CallTimer(baselines)
    timer.set_candidate(runner)
    timer.open_baselines()
    names = tuple(name for name in SIZE_BASELINES if name in baselines.modes)
    if not names:
        raise InfrastructureError("no baseline could be run: " + "; ".join(baselines.notes))
    session = TimingSession(timer, runner, "size", limit, names)
    facts, floor = LaunchFacts(), Floor(loaded)
    floor.require_above(session.paired[session.strongest].candidate_ms)
    session.compare_alone()
    if raw is not None:
        write_raw(raw, {"profile": "size", "sizes": loaded.task.overrides}, [session])
    return make_timing([session], Timed(session, session.paired, session.clocks, facts), baselines, floor.ms, raw or Path())
