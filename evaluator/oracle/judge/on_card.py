"""A verdict on a card: correctness, repetition, timing against every baseline, launch facts, suspicion. Imports torch."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tritonsmith.evaluator.cards.floors import CEILINGS
from tritonsmith.evaluator.channel.doorbell import BASELINES, CUDA_GRAPH, QUICK_BASELINES, Command
from tritonsmith.evaluator.errors import BaselineError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.corners import check_corners
from tritonsmith.evaluator.oracle.checks.inputs import stress_kinds
from tritonsmith.evaluator.oracle.checks.loaded_task import MOVED_WEIGHTS, LoadedTask
from tritonsmith.evaluator.oracle.checks.neighbours import ask_with_neighbours
from tritonsmith.evaluator.oracle.checks.shared_inputs import SharedInputs
from tritonsmith.evaluator.oracle.checks.trials import TrialLog, ask, checked_call, repeat_bitwise, require_settled
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.oracle.judge.facts_on_card import read_launch_facts
from tritonsmith.evaluator.oracle.judge.forms import TIGHT, Attempts, read_card_work
from tritonsmith.evaluator.oracle.judge.further import FurtherBaselines
from tritonsmith.evaluator.oracle.judge.label import choose_label
from tritonsmith.evaluator.oracle.judge.memory_watch import MemoryWatch
from tritonsmith.evaluator.oracle.judge.score import Timed, describe_score, make_timing
from tritonsmith.evaluator.oracle.judge.suspicion import Floor, find_other_forward, find_suspicion
from tritonsmith.evaluator.oracle.judge.variation import Variation
from tritonsmith.evaluator.oracle.judge.witness import Witness, has_room, open_witness
from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess
from tritonsmith.evaluator.oracle.timing.calls import CallTimer
from tritonsmith.evaluator.oracle.timing.ceilings import measure_ceilings
from tritonsmith.evaluator.oracle.timing.paired import find_strongest
from tritonsmith.evaluator.oracle.timing.session import TimingSession, write_raw
from tritonsmith.evaluator.processes.steps import STEPS
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import LaunchFacts, Status, Timing, Verdict

_FIRST_TRIALS = {"quick": ("own", "own"), "strict": ("own", "own", "own")}
"""By profile: kinds of inputs of the first checked calls."""
_LAST_TRIALS = {"quick": ("signed",), "strict": ("signed", "signed")}
"""And of the last ones; on inputs of the last of all the repetitions run."""
_REPEATS = {"quick": 20, "strict": 100}
"""By profile: calls on the same inputs whose bits are compared."""
_SESSIONS = {"quick": 1, "strict": 3}
"""By profile: sessions of timing, each with fresh processes."""
_CLOSE = 1.25
"""Baselines within this factor of the strongest, in the last verdict, may be the strongest in the next one."""
_FIRST_WEIGHTS = {"quick": MOVED_WEIGHTS, "strict": 0}
"""By profile: the draw of weights that checks begin with. `strict` goes on with the moved ones, and its further sessions with the next."""
_PROFILES = 3
"""Times that a forward is profiled before its kernels are said to take longer than the timed calls: others on the card slow them down."""
_WAITING = 3
"""Processes of each role that wait for the next candidates; one takes longer to start than a short verdict takes."""


class CardJudge:
    """Judges candidates of one task on the card; keeps the baselines' process alive between candidates.

    Args:
        session: the task on the card.
        names: the baselines that candidates are timed against; without names, all of them in a strict verdict, else the quick ones.
    """

    def __init__(self, session: LoadedTask, names: tuple[str, ...] = ()) -> None:
        self.session = session
        self._names = names
        self.baselines = BaselineProcess(session)
        self.timer = CallTimer(self.baselines)
        self._together = session.plan.together
        if self._together:
            _start_all(self.baselines, _choose_names(names, "quick"))
        self._roomy = self._together and has_room(session)
        self._inputs = SharedInputs(session)
        self._known: dict[str, float] = {}  # ms of each baseline in the last verdict, where they are timed one at a time
        self._limit = 0.0
        self._floor = Floor(session)
        self._steps: dict[str, float] = {}
        self._variation = Variation(session)
        self._further = FurtherBaselines(session, self.baselines, _SESSIONS["strict"] - 1)
        self._attempts = Attempts()
        self.in_graphs: set[str] = set()  # texts whose last verdict timed them in a CUDA graph
        self._ahead = False  # whether a strict verdict is prepared meanwhile: while baselines are built, and in one for the next

    def take_trace(self, trace: list[OperatorCost]) -> None:
        """The reference's operators, from the probe; before the first verdict."""
        self._floor.flops = sum(cost.flops for cost in trace)

    def close(self) -> None:
        """End the baselines' processes and give the slots back."""
        self._further.close()
        self.baselines.close()
        self.session.close()

    def judge(self, kernel: KernelText, profile: str, raw: Path, call_seconds: float) -> Verdict:
        """One verdict; `raw` is where the samples go, `call_seconds` bounds the first call (compilation included)."""
        self._limit, self._steps = call_seconds, {}
        self._attempts = Attempts("" if self._together and not self.session.plan.is_tight else TIGHT)
        memory, started = MemoryWatch(self.session), time.time()
        while True:
            log = TrialLog(self.session)
            try:
                timed, sessions = self._measure(log, memory, kernel, profile)
                write_raw(raw, {"started": started, "profile": profile}, [*sessions, *timed.others])
                timing = make_timing(sessions, timed, self.baselines, self._floor.ms, raw, self._attempts.all_notes)
                for session in sessions:
                    self._floor.require_possible(session, timed.facts, strict=profile == "strict")
                break
            except RunnerFault as caught:
                if not self._attempts.try_again(caught):
                    return _refuse(memory.explain(caught), kernel, profile, log, memory)
        environment = {"seconds_by_step": self._steps, "memory": memory.record(), CEILINGS: asdict(measure_ceilings())}
        doubt = find_suspicion(timing, timed.clocks, timed.facts, self._floor.operations_ms, slower=timed.first.far_slower)
        backward = self.session.task.backward
        return _accept(timed, timing, kernel, profile, log, environment, doubt, backward=backward)

    def _measure(self, log: TrialLog, memory: MemoryWatch, kernel: KernelText, profile: str) -> tuple[Timed, list[TimingSession]]:
        """Checks and all sessions. Raises RunnerFault."""
        self._ahead = profile == "strict" or bool(self.baselines.undecided)
        self.timer.set_candidate(None)
        self.session.use_weights(_FIRST_WEIGHTS[profile])
        time_calls = self._time_together if self._together else self._time_one_by_one
        timed = time_calls(log, memory, kernel, profile)
        with self._step("further sessions"):
            sessions = [timed.first, *self._further_sessions(kernel, profile, timed.first.strongest)]
        self._attempts.conclude(self.in_graphs, kernel.sha)
        return timed, sessions

    def _time_together(self, log: TrialLog, memory: MemoryWatch, kernel: KernelText, profile: str) -> Timed:
        """Check the candidate and time it against all baselines, whose process stays alive between candidates. Raises RunnerFault."""
        self.baselines.start(names := _choose_names(self._names, profile))
        if self.baselines.unbuilt:  # ahead of the candidate: nothing that its process does can spoil what an autotuner finds
            with self._step("autotune baselines"):
                self.baselines.wait_ready()
        with contextlib.ExitStack() as stack:
            with open_witness(self.session, roomy=self._roomy) as witness:
                with self._step("start"):
                    runner = stack.enter_context(self._runner(kernel, witness))
                    if self.session.pool is not None and _SESSIONS[profile] > 1:  # every further session has a process of its own
                        self._further.start(profile, self.session.pool)
                with self._step("check"):
                    order_dependent = self._check(log, runner, kernel, profile)
                memory.look()
                with self._step("facts"):
                    report = witness.report(self._limit) if witness else None
                    self._attempts.look_at_graph(witness, report, self._limit)
            self.timer.set_candidate(runner)
            with self._step("baselines"):
                self.timer.open_baselines()
                self._further.wait_ready()
            _require_some(self.baselines, names)
            with self._step("time"):
                first = TimingSession(self.timer, runner, profile, self._limit, _list_ready(self.baselines, names), self._attempts.form)
            memory.look()
            clocks = first.clocks
            facts = _read_facts(first.forms.facts_of(report), kernel, order_dependent) if report else None
            if facts is None or find_other_forward(facts, clocks):  # no profiler runs in a process before it is timed
                with self._step("facts of the runner"):
                    facts = _profile_again(runner, self._limit, first, kernel, order_dependent)
            self._variation.require_explained(facts)
            with self._step("baseline alone"):
                first.compare_alone()
            self._further.strongest[profile] = first.strongest
        return Timed(first, first.paired, clocks, facts)

    def _time_one_by_one(self, log: TrialLog, memory: MemoryWatch, kernel: KernelText, profile: str) -> Timed:
        """Check the candidate, then time it against one baseline after the other: the card holds no more at once. Raises RunnerFault."""
        with self._step("start"):
            runner = self._runner(kernel)
        with runner:
            with self._step("check"):
                order_dependent = self._check(log, runner, kernel, profile)
            memory.look()
            with self._step("facts of the runner"):
                facts = _read_facts(runner.facts(self._limit), kernel, order_dependent)
                self._variation.require_explained(facts)
        known, names, sessions = self.baselines.known, _choose_names(self._names, profile), {}
        known.forget_notes()
        with self._step("time"):
            for name in _choose_baselines(known.list_usable(names), self._known):
                with contextlib.closing(BaselineProcess(self.session, known)) as baselines:
                    _start_one(baselines, name, self.session.pool)
                    session = None if known.explain(name) else self._time_against(baselines, kernel, profile, name)
                memory.look()
                if session is not None:
                    sessions[name] = session
        _require_some(self.baselines, tuple(sessions))
        paired = {name: session.paired[name] for name, session in sessions.items()}
        self._known = dict.fromkeys(names, math.inf) | self._known | {name: pair.baseline_ms for name, pair in paired.items()}
        first = sessions[find_strongest(paired)]
        return Timed(first, paired, first.clocks, facts, [session for session in sessions.values() if session is not first])

    def _time_against(self, baselines: BaselineProcess, kernel: KernelText, profile: str, name: str) -> TimingSession | None:
        """A session of a fresh runner against one baseline of a process; None, and a note, where it cannot be had. Raises RunnerFault."""
        timer = CallTimer(baselines)
        with self._runner(kernel) as runner:
            timer.set_candidate(runner)
            timer.open_baselines()
            if name not in baselines.modes:
                return None
            session = TimingSession(timer, runner, profile, self._limit, (name,), self._attempts.form)
            session.compare_alone()
        return session

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Note how long a part of the verdict takes."""
        started = STEPS.note(name)
        yield
        if self.session.plan.is_tight:
            torch.cuda.empty_cache()
        self._steps[name] = round(time.monotonic() - started, 3)

    def _runner(self, kernel: KernelText, witness: Witness | None = None) -> RunnerHandle:
        """The candidate's runner, ready; the next ones start to import meanwhile. Raises RunnerFault."""
        runner = self.session.runner(kernel)
        try:
            if witness is not None:
                witness.begin(kernel)
            if self.session.pool is not None:
                _fill(self.session.pool, self._further if self._ahead else None, together=self._together, roomy=self._roomy)
            runner.wait_ready()
        except BaseException:
            runner.close()
            raise
        return runner

    def _check(self, log: TrialLog, runner: RunnerHandle, kernel: KernelText, profile: str) -> bool:
        """Check accuracy, settled outputs and repetition. Returns whether bits vary; `Variation` says when they may."""
        got, asked = list[torch.Tensor](), Counter[str]()
        kinds = _list_kinds(profile, real=self.session.has_real)
        for number, kind in enumerate(kinds):
            STEPS.note(f"check, inputs {number + 1} of {len(kinds)}")
            if profile == "strict" and number == 2:  # weights kept from an earlier call must not survive new ones
                self.session.use_weights(MOVED_WEIGHTS)
                runner.command(Command.WEIGHTS, timeout=self._limit)
            if number:
                got = _choose_ask(profile, kind, asked[kind])(log, runner, self._inputs.take(kind, asked[kind]), 0, self._limit)
            else:  # inputs that no other candidate was given
                got = checked_call(log, runner, kind, 0, self._limit)
            asked[kind] += 1
            log.require_accurate()
        require_settled(runner, got)
        varies = self._variation.look(repeat_bitwise(log, runner, got, _REPEATS[profile], self._limit), _REPEATS[profile], kernel.text)
        check_corners(log, runner, profile, self._limit)
        return varies

    def _further_sessions(self, kernel: KernelText, profile: str, strongest: str) -> list[TimingSession]:
        """Measure against the strongest baseline again, with other processes, weights and inputs. Raises RunnerFault."""
        sessions = []
        for number in range(MOVED_WEIGHTS + 1, MOVED_WEIGHTS + _SESSIONS[profile]):
            STEPS.note(f"session {number - MOVED_WEIGHTS + 1} of {_SESSIONS[profile]}")
            self.session.use_weights(number)
            with self._further.lend(number - MOVED_WEIGHTS - 1, strongest) as baselines:
                session = self._time_against(baselines, kernel, profile, strongest)
            if session is None:  # it does not count with these weights, or fails
                raise BaselineError(strongest, "; ".join(self.baselines.notes))
            sessions.append(session)
        return sessions


