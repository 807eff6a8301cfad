"""A verdict on a card: correctness, repetition, timing against every baseline, launch facts, suspicion. Imports torch."""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.operator_cost import OperatorCost
from tritonsmith.evaluator.oracle.checks.inputs import stress_kinds
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import TrialLog, checked_call, repeat_bitwise, require_settled
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.oracle.judge.facts_on_card import read_launch_facts
from tritonsmith.evaluator.oracle.judge.label import choose_label
from tritonsmith.evaluator.oracle.judge.suspicion import Clocks, Floor, find_other_forward, find_suspicion
from tritonsmith.evaluator.oracle.judge.witness import Witness, has_room
from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess
from tritonsmith.evaluator.oracle.timing.calls import CallTimer
from tritonsmith.evaluator.oracle.timing.paired import compare, spread
from tritonsmith.evaluator.oracle.timing.session import TimingSession, write_raw
from tritonsmith.evaluator.schema import LaunchFacts, PrecisionClass, Status, Timing, TimingKind, Verdict

_FIRST_TRIALS = {"quick": ("own", "own"), "strict": ("own", "own", "own")}
"""By profile: kinds of inputs of the first checked calls."""
_LAST_TRIALS = {"quick": ("signed",), "strict": ("signed", "signed")}
"""And of the last ones; on inputs of the last of all the repetitions run."""
_REPEATS = {"quick": 20, "strict": 100}
"""By profile: calls on the same inputs whose bits are compared."""
_SESSIONS = {"quick": 1, "strict": 3}
"""By profile: sessions of timing, each with fresh processes."""
_WAITING = 3
"""Processes of each role that wait for the next candidates; one takes longer to start than a short verdict takes."""


