"""Correctness alone, at another size of a task: the task is loaded and a runner started for this verdict only. Imports torch."""

from __future__ import annotations

from tritonsmith.evaluator.channel.doorbell import AS_CALLED, FORMS
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
    """The task's own inputs and those of `quick`, without a card in another order of programs each time. Raises RunnerFault."""
    interpreted = log.loaded.device == "cpu"
    for order, kind in enumerate(("own", "signed", *stress_kinds("quick", interpreted=interpreted))):
        checked_call(log, runner, kind, order if interpreted else FORMS.index(AS_CALLED), limit)
        log.require_accurate()
        if interpreted:
            require_no_race(runner.facts(limit).get("races") or ())