def _list_kinds(profile: str, *, real: bool) -> tuple[str, ...]:
    """Kinds of inputs of the checked calls. Real ones are second, where `strict` still has the weights that the task brings along."""
    first = _FIRST_TRIALS[profile]
    return (first[0], *(("real",) if real else ()), *first[1:], *stress_kinds(profile), *_LAST_TRIALS[profile])


def _accept(
    timed: Timed, timing: Timing, kernel: KernelText, profile: str, log: TrialLog, environment: dict[str, Any], doubt: str, *,
    backward: bool,
) -> Verdict:  # fmt: skip
    return Verdict(
        status=Status.OK, sha=kernel.sha, label=choose_label(timed.facts, backward=backward), correctness=log.correctness, timing=timing,
        facts=timed.facts, profile=profile, message=describe_score(timing), environment=environment, quarantine=doubt,
    )  # fmt: skip


def _refuse(fault: RunnerFault, kernel: KernelText, profile: str, log: TrialLog, memory: MemoryWatch) -> Verdict:
    return Verdict(
        status=fault.status, sha=kernel.sha, message=str(fault), correctness=log.correctness, profile=profile,
        environment={"memory": memory.record()},
    )  # fmt: skip


def _choose_ask(profile: str, kind: str, earlier: int) -> Callable[..., list[torch.Tensor]]:
    """How the inputs of a trial are asked about: `strict` follows the first `signed` ones with two of which only a part is new.

    On those a task has no structure anyhow that the exchange of a part could break, as in a symmetric matrix.
    """
    return ask_with_neighbours if profile == "strict" and kind == "signed" and not earlier else ask


