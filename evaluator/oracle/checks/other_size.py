"""Correctness alone, at another size of a task: the task is loaded and a runner started for this verdict only. Imports torch."""

from __future__ import annotations

from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.inputs import stress_kinds
from tritonsmith.evaluator.oracle.checks.loaded_task import MOVED_WEIGHTS, LoadedTask
from tritonsmith.evaluator.oracle.checks.planning import load_on_card
from tritonsmith.evaluator.oracle.checks.trials import TrialLog, checked_call, require_no_race
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.oracle.handles.process import INTERPRETER
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.schema import CORRECTNESS_ONLY, Hardware, Status, Task, Verdict


def judge_correctness(task: Task, hardware: Hardware, kernel: KernelText, call_seconds: float, pool: RunnerPool | None = None) -> Verdict:
    """Whether the candidate is right at this size, on the card where there is one and in the interpreter otherwise. Raises TaskError."""
    loaded = load_on_card(task, hardware, pool, timed=False) if hardware.present else LoadedTask(task, hardware, "cpu")
    loaded.use_weights(MOVED_WEIGHTS)
    log = TrialLog(loaded)
    try:
        with loaded.runner(kernel, None if hardware.present else INTERPRETER) as runner:
            runner.wait_ready()
            _check(log, runner, call_seconds)
    except RunnerFault as fault:
        return Verdict(status=fault.status, sha=kernel.sha, message=str(fault), correctness=log.correctness, profile=CORRECTNESS_ONLY)
    finally:
        loaded.close()
    return Verdict(status=Status.OK, sha=kernel.sha, correctness=log.correctness, profile=CORRECTNESS_ONLY, message="right at this size")


def _check(log: TrialLog, runner: RunnerHandle, limit: float) -> None:
    """The task's own inputs and those of `quick`, the programs in another order each time. Raises RunnerFault."""
    for order, kind in enumerate(("own", "signed", *stress_kinds("quick", interpreted=log.loaded.device == "cpu"))):
        checked_call(log, runner, kind, order, limit)
        log.require_accurate()
        if log.loaded.device == "cpu":
            require_no_race(runner.facts(limit).get("races") or ())
