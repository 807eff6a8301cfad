"""A verdict on a card: correctness, repetition, paired timing against every baseline, launch facts, suspicion. Imports torch."""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.channel.slots import spec_bytes
from tritonsmith.evaluator.oracle.checks.inputs import stress_kinds
from tritonsmith.evaluator.oracle.checks.loaded_task import TaskSession
from tritonsmith.evaluator.oracle.checks.trials import TrialLog, checked_call, repeat_bitwise, require_settled
from tritonsmith.evaluator.oracle.handles.runner import Runner, RunnerFault
from tritonsmith.evaluator.oracle.judge.facts_on_card import launch_facts
from tritonsmith.evaluator.oracle.judge.witness import Witness, has_room
from tritonsmith.evaluator.oracle.timing.calls import Bench
from tritonsmith.evaluator.oracle.timing.ceilings import measured
from tritonsmith.evaluator.oracle.timing.paired import CLOCK_MS, clocks_apart, compare, spread
from tritonsmith.evaluator.oracle.timing.session import Session, write_raw
from tritonsmith.evaluator.schema import (
    Label,
    LaunchFacts,
    OperatorCost,
    PrecisionClass,
    Status,
    Timing,
    TimingKind,
    Verdict,
    text_sha,
)

_FIRST_TRIALS = {"quick": ("own", "own"), "strict": ("own", "own", "own")}
_LAST_TRIALS = {"quick": ("signed",), "strict": ("signed", "signed")}  # on inputs of the last one the repetitions run
_REPEATS = {"quick": 20, "strict": 100}
_SESSIONS = {"quick": 1, "strict": 3}
_KERNEL_SHARE, _LIBRARY_SHARE = 0.9, 0.05
_OVERLAPPING = 2.0
"""Kernels on several streams take longer one after the other than the call that overlaps them: by up to this factor."""
_INCREDIBLE = 10.0
"""Times the strongest baseline: possible, but to be audited before it is believed."""
_PROBED_PARTS = 16
_WAITING = 3
"""Processes of each role that wait for the next candidates; one takes longer to start than a short verdict takes."""