def _fill(pool: RunnerPool, further: FurtherBaselines | None, *, together: bool, roomy: bool) -> None:
    """Have processes wait for the next candidates, and for a strict verdict where baselines of `further` sessions are named."""
    waiting = _WAITING if together else 1  # each holds some of the card's memory
    pool.fill(candidate=waiting, witness=waiting if roomy else 0)
    if roomy and further is not None:
        pool.fill(reference=further.count_missing())
        pool.await_sanitizer()


def _start_all(baselines: BaselineProcess, names: tuple[str, ...]) -> None:
    try:
        baselines.start(names)
    except BaseException:
        baselines.close()  # nobody gets the judge that would do it
        raise


def _start_one(baselines: BaselineProcess, name: str, pool: RunnerPool | None) -> None:
    """Build one baseline, while the next one's process imports; what that takes is given back before the candidate comes."""
    baselines.start((name,))
    if pool is not None:
        pool.fill(reference=1)
    baselines.wait_ready()


def _choose_names(asked: tuple[str, ...], profile: str) -> tuple[str, ...]:
    return asked or (BASELINES if profile == "strict" else QUICK_BASELINES)


def _list_ready(baselines: BaselineProcess, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the names whose setting is chosen; an earlier verdict may have had more."""
    return tuple(name for name in names if name in baselines.modes)


def _require_some(baselines: BaselineProcess, names: tuple[str, ...]) -> None:
    if not _list_ready(baselines, names):
        raise RunnerFault(Status.UNSUPPORTED, "no baseline could be run: " + "; ".join(baselines.notes))


def _choose_baselines(names: tuple[str, ...], known: dict[str, float]) -> list[str]:
    """Those that no verdict has tried; then eager execution, and those that may be the strongest."""
    best = min(known.values(), default=0.0)
    return [name for name in names if name not in known or name == "eager" or known[name] <= _CLOSE * best]


def _profile_again(runner: RunnerHandle, limit: float, timed: TimingSession, kernel: KernelText, order_dependent: bool) -> LaunchFacts:
    """Facts from the runner itself, profiled until they can be of what was timed, a few times at the most."""
    for _ in range(_PROFILES):
        report = runner.facts(limit)
        if timed.forms.chosen == CUDA_GRAPH:
            report |= read_card_work(runner.facts(limit, CUDA_GRAPH))
        facts = _read_facts(report, kernel, order_dependent)
        if not find_other_forward(facts, timed.clocks):
            break
    return facts


def _read_facts(report: dict[str, Any], kernel: KernelText, order_dependent: bool) -> LaunchFacts:
    try:
        return read_launch_facts(report, kernel.text, order_dependent)
    except ValueError as error:
        raise RunnerFault(Status.CHEATING, f"the report of what forward launches was tampered with: {error}") from error
