"""A verdict on a card: correctness, repetition, paired timing against every baseline, then launch facts. Imports torch."""

from __future__ import annotations

import ast
import json
import secrets
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tritonsmith.evaluator.baselines import NAMES, mode_number
from tritonsmith.evaluator.correctness import accepted, reached_class
from tritonsmith.evaluator.distributions import stress_kinds
from tritonsmith.evaluator.environment import clocks
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.runner_client import Runner, RunnerFault
from tritonsmith.evaluator.schema import (
    Label,
    LaunchFacts,
    PrecisionClass,
    Status,
    Timing,
    TimingKind,
    Verdict,
    text_sha,
)
from tritonsmith.evaluator.session import TaskSession
from tritonsmith.evaluator.timing import Paired, abba, pair_count, rounds_of, spread, strongest
from tritonsmith.evaluator.trials import (
    TrialLog,
    checked_call,
    judged,
    repeat_bitwise,
    require_settled,
    require_unchanged,
    snapshot,
)
from tritonsmith.evaluator.wire import Command

_BUILD_SECONDS = 300.0  # torch.compile of a large network
_SECONDS_PER_BASELINE = {"quick": 0.5, "strict": 1.5}
_MOST_PAIRS = {"quick": 60, "strict": 200}
_ROUNDS = 5
_FIRST_TRIALS = {"quick": ("own", "own"), "strict": ("own", "own", "own")}
_LAST_TRIALS = {"quick": ("signed",), "strict": ("signed", "signed")}  # on inputs of the last one the repetitions run
_REPEATS = {"quick": 20, "strict": 100}
_INPUT_SETS = 3
_KERNEL_SHARE, _LIBRARY_SHARE = 0.9, 0.05
_WARM_CALLS = 5
_SLACK_MS = 0.05
_FRESH_PART = 256
"""One element in so many is exchanged with another before each timed call: no content comes twice."""
_CHECKED_PART = 6
"""One timed output in so many is held against an oracle of its own; which ones, nobody knows before."""