class CardJudge:
    """Judges candidates of one task on the card; keeps the baselines' process alive between candidates.

    Args:
        session: the task on the card.
    """

    def __init__(self, session: LoadedTask) -> None:
        self.session = session
        self.baselines = BaselineProcess(session)
        self.timer = CallTimer(self.baselines)
        self.baselines.start()
        self._roomy = has_room(session)
        self._limit = 0.0
        self._floor = Floor(session)
        self._steps: dict[str, float] = {}

    def take_trace(self, trace: list[OperatorCost]) -> None:
        """The reference's operators, from the probe; before the first verdict."""
        self._floor.flops = sum(cost.flops for cost in trace)

    def close(self) -> None:
        """End the baselines' process and give the slots back."""
        self.baselines.close()
        self.session.close()

    def judge(self, kernel: KernelText, profile: str, raw: Path, call_seconds: float) -> Verdict:
        """One verdict; `raw` is where the samples go, `call_seconds` bounds the first call (compilation included)."""
        self._limit, self._steps = call_seconds, {}
        self.timer.set_candidate(None)
        log = TrialLog(self.session)
        self.baselines.start()
        try:
            with contextlib.ExitStack() as stack:
                with self._witness() as witness:
                    with self._step("start"):
                        runner = stack.enter_context(self._runner(kernel, witness))
                        if self.session.pool is not None:  # every further session has a baselines' process of its own
                            self.session.pool.fill(reference=_SESSIONS[profile] - 1)
                    with self._step("check"):
                        order_dependent = self._check(log, runner, kernel, profile)
                    with self._step("facts"):
                        report = witness.report(call_seconds) if witness else None
                self.timer.set_candidate(runner)
                with self._step("baselines"):
                    self.timer.open_baselines()
                if not self.baselines.modes:
                    raise RunnerFault(Status.UNSUPPORTED, "no baseline could be run: " + "; ".join(self.baselines.notes))
                started = time.time()
                with self._step("time"):
                    first = TimingSession(self.timer, runner, profile, call_seconds, tuple(self.baselines.modes))
                clocks = first.clocks
                facts = _read_facts(report, kernel, order_dependent) if report else None
                if facts is None or find_other_forward(facts, clocks):  # no profiler runs in a process before it is timed
                    with self._step("facts of the runner"):
                        facts = _read_facts(runner.facts(call_seconds), kernel, order_dependent)
                with self._step("baseline alone"):
                    first.compare_alone()
            with self._step("further sessions"):
                sessions = [first, *self._further_sessions(kernel, profile, first)]
            write_raw(raw, {"started": started, "profile": profile}, sessions)
            timing = self._timing(sessions, clocks, raw)
            for timed in sessions:
                self._floor.require_possible(timed, facts, strict=profile == "strict")
        except RunnerFault as fault:
            return Verdict(status=fault.status, sha=kernel.sha, message=str(fault), correctness=log.correctness, profile=profile)
        return Verdict(
            status=Status.OK, sha=kernel.sha, label=choose_label(facts), correctness=log.correctness, timing=timing, facts=facts,
            profile=profile, message=_summary(timing), quarantine=find_suspicion(timing, clocks, facts, slower=first.far_slower),
            environment={"seconds_by_step": self._steps},
        )  # fmt: skip

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Note how long a part of the verdict takes."""
        started = time.monotonic()
        yield
        self._steps[name] = round(time.monotonic() - started, 3)

    def _witness(self) -> contextlib.AbstractContextManager[Witness | None]:
        """The process whose launches are profiled, where the card has room for it; ended before anything is timed."""
        return contextlib.closing(Witness(self.session)) if self._roomy else contextlib.nullcontext()

    def _runner(self, kernel: KernelText, witness: Witness | None = None) -> RunnerHandle:
        """The candidate's runner, ready; the next ones start to import meanwhile. Raises RunnerFault."""
        runner = self.session.runner(kernel)
        try:
            if witness is not None:
                witness.begin(kernel)
            self._prewarm()
            runner.wait_ready()
        except BaseException:
            runner.close()
            raise
        return runner

    def _prewarm(self) -> None:
        if self.session.pool is not None:
            self.session.pool.fill(candidate=_WAITING, witness=_WAITING if self._roomy else 0)

    def _check(self, log: TrialLog, runner: RunnerHandle, kernel: KernelText, profile: str) -> bool:
        """Check accuracy, settled outputs and repetition. Returns whether bits vary, which is allowed with atomic adds only."""
        got: list[torch.Tensor] = []
        for number, kind in enumerate((*_FIRST_TRIALS[profile], *stress_kinds(profile), *_LAST_TRIALS[profile])):
            if profile == "strict" and number == 2:  # weights kept from an earlier call must not survive new ones
                self.session.new_weights()
                runner.command(Command.WEIGHTS, timeout=self._limit)
            got = checked_call(log, runner, kind, 0, self._limit)
            log.require_accurate()
        require_settled(runner, got)
        differing = repeat_bitwise(runner, got, _REPEATS[profile], self._limit)
        if differing and not _adds_atomically(kernel.text):
            raise RunnerFault(
                Status.RACY, f"{differing} of {_REPEATS[profile]} calls on the same inputs gave other bits, and no atomic add explains it"
            )
        return bool(differing)

    def _further_sessions(self, kernel: KernelText, profile: str, first: TimingSession) -> list[TimingSession]:
        """Measure against the strongest baseline again, with fresh processes, weights and inputs. Raises RunnerFault."""
        sessions = []
        for _ in range(_SESSIONS[profile] - 1):
            self.session.new_weights()
            # the first process stays for the next candidate
            with contextlib.closing(BaselineProcess(self.session, self.baselines.modes)) as baselines:
                timer = CallTimer(baselines)
                baselines.start((first.strongest,))
                with self._runner(kernel) as runner:
                    timer.set_candidate(runner)
                    timer.open_baselines()
                    sessions.append(TimingSession(timer, runner, profile, self._limit, (first.strongest,)))
                    sessions[-1].compare_alone()
        return sessions

    def _timing(self, sessions: list[TimingSession], clocks: Clocks, raw: Path) -> Timing:
        first = sessions[0]
        paired, best = first.paired, first.strongest
        measurements = sorted((timed.measurement for timed in sessions), key=lambda measurement: measurement.ratio)
        intervals = [measurement.interval for measurement in measurements]
        middle = measurements[len(measurements) // 2]
        worst = max((timed.control for timed in sessions), key=lambda pair: abs(pair.ratio - 1.0))
        noise = spread(paired[best].candidate)
        notes = [*self.baselines.notes, *(note for timed in sessions for note in timed.notes)]
        notes.append(f"spread of the candidate's samples (IQR/median) {noise:.1%}")
        if self.session.task.precision is not PrecisionClass.IEEE:
            tf32 = [name for name, mode in self.baselines.modes.items() if mode % 2]
            notes.append(f"baselines with TF32 on: {', '.join(tf32) or 'none (off was faster)'}")
        return Timing(
            kind=TimingKind.MEASURED, median_ms=paired[best].candidate_ms,
            baselines_ms={name: pair.baseline_ms for name, pair in paired.items()}, baseline=best, score=middle.ratio,
            score_eager=paired["eager"].ratio if "eager" in paired else middle.ratio,
            interval=(min(low for low, _ in intervals), max(high for _, high in intervals)),
            ratios={name: pair.ratio for name, pair in paired.items()} | {best: middle.ratio},
            pairs=sum(measurement.pairs for measurement in measurements), raw=str(raw), notes=tuple(notes), control=worst.measurement,
            comparison=compare(intervals, paired[best].candidate_ms, worst.ratio), sessions=tuple(timed.measurement for timed in sessions),
            device_ms=clocks[1], wall_ms=clocks[0], floor_ms=self._floor.ms,
        )  # fmt: skip


def _adds_atomically(source: str) -> bool:
    """Whether the code (not a comment or a string) names atomic_add, whose order no card promises."""
    return any(isinstance(node, ast.Attribute | ast.Name) and _name(node) == "atomic_add" for node in ast.walk(ast.parse(source)))


def _name(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def _read_facts(report: dict[str, Any], kernel: KernelText, order_dependent: bool) -> LaunchFacts:
    try:
        return read_launch_facts(report, kernel.text, order_dependent)
    except ValueError as error:
        raise RunnerFault(Status.CHEATING, f"the report of what forward launches was tampered with: {error}") from error


def _summary(timing: Timing) -> str:
    words = timing.comparison.value if timing.comparison else "not compared"
    against = f"{timing.score:.2f}x the strongest baseline ({timing.baseline}; {words})"
    return f"{timing.median_ms:.3f} ms, {against}, {timing.score_eager:.2f}x eager"
