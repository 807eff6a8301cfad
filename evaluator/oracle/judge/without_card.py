"""A verdict without a card: the interpreter for correctness and races, compilation for a named card, an estimate of latency.

The candidate runs in one process under Triton's interpreter, and is compiled (not run) in another. Imports torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.channel.report import ForwardReport
from tritonsmith.evaluator.compiling.client import Compilation, CompileFault
from tritonsmith.evaluator.estimate import LatencyEstimate, estimate_candidate, estimate_trace
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.correctness import accepted, reached_class
from tritonsmith.evaluator.oracle.checks.inputs import stress_kinds
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask, fresh_seed
from tritonsmith.evaluator.oracle.checks.trials import (
    TrialLog,
    checked_call,
    describe_error,
    fresh_call,
    judge_outputs,
    require_no_race,
    require_settled,
    same_bits,
)
from tritonsmith.evaluator.oracle.handles.process import INTERPRETER
from tritonsmith.evaluator.oracle.handles.replayer import Replayer, Traces, copy_last_trace
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.oracle.judge.facts_without_card import find_other_constants, merge_launch_facts
from tritonsmith.evaluator.oracle.judge.label import choose_label
from tritonsmith.evaluator.schema import LaunchFacts, OperatorCost, Status, Timing, TimingKind, Verdict

_SHUFFLES = {"quick": 1, "strict": 2}
"""By profile: calls on the same inputs in other orders of the programs."""
_REPLAYS = {"quick": ("shuffled",), "strict": ("round_robin", "shuffled")}
"""By profile: orders in which the recorded forward is done again."""
_OTHER_ORDER = "running the programs in another order gave another result"
_IN_TURN = 0
"""The schedule that runs the programs in turn; every other number shuffles them in its own way."""
_LONGEST_MESSAGE = 4000
"""Characters of a compiler's message."""