class CardJudge:
    """Judges candidates of one task on the card; keeps the baselines' process alive between candidates.

    Raises:
        TaskError: the task file cannot be used.
    """

    def __init__(self, session: TaskSession) -> None:
        self.session = session
        self._baselines: Runner | None = None
        self._modes: dict[str, int] = {}
        self._notes: list[str] = []
        self._limit = 0.0
        self._honest: deque[float] = deque(maxlen=101)
        """Milliseconds that delivery took the baselines' process."""

    def close(self) -> None:
        """End the baselines' process and give the slots back."""
        self._drop_baselines()
        self.session.close()

    def _drop_baselines(self) -> None:
        if self._baselines:
            self._baselines.close()
            self._baselines = None

    def judge(self, source: Path, profile: str, raw: Path, call_seconds: float) -> Verdict:
        """One verdict; `raw` is where the samples go, `call_seconds` bounds the first call (compilation included)."""
        self._limit = call_seconds
        log = TrialLog(self.session)
        sha = text_sha(source.read_text())
        try:
            with Runner(self.session.setup, "candidate", {"source": str(source)}) as runner:
                runner.wait_ready()
                order_dependent = self._check(log, runner, source, profile)
                timing = self._time(runner, profile, raw)
                facts = LaunchFacts.model_validate(runner.facts(self._limit) | {"order_dependent": order_dependent})
        except RunnerFault as fault:
            return Verdict(status=fault.status, sha=sha, message=str(fault), correctness=log.correctness, profile=profile)
        return Verdict(
            status=Status.OK, sha=sha, label=label_of(facts), correctness=log.correctness, timing=timing, facts=facts, profile=profile,
            message=_summary(timing),
        )  # fmt: skip

    def _check(self, log: TrialLog, runner: Runner, source: Path, profile: str) -> bool:
        """Accuracy, settled outputs, bitwise repetition. Returns whether bits vary (allowed with atomic adds only)."""
        got: list[torch.Tensor] = []
        for number, kind in enumerate((*_FIRST_TRIALS[profile], *stress_kinds(profile, hidden=False), *_LAST_TRIALS[profile])):
            # The hidden kinds run without a card only: how tensor cores' truncating sums fare on them has not been measured yet.
            if profile == "strict" and number == 2:  # weights kept from an earlier call must not survive new ones
                self.session.new_weights()
                runner.command(Command.WEIGHTS, timeout=self._limit)
            got = checked_call(log, runner, kind, 0, self._limit)
            log.require_accurate()
        require_settled(runner, got)
        differing = repeat_bitwise(runner, got, _REPEATS[profile], self._limit)
        if differing and not _adds_atomically(source.read_text()):
            raise RunnerFault(
                Status.RACY, f"{differing} of {_REPEATS[profile]} calls on the same inputs gave other bits, and no atomic add explains it"
            )
        return bool(differing)

    # ---- timing

    def _timed(self, runner: Runner, mode: int, timeout: float) -> float:
        """Milliseconds of one call on a cold cache. Delivery stands outside, but whatever it takes beyond the honest side's is added, so
        that work put off gains nothing. The flush is not timed: it takes up the runner's waking and the switch from the oracle's context,
        which are our doing.
        """
        runner.command(Command.FLUSH, timeout=timeout)
        took = runner.command(Command.CALL, mode, timeout=timeout)
        delivery = runner.command(Command.DELIVER, timeout=timeout)
        if runner is self._baselines:
            self._honest.append(delivery)
            return took
        usual = sorted(self._honest)[len(self._honest) // 2]
        excess = delivery - usual
        return took + excess if excess > max(_SLACK_MS, usual / 2) else took

    def _open_baselines(self) -> Runner:
        if self._baselines is None:
            config = {"task": self.session.task.model_dump(mode="json")}
            self._baselines = Runner(self.session.setup, "reference", config)
            try:
                self._baselines.wait_ready()
            except RunnerFault as fault:
                self._drop_baselines()
                raise InfrastructureError(f"the baselines' process did not start: {fault}") from fault
            for name in NAMES:
                self._choose_mode(self._baselines, name)
        return self._baselines

    def _choose_mode(self, runner: Runner, name: str) -> None:
        """Build a baseline; where TF32 is allowed, keep the faster of its two settings (a stricter one is a fair bar as well)."""
        settings = (False,) if self.session.task.precision is PrecisionClass.IEEE else (False, True)
        best: tuple[float, int] | None = None
        for tf32 in settings:
            mode = mode_number(name, tf32)
            try:
                runner.command(Command.CALL, mode, timeout=_BUILD_SECONDS)
                took = min(self._timed(runner, mode, _BUILD_SECONDS) for _ in range(_WARM_CALLS))
            except RunnerFault as fault:
                self._notes.append(f"baseline {name} could not be had: {str(fault)[:200]}")
                return
            if best is None or took < best[0]:
                best = (took, mode)
        if best:
            self._modes[name] = best[1]

    def _input_sets(self) -> list[list[torch.Tensor]]:
        return [self.session.draw("own") for _ in range(_INPUT_SETS)]

    def _time(self, runner: Runner, profile: str, raw: Path) -> Timing:
        """Candidate against every baseline in turn, each timed output checked. Raises RunnerFault."""
        baselines = self._open_baselines()
        session = self.session
        sets = self._input_sets()
        limit = self._limit
        turn = 0

        def candidate() -> float:
            nonlocal turn
            tensors = sets[turn % _INPUT_SETS] = [_exchanged(tensor) for tensor in sets[turn % _INPUT_SETS]]
            turn += 1
            session.place(tensors)
            runner.poison()
            session.sync()  # else the poison could land on what the candidate delivers
            took = self._timed(runner, 0, limit)
            require_unchanged(session, tensors)
            if turn <= _WARM_CALLS or secrets.randbelow(_CHECKED_PART) == 0:
                trial = judged(session, tensors, snapshot(runner))
                if not accepted(reached_class([trial]), session.task.precision):
                    raise RunnerFault(Status.CHEATING, f"a timed call (number {turn}) gave a wrong result, the checked calls did not")
            return took

        def baseline(mode: int) -> Callable[[], float]:
            def once() -> float:
                try:
                    return self._timed(baselines, mode, limit)
                except RunnerFault as fault:  # never the candidate's fault
                    self._drop_baselines()
                    raise InfrastructureError(f"a baseline failed while it was timed: {fault}") from fault

            return once

        for _ in range(_WARM_CALLS):
            candidate()
        before, started = clocks(), time.time()
        plan: dict[str, list[int]] = {}
        for name, mode in self._modes.items():
            rough = sorted(baseline(mode)() for _ in range(_WARM_CALLS))[_WARM_CALLS // 2]
            plan[name] = rounds_of(pair_count(rough, _SECONDS_PER_BASELINE[profile], _MOST_PAIRS[profile]), _ROUNDS)
        paired: dict[str, Paired] = {}
        for turns in range(_ROUNDS):  # a noisy second of the machine falls on every baseline, not on one
            for name, parts in plan.items():
                if turns < len(parts):
                    taken = abba(candidate, baseline(self._modes[name]), parts[turns])
                    paired[name] = paired[name] + taken if name in paired else taken
        if not paired:
            raise RunnerFault(Status.UNSUPPORTED, "no baseline could be run: " + "; ".join(self._notes))
        return self._timing(paired, raw, {"clocks_before": before, "clocks_after": clocks(), "started": started, "profile": profile})

    def _timing(self, paired: dict[str, Paired], raw: Path, about: dict[str, Any]) -> Timing:
        best = strongest(paired)
        samples = {name: {"candidate_ms": pair.candidate, "baseline_ms": pair.baseline} for name, pair in paired.items()}
        raw.parent.mkdir(parents=True, exist_ok=True)
        raw.write_text(json.dumps(about | {"order": "ABBA", "clock": "oracle wall clock, L2 flushed before each call", "samples": samples}))
        noise = spread(paired[best].candidate)
        notes = [*self._notes, f"spread of the candidate's samples (IQR/median) {noise:.1%}"]
        tf32 = [name for name, mode in self._modes.items() if mode % 2]
        if self.session.task.precision is not PrecisionClass.IEEE:
            notes.append(f"baselines with TF32 on: {', '.join(tf32) or 'none (off was faster)'}")
        return Timing(
            kind=TimingKind.MEASURED, median_ms=paired[best].candidate_ms,
            baselines_ms={name: pair.baseline_ms for name, pair in paired.items()}, baseline=best, score=paired[best].ratio,
            score_eager=paired["eager"].ratio if "eager" in paired else paired[best].ratio, interval=paired[best].interval(),
            ratios={name: pair.ratio for name, pair in paired.items()}, pairs=len(paired[best].candidate), raw=str(raw), notes=tuple(notes),
        )  # fmt: skip


def _exchanged(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in which one element in 256 of one half changed places with one of the other: the same values, other content."""
    flat = tensor.clone().reshape(-1)
    half = flat.numel() // 2
    one = torch.arange(secrets.randbelow(min(_FRESH_PART, max(half, 1))), half, _FRESH_PART, device=flat.device)
    two = one + half
    flat[one], flat[two] = flat[two].clone(), flat[one].clone()
    return flat.reshape(tensor.shape)


def _adds_atomically(source: str) -> bool:
    """Whether the code (not a comment or a string) names atomic_add, whose order no card promises."""
    return any(isinstance(node, ast.Attribute | ast.Name) and _name(node) == "atomic_add" for node in ast.walk(ast.parse(source)))


def _name(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def label_of(facts: LaunchFacts) -> Label:
    """Who does the work, by the share of (device) time in the candidate's own kernels."""
    share = facts.own_time_share if facts.own_time_share is not None else (1.0 if facts.triton_launches else 0.0)
    if not facts.triton_launches or share <= _LIBRARY_SHARE:
        return Label.LIBRARY
    return Label.KERNEL if share >= _KERNEL_SHARE else Label.HYBRID


def _summary(timing: Timing) -> str:
    return f"{timing.median_ms:.3f} ms, {timing.score:.2f}x the strongest baseline ({timing.baseline}), {timing.score_eager:.2f}x eager"
