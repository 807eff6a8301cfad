"""A verdict without a card: the interpreter for correctness and races, compilation for a named card, an estimate of latency.

The candidate runs in one process under Triton's interpreter, and is compiled (not run) in another. Imports torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tritonsmith.evaluator.caller.compiling.client import Compilation, CompileFault
from tritonsmith.evaluator.cards.estimate import LatencyEstimate, describe_launch, estimate_candidate, estimate_trace
from tritonsmith.evaluator.channel.doorbell import Command, schedule_word
from tritonsmith.evaluator.channel.report import ForwardReport
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.corners import check_corners
from tritonsmith.evaluator.oracle.checks.correctness import accepted, reached_class
from tritonsmith.evaluator.oracle.checks.inputs import KINDS, stress_kinds
from tritonsmith.evaluator.oracle.checks.loaded_task import MOVED_WEIGHTS, LoadedTask, fresh_seed
from tritonsmith.evaluator.oracle.checks.neighbours import checked_calls
from tritonsmith.evaluator.oracle.checks.trials import (
    Expected,
    TrialLog,
    checked_call,
    compute_expected,
    describe_error,
    fresh_call,
    require_no_race,
    require_settled,
    same_bits,
)
from tritonsmith.evaluator.oracle.handles.process import INTERPRETER
from tritonsmith.evaluator.oracle.handles.replayer import Replayer, Traces, copy_last_trace
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.oracle.judge.facts_without_card import find_other_constants, merge_launch_facts
from tritonsmith.evaluator.oracle.judge.label import choose_label
from tritonsmith.evaluator.oracle.timing.paired import compare
from tritonsmith.evaluator.processes.steps import STEPS
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import Hardware, LaunchFacts, Status, Timing, TimingKind, Verdict

_SHUFFLES = {"quick": 0, "strict": 2}
"""By profile: calls on the same inputs in other orders of the programs. The replay of `quick` is in another order as well."""
_REPLAYS = {"quick": ("shuffled",), "strict": ("round_robin", "shuffled")}
"""By profile: orders in which the recorded forward is done again."""
_PATIENCE = {"quick": 4000, "strict": 8000}
"""By profile: wakings of waiting programs, over all launches of a replay, while one program is kept back. A wait that gives up sooner or
later shows then."""
_FIRST_WEIGHTS = {"quick": MOVED_WEIGHTS, "strict": 0}
"""By profile: the draw of weights that a verdict begins with. `quick` has no other one, and a fresh module's ones and zeros hide much."""
_OTHER_ORDER = "running the programs in another order gave another result"
_IN_TURN = 0
"""The schedule that runs the programs in turn; every other number shuffles them in its own way."""
_MOST_CONFIGURATIONS = 32
"""Configurations of an autotuner for which `strict` makes a call of their own."""
_TUNED = (
    "; wrong only where an autotuner runs every configuration on the same buffers, as it does in the first call, or keeps another one than "
    "the first: name what a kernel adds to in reset_to_zero, what it changes in restore_value; each configuration must be right by itself"
)
"""What an author is told about such a kernel."""
_COUNTED = 4
"""Kernels whose counts are told beside an estimate; a verdict's facts have them all."""
_LONGEST_MESSAGE = 4000
"""Characters of a compiler's message."""


class _Outcomes:
    """Results of calls on the same inputs in several orders of the programs.

    Args:
        expected: what is right on these inputs.
        in_turn: the result of the programs in turn.
    """

    def __init__(self, expected: Expected, in_turn: list[torch.Tensor]) -> None:
        self.expected = expected
        self.all = [in_turn]
        self.trials = [expected.trial(in_turn)]

    def add(self, got: list[torch.Tensor]) -> None:
        """Add the result of another order."""
        self.all.append(got)
        self.trials.append(self.expected.trial(got))

    @property
    def differs(self) -> bool:
        """Whether the order changed any bit."""
        return any(not same_bits(self.all[0], other) for other in self.all[1:])


