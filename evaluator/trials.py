"""Checked calls: fresh inputs, poisoned outputs, the reference computed only after the candidate answered. Imports torch."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import torch

from tritonsmith.evaluator.correctness import ErrorStats, Trial, accepted, error_stats, reached_class, summarize
from tritonsmith.evaluator.runner_client import Runner, RunnerFault
from tritonsmith.evaluator.schema import Correctness, PrecisionClass, Status
from tritonsmith.evaluator.session import TaskSession
from tritonsmith.evaluator.wire import Command

_LATE_WRITE_SECONDS = 0.05


@dataclass
class TrialLog:
    """Trials of one candidate so far, and what they add up to."""

    session: TaskSession
    trials: list[Trial] = field(default_factory=list)

    @property
    def correctness(self) -> Correctness | None:
        """Figures of the worst trial; None before the first."""
        return summarize(self.trials, self.session.task.precision) if self.trials else None

    def require_accurate(self) -> None:
        """Raises RunnerFault(inaccurate) with the worst place when the class asked for is not reached."""
        if accepted(reached_class(self.trials), self.session.task.precision):
            return
        correctness = self.correctness
        assert correctness is not None
        raise RunnerFault(Status.INACCURATE, describe_error(correctness, self.trials))


def describe_error(correctness: Correctness, trials: list[Trial]) -> str:
    """What is wrong in words: where, how much, and how many elements were never written."""
    worst = max(trials, key=lambda trial: (not trial.candidate.exact, trial.candidate.rms)).candidate
    place = f"output {worst.worst_tensor} at index {list(worst.worst_index)}"
    expected, actual = worst.worst_expected, worst.worst_actual
    if actual is not None and not math.isfinite(actual):
        return f"{place} is {actual} where {expected:.6g} is expected: not written, or computed from unwritten or overflowing values"
    if not worst.exact:
        return f"{place} is {actual} where {expected} is expected"
    return (
        f"maximum error {worst.max_abs:.3g} at {place} (expected {expected:.6g}, got {actual:.6g}); "
        f"against the oracle {correctness.err_vs_oracle:.3g}, the reference's own error {correctness.reference_err_vs_oracle:.3g}"
    )


def snapshot(runner: Runner) -> list[torch.Tensor]:
    """The output slots as they are now."""
    return [slot.clone() for slot in runner.outputs]


def same_bits(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    """Bitwise equality, NaN included."""
    return all(torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)) for a, b in zip(one, two, strict=True))


def run_and_deliver(runner: Runner, mode: int, timeout: float) -> None:
    """One call and its results in the slots. Raises RunnerFault."""
    runner.command(Command.CALL, mode, timeout=timeout)
    runner.command(Command.DELIVER, timeout=timeout)


def checked_call(log: TrialLog, runner: Runner, kind: str, mode: int, timeout: float) -> list[torch.Tensor]:
    """One call on fresh inputs, judged; returns the outputs. Skips (returns them unjudged) where the oracle itself is not finite.

    Raises RunnerFault for a failed call or changed inputs; accuracy is judged over all trials by `require_accurate`.
    """
    session = log.session
    tensors = session.draw(kind)
    got = fresh_call(session, runner, tensors, mode, timeout)
    trial = judged(session, tensors, got)
    if trial.finite or kind == "own":
        log.trials.append(trial)
    return got


def fresh_call(session: TaskSession, runner: Runner, tensors: list[torch.Tensor], mode: int, timeout: float) -> list[torch.Tensor]:
    """Place the inputs, poison the outputs, call, deliver. Raises RunnerFault for a failed call or changed inputs."""
    session.place(tensors)
    runner.poison()
    session.sync()
    run_and_deliver(runner, mode, timeout)
    got = snapshot(runner)
    require_unchanged(session, tensors)
    return got


def judged(session: TaskSession, tensors: list[torch.Tensor], got: list[torch.Tensor]) -> Trial:
    """The trial that these outputs make; the oracle is computed here, after the candidate answered."""
    oracle = session.oracle(tensors)
    finite = all(not one.is_floating_point() or bool(torch.isfinite(one).all()) for one in oracle)
    return Trial(error_stats(got, oracle), reference_errors(session, tensors, oracle), finite)


def require_unchanged(session: TaskSession, tensors: list[torch.Tensor]) -> None:
    """Raises RunnerFault(cheating) when forward changed an input that the reference leaves alone."""
    changed = None if session.changes_inputs else session.unchanged(tensors)
    if changed is not None:
        raise RunnerFault(Status.CHEATING, f"forward changed its input {changed}; the reference does not")


def reference_errors(
    session: TaskSession, tensors: list[torch.Tensor], oracle: list[torch.Tensor]
) -> dict[PrecisionClass, ErrorStats]:
    """The reference's own error in every class up to the one asked for."""
    classes = list(PrecisionClass)
    wanted = classes[: classes.index(session.task.precision) + 1]
    return {precision: session.reference_error(tensors, oracle, precision) for precision in wanted}


def require_settled(runner: Runner, got: list[torch.Tensor]) -> None:
    """Raises RunnerFault(cheating) when the outputs change after the call was answered."""
    time.sleep(_LATE_WRITE_SECONDS)
    if not same_bits(got, runner.outputs):
        raise RunnerFault(Status.CHEATING, "the outputs changed after forward had returned")


def repeat_bitwise(runner: Runner, got: list[torch.Tensor], calls: int, timeout: float) -> int:
    """How many of `calls` further launches on the same inputs give other bits."""
    differing = 0
    for _ in range(calls):
        runner.poison()
        torch.cuda.synchronize()
        run_and_deliver(runner, 0, timeout)
        differing += not same_bits(got, runner.outputs)
    return differing