class CardJudge:
    """Judges candidates of one task on the card; keeps the baselines' process alive between candidates.

    Args:
        session: the task on the card.
    """

    def __init__(self, session: TaskSession) -> None:
        self.session = session
        self.bench = Bench(session)
        self.bench.begin()
        self._roomy = has_room(session)
        self._flops = 0.0
        self._limit = 0.0
        self._floor: float | None = None
        self._steps: dict[str, float] = {}

    def take_trace(self, trace: list[OperatorCost]) -> None:
        """The reference's operators, from the probe; before the first verdict."""
        self._flops = sum(one.flops for one in trace)

    def close(self) -> None:
        """End the baselines' process and give the slots back."""
        self.bench.close()
        self.session.close()

    def judge(self, source: Path, profile: str, raw: Path, call_seconds: float) -> Verdict:
        """One verdict; `raw` is where the samples go, `call_seconds` bounds the first call (compilation included)."""
        self._limit, self._steps = call_seconds, {}
        self.bench.accompany(None)
        log = TrialLog(self.session)
        sha = text_sha(source.read_text())
        self.bench.begin()
        try:
            with contextlib.ExitStack() as stack:
                with self._witness() as witness:
                    with self._step("start"):
                        runner = stack.enter_context(self._runner(source, witness))
                        if self.session.pool is not None:  # every further session has a baselines' process of its own
                            self.session.pool.fill(reference=_SESSIONS[profile] - 1)
                    with self._step("check"):
                        order_dependent = self._check(log, runner, source, profile)
                    with self._step("facts"):
                        report = witness.report(call_seconds) if witness else None
                self.bench.accompany(runner)
                with self._step("baselines"):
                    self.bench.open_baselines()
                if not self.bench.modes:
                    raise RunnerFault(Status.UNSUPPORTED, "no baseline could be run: " + "; ".join(self.bench.notes))
                started = time.time()
                with self._step("time"):
                    first = Session(self.bench, runner, profile, call_seconds, tuple(self.bench.modes))
                clocks = first.clocks
                facts = _facts(report, source, order_dependent) if report else None
                if facts is None or _another_forward(facts, clocks):  # no profiler runs in a process before it is timed
                    with self._step("facts of the runner"):
                        facts = _facts(runner.facts(call_seconds), source, order_dependent)
                with self._step("baseline alone"):
                    first.compare_alone()
            with self._step("further sessions"):
                sessions = [first, *self._further_sessions(source, profile, first)]
            write_raw(raw, {"started": started, "profile": profile}, sessions)
            timing = self._timing(sessions, clocks, raw)
            for one in sessions:
                self._require_possible(one, facts, strict=profile == "strict")
        except RunnerFault as fault:
            return Verdict(status=fault.status, sha=sha, message=str(fault), correctness=log.correctness, profile=profile)
        return Verdict(
            status=Status.OK, sha=sha, label=label_of(facts), correctness=log.correctness, timing=timing, facts=facts, profile=profile,
            message=_summary(timing), quarantine=suspicion(timing, clocks, facts, slower=first.far_slower),
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

    def _runner(self, source: Path, witness: Witness | None = None) -> Runner:
        """The candidate's runner, ready; the next ones start to import meanwhile. Raises RunnerFault."""
        runner = self.session.runner(source)
        try:
            if witness is not None:
                witness.begin(source)
            self._prewarm()
            runner.wait_ready()
        except BaseException:
            runner.close()
            raise
        return runner

    def _prewarm(self) -> None:
        if self.session.pool is not None:
            self.session.pool.fill(candidate=_WAITING, witness=_WAITING if self._roomy else 0)

    def _check(self, log: TrialLog, runner: Runner, source: Path, profile: str) -> bool:
        """Accuracy, settled outputs, bitwise repetition. Returns whether bits vary (allowed with atomic adds only)."""
        got: list[torch.Tensor] = []
        for number, kind in enumerate((*_FIRST_TRIALS[profile], *stress_kinds(profile), *_LAST_TRIALS[profile])):
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

    def _further_sessions(self, source: Path, profile: str, first: Session) -> list[Session]:
        """The same measurement against the strongest baseline with fresh processes, weights and inputs. Raises RunnerFault."""
        sessions = []
        for _ in range(_SESSIONS[profile] - 1):
            self.session.new_weights()
            with contextlib.closing(Bench(self.session, self.bench.modes)) as bench:  # the first one stays for the next candidate
                bench.begin((first.strongest,))
                with self._runner(source) as runner:
                    bench.accompany(runner)
                    bench.open_baselines()
                    sessions.append(Session(bench, runner, profile, self._limit, (first.strongest,)))
                    sessions[-1].compare_alone()
        return sessions

    def _timing(self, sessions: list[Session], clocks: Clocks, raw: Path) -> Timing:
        first = sessions[0]
        paired, best = first.paired, first.strongest
        taken = sorted((one.measurement for one in sessions), key=lambda one: one.ratio)
        middle = taken[len(taken) // 2]
        worst = max((one.control for one in sessions), key=lambda pair: abs(pair.ratio - 1.0))
        noise = spread(paired[best].candidate)
        notes = [*self.bench.notes, *(note for one in sessions for note in one.notes)]
        notes.append(f"spread of the candidate's samples (IQR/median) {noise:.1%}")
        if self.session.task.precision is not PrecisionClass.IEEE:
            tf32 = [name for name, mode in self.bench.modes.items() if mode % 2]
            notes.append(f"baselines with TF32 on: {', '.join(tf32) or 'none (off was faster)'}")
        return Timing(
            kind=TimingKind.MEASURED, median_ms=paired[best].candidate_ms,
            baselines_ms={name: pair.baseline_ms for name, pair in paired.items()}, baseline=best, score=middle.ratio,
            score_eager=paired["eager"].ratio if "eager" in paired else middle.ratio,
            interval=(min(one.interval[0] for one in taken), max(one.interval[1] for one in taken)),
            ratios={name: pair.ratio for name, pair in paired.items()} | {best: middle.ratio}, pairs=sum(one.pairs for one in taken),
            raw=str(raw), notes=tuple(notes), comparison=compare([one.interval for one in taken], paired[best].candidate_ms, worst.ratio),
            control=worst.measurement, sessions=tuple(one.measurement for one in sessions), device_ms=clocks[1],
            wall_ms=clocks[0], floor_ms=self._floor_ms(),
        )  # fmt: skip

    # ---- what cannot be, and what is hard to believe

    def _floor_ms(self) -> float:
        if self._floor is None:
            self._floor = self._floor_of(1.0)
        return self._floor

    def _floor_of(self, needed: float) -> float:
        session, specs = self.session, self.session.layout
        weights = sum(tensor.numel() * tensor.element_size() for tensor in session.model.parameters())
        inputs = needed * (sum(map(spec_bytes, specs.inputs)) + weights)
        outputs = sum(map(spec_bytes, specs.outputs))
        return measured().floor_ms(inputs, outputs, needed * self._flops, session.task.precision, session.hardware.l2_bytes)

    def _require_possible(self, one: Session, facts: LaunchFacts, *, strict: bool) -> None:
        """Raises RunnerFault(cheating) where a session's times cannot be; in `strict` also where two views of it disagree."""
        paired = one.paired[one.strongest]
        self._require_above_floor(paired.candidate_ms)
        said = unlaunched(one.clocks[1], paired.baseline_ms, facts, measured().launch_floor_ms)
        if said or (strict and (said := contradiction(one.clocks, facts, slower=one.far_slower))):
            raise RunnerFault(Status.CHEATING, said)

    def _require_above_floor(self, ms: float) -> None:
        """Raises RunnerFault(cheating) below the floor of physics; a task that needs only part of its inputs has a lower floor."""
        if ms >= self._floor_ms():
            return
        self._floor = self._floor_of(self._needed_part())
        if ms < self._floor:
            raise RunnerFault(
                Status.CHEATING,
                f"{ms:.4g} ms is below what this card needs to read the inputs and do the arithmetic ({self._floor:.4g} ms)",
            )

    def _needed_part(self) -> float:
        """Share of the inputs that the outputs depend on, by changing one sixteenth of each after the other."""
        tensors = self.session.draw("own")
        before = self.session.oracle(tensors)
        needed = total = 0
        for number, tensor in enumerate(tensors):
            if not tensor.is_floating_point() or not tensor.numel():
                continue
            for part in torch.arange(tensor.numel()).chunk(_PROBED_PARTS):
                changed = [one.clone() for one in tensors]
                flat = changed[number].reshape(-1)
                flat[part] = flat[part].neg() + 0.5
                changed[number] = flat.view_as(tensor)
                after = self.session.oracle(changed)
                needed += any(not torch.equal(one, two) for one, two in zip(before, after, strict=True))
                total += 1
        return needed / total if total else 1.0


Clocks = tuple[float, float]
"""(oracle's, card's) milliseconds of the candidate's forward."""


def _apart(clocks: Clocks) -> str:
    """How far the two clocks disagree, beyond what a disturbed host makes for; empty when they agree."""
    wall, card = clocks
    if not clocks_apart(wall, card):
        return ""
    return f"the two clocks disagree: {wall:.4g} ms by the oracle's, {card:.4g} ms by the card's events in the candidate's process"


def unlaunched(card_ms: float, baseline_ms: float, facts: LaunchFacts, floor_ms: float) -> str:
    """Whether what forward launches cannot be between the card's events, as when another stream has it; empty when it can.

    Microseconds only: work that takes longer is seen by the oracle's clock. A reference that launches nothing has no such floor.
    """
    if not (facts.device_ms or facts.triton_launches) or card_ms >= floor_ms or baseline_ms < floor_ms:
        return ""
    return (
        f"the card's events around forward are {card_ms * 1e3:.3g} us apart, less than one launch takes ({floor_ms * 1e3:.3g} us), "
        "and it launches something: its work is not where it is timed; queue it on the current stream"
    )


def _another_forward(facts: LaunchFacts, clocks: Clocks) -> str:
    """Whether what was profiled cannot be what was timed, and so does not tell whose work that is; empty when it can."""
    profiled, card = facts.device_ms or 0.0, clocks[1]
    if profiled <= _OVERLAPPING * card + CLOCK_MS:
        return ""
    return f"the kernels of the profiled forward take {profiled:.4g} ms, the timed calls {card:.4g} ms: another forward was profiled"


def contradiction(clocks: Clocks, facts: LaunchFacts, *, slower: bool = False) -> str:
    """What two ways to look at the same forward disagree about; empty when they agree.

    `slower`: by its own word the candidate is far slower, so a clock that lies gains it nothing; the oracle's counts.
    """
    return ("" if slower else _apart(clocks)) or _another_forward(facts, clocks)


def suspicion(timing: Timing, clocks: Clocks, facts: LaunchFacts, *, slower: bool = False) -> str:
    """Why a verdict is to be audited; empty when nothing is odd."""
    if timing.score > _INCREDIBLE:
        return f"{timing.score:.3g}x the strongest baseline is hard to believe"
    return contradiction(clocks, facts, slower=slower)


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


def _facts(report: dict[str, Any], source: Path, order_dependent: bool) -> LaunchFacts:
    try:
        return launch_facts(report, source.read_text(), order_dependent)
    except ValueError as error:
        raise RunnerFault(Status.CHEATING, f"the report of what forward launches was tampered with: {error}") from error


def _summary(timing: Timing) -> str:
    words = timing.comparison.value if timing.comparison else "not compared"
    against = f"{timing.score:.2f}x the strongest baseline ({timing.baseline}; {words})"
    return f"{timing.median_ms:.3f} ms, {against}, {timing.score_eager:.2f}x eager"