class CardFreeJudge:
    """Judges candidates of one task for a named card.

    Args:
        session: the task on the CPU.
    """

    def __init__(self, session: LoadedTask) -> None:
        self.session = session
        self._limit, self._idle = 0.0, False  # the latter: whether the reference runs no kernel
        self._configurations = 1  # of the candidate's longest list for an autotuner
        self._replayer = Replayer(session.setup, INTERPRETER)
        self._baselines: dict[str, LatencyEstimate] = {}

    def take_trace(self, trace: list[OperatorCost]) -> None:
        """The reference's operators, from the probe; before the first verdict."""
        hardware, tf32 = self.session.hardware, self.session.arithmetic.tf32
        self._idle = not any(cost.launches for cost in trace)
        self._baselines = {
            "eager": estimate_trace(hardware, trace, in_graph=False, tf32=tf32),
            "cuda_graph": estimate_trace(hardware, trace, in_graph=True, tf32=tf32),
        }

    def close(self) -> None:
        """Give the slots back."""
        self._replayer.close()
        self.session.close()

    def judge(self, kernel: KernelText, profile: str, raw: Path, call_seconds: float) -> Verdict:
        """One verdict; `raw` is where the parts of the estimate go, `call_seconds` bounds one interpreted call."""
        self._limit = call_seconds
        self.session.use_weights(_FIRST_WEIGHTS[profile])
        self._replayer.start()
        log, facts = TrialLog(self.session), LaunchFacts()
        try:
            with Compilation() as compilation:
                compilation.begin(kernel, self.session.compile_request.read_bytes(), self.session.hardware.key)
                with self.session.runner(kernel, INTERPRETER) as runner:
                    runner.wait_ready()
                    compiled = self._call_while_compiling(log, runner, compilation)
                    order_dependent, report = self._check(log, runner, profile, kernel)
            _require_compiled(compiled)
            if problem := find_other_constants(compiled, report):
                raise RunnerFault(Status.CHEATING, problem)
            facts, library = merge_launch_facts(compiled, report, order_dependent)
            _require_work(self.session, facts, idle=self._idle)
            timing, facts = self._estimate(library, facts, raw)
        except RunnerFault as fault:
            return Verdict(
                status=fault.status, sha=kernel.sha, message=str(fault), correctness=log.correctness, facts=facts, profile=profile
            )
        return Verdict(
            status=Status.OK, sha=kernel.sha, label=choose_label(facts, backward=self.session.task.backward),
            correctness=log.correctness, timing=timing, facts=facts, profile=profile,
            message=f"ESTIMATE for {self.session.hardware.name}: {timing.median_ms:.4g} ms, {timing.score:.2f}x the estimate of "
            f"{timing.baseline}, where torch.compile has none; correct in the interpreter",
        )  # fmt: skip

    def _call_while_compiling(self, log: TrialLog, runner: RunnerHandle, compilation: Compilation) -> dict[str, Any]:
        """Check the first call while the compiler is at work; its report. A refusal by the compiler says more than a failed call."""
        failed: RunnerFault | None = None
        try:
            checked_call(log, runner, "signed", schedule_word(_IN_TURN, 2), self._limit)  # tuners run every configuration in it
        except RunnerFault as fault:
            failed = fault
        compiled = _wait_compiled(compilation, self._limit)
        if failed is not None:
            raise failed
        return compiled

    def _check(self, log: TrialLog, runner: RunnerHandle, profile: str, kernel: KernelText) -> tuple[bool, dict[str, Any]]:
        """Check one set of inputs in several orders and in a replay, then further inputs.

        Returns whether the order changed any bit, and the replay's report. Raises RunnerFault: racy, inaccurate, or what the calls raise.
        """
        first = runner.facts(self._limit)
        races, self._configurations = _list_races(first), _count_configurations(first)
        earlier = copy_last_trace(runner, blobs=False)  # a later call may take for granted what this one left, and nothing else
        STEPS.note("the task's own inputs, in several orders" if _SHUFFLES[profile] else "the task's own inputs")
        kind = "real" if profile == "strict" and self.session.has_real else "own"  # with the weights that the task brings along
        tensors = self.session.draw(kind)
        in_turn = fresh_call(self.session, runner, tensors, _IN_TURN, self._limit)
        facts = runner.facts(self._limit)  # of a warm call: weights are packed, as they are when the compiler's process counts
        races |= _list_races(facts)
        trace = copy_last_trace(runner, blobs=True)
        require_settled(runner, in_turn)
        expected = compute_expected(self.session, tensors, KINDS[kind])
        same = _Outcomes(expected, in_turn)
        for order in range(1, _SHUFFLES[profile] + 1):
            races |= self._call_shuffled(same, runner, tensors, order)
        log.trials += same.trials
        require_no_race(races)
        self._require_one_answer(same)
        _require_accurate(log, same, self._configurations)
        if unreplayable := str(facts.get("unreplayable", "")):
            raise RunnerFault(Status.RUNTIME_ERROR, f"cannot be judged without a card: {unreplayable}")
        report = self._replay_beside_other_inputs((earlier, trace), same, tensors, profile, kernel, log, runner)
        if same.differs and not any(launch.get("atomics") for launch in report.get("launches", ())):
            raise RunnerFault(Status.RACY, _OTHER_ORDER)
        return same.differs, report | {"copied": facts.get("copied", ())}  # what the runner alone sees

    def _call_shuffled(self, same: _Outcomes, runner: RunnerHandle, tensors: list[torch.Tensor], order: int) -> set[str]:
        """Add the outcome of one call in another order; the races of that call."""
        same.add(fresh_call(self.session, runner, tensors, order, self._limit))
        return _list_races(runner.facts(self._limit))

    def _require_one_answer(self, same: _Outcomes) -> None:
        """Raises RunnerFault(racy) where the order decides whether the result is right.

        Wrong in every order is just wrong; sums by atomic adds may differ in rounding as long as every order is right.
        """
        right = {accepted(reached_class([trial]), self.session.task.precision) for trial in same.trials}
        if same.differs and len(right) > 1:
            raise RunnerFault(Status.RACY, _OTHER_ORDER)

    def _replay_beside_other_inputs(
        self, traces: Traces, same: _Outcomes, tensors: list[torch.Tensor], profile: str, kernel: KernelText, log: TrialLog,
        runner: RunnerHandle,
    ) -> dict[str, Any]:  # fmt: skip
        """Do again what forward wrote down, where no other code of the candidate runs, while the runner goes on with other inputs.

        Returns the last report of a replay; its races, counts and results are those that count. Raises RunnerFault: racy, or cheating
        where the result came about in another way; and what the other inputs show, once no replay says more.
        """
        if profile == "strict":
            self.session.use_weights(MOVED_WEIGHTS)
            runner.command(Command.WEIGHTS, timeout=self._limit)
        calls = list(enumerate(_list_other_calls(profile, self._configurations, real=self.session.has_real), start=1))
        orders, failed, report = _REPLAYS[profile], None, dict[str, Any]()
        for number, order in enumerate(orders):
            self._replayer.begin(kernel, traces, tensors, order, fresh_seed(), _PATIENCE[profile])
            try:
                if failed is None:
                    self._check_other_inputs(log, runner, calls[number :: len(orders)], len(calls))
            except RunnerFault as fault:
                failed = fault
            except BaseException:
                self._replayer.abandon()
                raise
            STEPS.note(f"replay {number + 1} of {len(orders)}")
            got, report = self._replayer.finish(self._limit)
            self._judge_replay(got, report, same, tensors, runner)
        if failed is not None:
            raise failed
        _require_accurate(log, same, self._configurations)
        check_corners(log, runner, profile, self._limit)
        return report

    def _judge_replay(
        self, got: list[torch.Tensor], report: dict[str, Any], same: _Outcomes, tensors: list[torch.Tensor], runner: RunnerHandle
    ) -> None:
        """Raises RunnerFault: the replay is racy or wrong. One that gives other bits has forward called in another order as well."""
        require_no_race(report.get("races", ()))
        if len(same.all) == 1 and not same_bits(got, same.all[0]):
            require_no_race(self._call_shuffled(same, runner, tensors, 1))
            self._require_one_answer(same)
        trial = same.expected.trial(got)
        asked = self.session.task.precision
        if not accepted(reached_class([trial]), asked):
            unwritten = not all(bool(torch.isfinite(output).all()) for output in got if output.is_floating_point())
            message = "the launches and operators of forward, done again in another process, give another result: "
            status = Status.INACCURATE if unwritten or trial.is_near(asked) else Status.CHEATING
            raise RunnerFault(status, message + describe_error([trial], asked, self.session.call.name_result))

    def _check_other_inputs(self, log: TrialLog, runner: RunnerHandle, calls: list[tuple[int, tuple[str, int]]], count: int) -> None:
        """Check one call on inputs of each kind, numbered among `count`. Raises RunnerFault; accuracy is judged by the caller."""
        for number, (kind, order) in calls:
            STEPS.note(f"further inputs, {number} of {count}")
            (checked_calls if kind == "signed" else checked_call)(log, runner, kind, order, self._limit)
            require_no_race(_list_races(runner.facts(self._limit)))

    def _estimate(self, library: ForwardReport, facts: LaunchFacts, raw: Path) -> tuple[Timing, LaunchFacts]:
        hardware = self.session.hardware
        torch_part = (library.torch_ops, library.torch_flops, library.torch_bytes, library.torch_launches, self.session.arithmetic.half)
        tf32 = self.session.arithmetic.tf32
        whole = estimate_candidate(hardware, facts.kernels, *torch_part, torch_tf32=tf32)
        library_ms = 0.0
        if library.torch_ops:
            library_ms = estimate_candidate(hardware, (), *torch_part, torch_tf32=tf32, in_graph=True).parts["device"]
        working = [kernel for kernel in facts.kernels if kernel.bytes_loaded or kernel.bytes_stored or kernel.flops]
        own = estimate_candidate(hardware, working, {}, 0.0, 0.0).parts["device"] if working else 0.0  # a launch on nothing is no work
        share = own / (own + library_ms) if own + library_ms else None
        facts = facts.model_copy(update={"own_time_share": share})
        best = min(self._baselines, key=lambda name: self._baselines[name].ms)
        parts = {name: _list_parts(estimate) for name, estimate in self._baselines.items()}
        raw.parent.mkdir(parents=True, exist_ok=True)
        raw.write_text(json.dumps({"kind": "ESTIMATE", "candidate": _list_parts(whole)} | parts))
        baseline_ms = self._baselines[best].ms
        band = (self._baselines[best].low_ms / whole.high_ms, self._baselines[best].high_ms / whole.low_ms)
        timing = Timing(
            kind=TimingKind.ESTIMATED, median_ms=whole.ms, baseline=best,
            baselines_ms={name: estimate.ms for name, estimate in self._baselines.items()},
            score=baseline_ms / whole.ms, score_eager=self._baselines["eager"].ms / whole.ms, band=band, apart=whole.apart,
            comparison=compare([band], whole.ms),
            ratios={name: estimate.ms / whole.ms for name, estimate in self._baselines.items()}, raw=str(raw),
            notes=_describe_estimate(hardware, whole, facts),
        )  # fmt: skip
        return timing, facts