class CardFreeJudge:
    """Judges candidates of one task for a named card.

    Args:
        session: the task on the CPU.
    """

    def __init__(self, session: LoadedTask) -> None:
        self.session = session
        self._limit = 0.0
        self._replayer = Replayer(session.setup, INTERPRETER)
        self._baselines: dict[str, LatencyEstimate] = {}

    def take_trace(self, trace: list[OperatorCost]) -> None:
        """The reference's operators, from the probe; before the first verdict."""
        hardware = self.session.hardware
        self._baselines = {
            "eager": estimate_trace(hardware, trace, in_graph=False),
            "cuda_graph": estimate_trace(hardware, trace, in_graph=True),
        }

    def close(self) -> None:
        """Give the slots back."""
        self._replayer.close()
        self.session.close()

    def judge(self, kernel: KernelText, profile: str, raw: Path, call_seconds: float) -> Verdict:
        """One verdict; `raw` is where the parts of the estimate go, `call_seconds` bounds one interpreted call."""
        self._limit = call_seconds
        self._replayer.start()
        log = TrialLog(self.session)
        facts = LaunchFacts()
        try:
            with Compilation() as compilation:
                compilation.begin(kernel, self.session.compile_request.read_bytes(), self.session.hardware.key)
                with self.session.runner(kernel, INTERPRETER) as runner:
                    runner.wait_ready()
                    compiled = _wait_compiled(compilation, call_seconds)
                    order_dependent, report = self._check(log, runner, profile, kernel)
            _require_compiled(compiled)
            if problem := find_other_constants(compiled, report):
                raise RunnerFault(Status.CHEATING, problem)
            facts, library = merge_launch_facts(compiled, report, order_dependent)
            if not facts.launches_per_forward:
                raise RunnerFault(Status.CHEATING, "forward launches no kernel and calls no operator, yet returns the right answer")
            timing, facts = self._estimate(library, facts, raw)
        except RunnerFault as fault:
            return Verdict(
                status=fault.status, sha=kernel.sha, message=str(fault), correctness=log.correctness, facts=facts, profile=profile
            )
        return Verdict(
            status=Status.OK, sha=kernel.sha, label=choose_label(facts), correctness=log.correctness, timing=timing, facts=facts,
            profile=profile,
            message=f"ESTIMATE for {self.session.hardware.name}: {timing.median_ms:.4g} ms, {timing.score:.2f}x the estimate of "
            f"the strongest baseline ({timing.baseline}); correct in the interpreter",
        )  # fmt: skip

    def _check(self, log: TrialLog, runner: RunnerHandle, profile: str, kernel: KernelText) -> tuple[bool, dict[str, Any]]:
        """Check inputs of one kind, then one set in several orders and in a replay, then further inputs.

        Returns whether the order changed any bit, and the replay's report. Raises RunnerFault: racy, inaccurate, or what the calls raise.
        """
        checked_call(log, runner, "signed", _IN_TURN, self._limit)
        races = {str(race) for race in runner.facts(self._limit).get("races", ())}
        earlier = copy_last_trace(runner, blobs=False)  # a later call may take for granted what this one left, and nothing else
        tensors = self.session.draw("own")
        outcomes: list[list[torch.Tensor]] = []
        for order in range(_SHUFFLES[profile] + 1):
            outcomes.append(fresh_call(self.session, runner, tensors, order, self._limit))
            facts = runner.facts(self._limit)
            races |= {str(race) for race in facts.get("races", ())}
            if order == _IN_TURN:  # a warm call: weights are packed, as they are when the compiler's process counts
                unreplayable, trace = str(facts.get("unreplayable", "")), copy_last_trace(runner, blobs=True)
        require_settled(runner, outcomes[-1])
        trials = [judge_outputs(self.session, tensors, got) for got in outcomes]
        log.trials += trials
        differs = any(not same_bits(outcomes[0], other) for other in outcomes[1:])
        right = {accepted(reached_class([trial]), self.session.task.precision) for trial in trials}
        require_no_race(races)
        # Wrong in every order is just wrong; sums by atomic adds may differ in rounding as long as every order is right.
        if differs and len(right) > 1:
            raise RunnerFault(Status.RACY, _OTHER_ORDER)
        log.require_accurate()
        if unreplayable:
            raise RunnerFault(Status.RUNTIME_ERROR, f"cannot be judged without a card: {unreplayable}")
        report = self._replay((earlier, trace), tensors, profile, kernel)
        if differs and not any(launch.get("atomics") for launch in report.get("launches", ())):
            raise RunnerFault(Status.RACY, _OTHER_ORDER)
        self._check_other_inputs(log, runner, profile)
        return differs, report

    def _replay(self, traces: Traces, tensors: list[torch.Tensor], profile: str, kernel: KernelText) -> dict[str, Any]:
        """Do again what forward wrote down, where no other code of the candidate runs; the report of that.

        Its races, counts and results are those that count. Raises RunnerFault: racy, or cheating where the result came about in
        another way.
        """
        report: dict[str, Any] = {}
        for order in _REPLAYS[profile]:
            got, report = self._replayer.replay(kernel, traces, tensors, order, fresh_seed(), self._limit)
            require_no_race(report.get("races", ()))
            trial = judge_outputs(self.session, tensors, got)
            asked = self.session.task.precision
            if not accepted(reached_class([trial]), asked):
                unwritten = not all(bool(torch.isfinite(output).all()) for output in got if output.is_floating_point())
                message = "the launches and operators of forward, done again in another process, give another result: "
                status = Status.INACCURATE if unwritten else Status.CHEATING
                raise RunnerFault(status, message + describe_error([trial], asked))
        return report

    def _check_other_inputs(self, log: TrialLog, runner: RunnerHandle, profile: str) -> None:
        """Check one call on inputs of every other kind of the profile. Raises RunnerFault.

        `strict` takes an order of the programs of its own for each, and new weights: those kept from an earlier call must not survive.
        """
        kinds = stress_kinds(profile)
        if profile == "strict":
            self.session.new_weights()
            runner.command(Command.WEIGHTS, timeout=self._limit)
            kinds = ("signed", *kinds)
        for number, kind in enumerate(kinds):
            order = _SHUFFLES[profile] + 1 + number if profile == "strict" else _IN_TURN
            checked_call(log, runner, kind, order, self._limit)
            require_no_race(runner.facts(self._limit).get("races", ()))
        log.require_accurate()

    def _estimate(self, library: ForwardReport, facts: LaunchFacts, raw: Path) -> tuple[Timing, LaunchFacts]:
        hardware = self.session.hardware
        torch_part = (library.torch_ops, library.torch_flops, library.torch_bytes)
        whole = estimate_candidate(hardware, facts.kernels, *torch_part, torch_launches=library.torch_launches)
        library_ms = 0.0
        if library.torch_ops:
            library_ms = estimate_candidate(hardware, (), *torch_part, in_graph=True, torch_launches=library.torch_launches).parts["device"]
        working = [kernel for kernel in facts.kernels if kernel.bytes_loaded or kernel.bytes_stored or kernel.flops]
        own = estimate_candidate(hardware, working, {}, 0.0, 0.0).parts["device"] if working else 0.0  # a launch on nothing is no work
        share = own / (own + library_ms) if own + library_ms else None
        facts = facts.model_copy(update={"own_time_share": share})
        best = min(self._baselines, key=lambda name: self._baselines[name].ms)
        parts = {name: _list_parts(estimate) for name, estimate in self._baselines.items()}
        raw.parent.mkdir(parents=True, exist_ok=True)
        raw.write_text(json.dumps({"kind": "ESTIMATE", "candidate": _list_parts(whole)} | parts))
        band = f"{whole.low_ms:.4g} to {whole.high_ms:.4g} ms"
        timing = Timing(
            kind=TimingKind.ESTIMATED, median_ms=whole.ms, baseline=best,
            baselines_ms={name: estimate.ms for name, estimate in self._baselines.items()},
            score=self._baselines[best].ms / whole.ms, score_eager=self._baselines["eager"].ms / whole.ms,
            ratios={name: estimate.ms / whole.ms for name, estimate in self._baselines.items()}, raw=str(raw),
            notes=(f"an estimate for {hardware.name}, never compared with a measurement; band {band}",),
        )  # fmt: skip
        return timing, facts


def _list_parts(estimate: LatencyEstimate) -> dict[str, Any]:
    return {"low_ms": estimate.low_ms, "high_ms": estimate.high_ms, "ms": estimate.ms, "parts": estimate.parts}


def _wait_compiled(compilation: Compilation, seconds: float) -> dict[str, Any]:
    """The compiler's report. Raises RunnerFault where it is a refusal, or none came."""
    try:
        compiled = compilation.report(seconds)
    except CompileFault as fault:
        raise RunnerFault(fault.status, str(fault)) from fault
    if Status(compiled["status"]) is not Status.RUNTIME_ERROR:  # kernels did not run: an error of the host shows better in the interpreter
        _require_compiled(compiled)
    return compiled


def _require_compiled(compiled: dict[str, Any]) -> None:
    if compiled["status"] != Status.OK:
        raise RunnerFault(Status(compiled["status"]), str(compiled.get("message", ""))[:_LONGEST_MESSAGE])