def _require_accurate(log: TrialLog, same: _Outcomes, configurations: int) -> None:
    """Raises RunnerFault(inaccurate) as the log does; it says where only an autotuner's other configurations are wrong."""
    try:
        log.require_accurate()
    except RunnerFault as fault:
        tuned = configurations > 1 and same.trials[0].meets(log.loaded.task.precision)
        raise RunnerFault(fault.status, f"{fault}{_TUNED if tuned else ''}") from fault


def _list_other_calls(profile: str, configurations: int, *, real: bool = False) -> list[tuple[str, int]]:
    """Kinds of inputs that are still to be checked, with a schedule for each: an order, and the configuration that autotuners keep.

    `strict` takes an order of its own for each, and new weights: those kept from an earlier call must not survive. There every
    configuration has a call on the task's own inputs. `real` says that the task brings inputs along,
    with which `strict` has begun.
    """
    kinds = (*((("own" if profile == "strict" else "real"),) if real else ()), *stress_kinds(profile, interpreted=True))
    if profile != "strict":
        return [(kind, schedule_word(_IN_TURN, 1 + number)) for number, kind in enumerate(kinds)]
    others = range(1, min(configurations, _MOST_CONFIGURATIONS))
    calls = [*((kind, 2 + number) for number, kind in enumerate(("signed", *kinds))), *(("own", number) for number in others)]
    return [(kind, schedule_word(_SHUFFLES[profile] + 1 + place, kept)) for place, (kind, kept) in enumerate(calls)]


def _require_work(session: LoadedTask, facts: LaunchFacts, *, idle: bool) -> None:
    """Raises RunnerFault(cheating) for a right answer out of nothing, and TaskError where the reference runs no kernel either (`idle`)."""
    if facts.launches_per_forward:
        return
    if idle:
        raise TaskError(f"{session.task.path}: forward runs no kernel, so nothing can be faster; give Model.forward some work")
    raise RunnerFault(Status.CHEATING, "forward launches no kernel and calls no operator, yet returns the right answer")


def _list_races(facts: dict[str, Any]) -> set[str]:
    return {str(race) for race in facts.get("races") or ()}


def _count_configurations(facts: dict[str, Any]) -> int:
    """How many configurations an autotuner of the candidate chooses from, as its process says; 1 without one."""
    count = facts.get("configurations")
    return count if isinstance(count, int) else 1


def _describe_estimate(hardware: Hardware, whole: LatencyEstimate, facts: LaunchFacts) -> tuple[str, ...]:
    """What an estimate is and counts, line by line."""
    band = f"{whole.low_ms:.4g} to {whole.high_ms:.4g} ms"
    return (
        f"an estimate for {hardware.name}, never compared with a measurement; band {band}",
        "baselines estimated: eager, cuda_graph; torch.compile has no estimate, and what it fuses may be faster than both",
        *(describe_launch(hardware, kernel) for kernel in facts.kernels[:_COUNTED]),
    )


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
