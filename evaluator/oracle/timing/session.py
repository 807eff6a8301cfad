"""One session of timing on a card: takes of a candidate's calls in turn with the baselines', until the clocks agree. Imports torch."""

from __future__ import annotations

import functools
import json
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tritonsmith.evaluator.cards.machine import clocks
from tritonsmith.evaluator.channel.doorbell import FORMS, Command
from tritonsmith.evaluator.oracle.checks.trials import compute_expected, fresh_call, require_unchanged
from tritonsmith.evaluator.oracle.handles.runner import RunnerHandle
from tritonsmith.evaluator.oracle.timing.blame import Draw
from tritonsmith.evaluator.oracle.timing.calls import WARM_CALLS, CallTimer
from tritonsmith.evaluator.oracle.timing.form_choice import FormChoice, choose_hold_ms, measure_host_ms, settle_form
from tritonsmith.evaluator.oracle.timing.fresh_inputs import Inputs
from tritonsmith.evaluator.oracle.timing.pair_plan import ORACLE_SECONDS, PairPlan
from tritonsmith.evaluator.oracle.timing.paired import (
    Empty,
    Paired,
    Sample,
    Weighed,
    abba,
    alone_factor,
    count_in_a_row,
    count_needed,
    find_strongest,
    find_strongest_alone,
    gain_in_a_row,
    split_rounds,
    take_is_valid,
    weigh,
)
from tritonsmith.evaluator.oracle.timing.placement import Placement
from tritonsmith.evaluator.oracle.timing.screen import Screen, measure_distances
from tritonsmith.evaluator.oracle.timing.wrong_again import TIMES, explain_wrong
from tritonsmith.evaluator.schema import Measurement

_MAX_PAIRS = {"quick": 80, "strict": 120, "size": 30}
"""By profile. At the noise of the card's clock on an H200 (1 % between calls of 20 us) half of them know the ratio within 0.3 %."""
_WIDTH = 0.004
"""Half of the 95 % interval, as a share, at which one session knows the ratio to a baseline well enough."""
_NOISE_PAIRS = 12
"""Pairs of the fastest baseline with itself, which show how many pairs that takes."""
_MAX_CALLS_ALONE = 40
"""Calls of the strongest baseline, at the most, once the candidate's processes are gone."""
_MIN_CALLS_ALONE = 12
"""And at the least."""
_ROUGH_CALLS = 5
"""Calls of each other baseline then."""
_ROUNDS = 6
"""Parts of a take, in each of which every baseline has its turn."""
_MAX_TAKES = 3
"""Takes of one pair of processes, on other processors, before what the oracle saw stands. A candidate that makes its clock look
wrong can have a session taken again, and so choose among as many takes, whose ratios differ by a few tenths of a percent."""


class TimingSession:
    """One pair of processes: the candidate's runner and the baselines' as they are now."""

    def __init__(
        self, timer: CallTimer, runner: RunnerHandle, profile: str, limit: float, names: tuple[str, ...], forms: FormChoice | None = None
    ) -> None:
        self.timer = timer
        self.forms = forms or FormChoice("it is not asked for")
        self.runner = runner
        self._placement = Placement(runner, timer.baselines)
        self.limit = limit
        self.notes: list[str] = []
        self._calls = 0
        self._inputs = Inputs(timer.session)
        self._outputs = [torch.empty_like(slot) for slot in runner.results]
        self._screens = {name: Screen() for name in names}
        self._samples: dict[str, tuple[list[Sample], list[Sample]]] = {}  # by baseline: the candidate's calls and its, pair by pair
        self._discarded: list[dict[str, Any]] = []  # takes that were taken again: calls of the candidate and of the strongest baseline
        self._weighed: dict[str, Weighed] = {}
        self.paired: dict[str, Paired] = {}
        self.strongest: str
        self.control: Paired  # the strongest baseline against itself
        self.takes: list[float] = []
        """Share of the candidate's calls for which the card's clock stands, take by take; the last take is the result."""
        self.before = clocks()
        self._oracle_seconds = 0.0  # what the last oracle took
        self.outputs_per_oracle = 1
        self._alone: dict[str, list[float]] = {}  # milliseconds of the baselines without the candidate's processes
        timer.set_candidate(runner)
        with timer.session.measuring():
            self.forms_ms = settle_form(self.forms, runner, limit, self._warm_call)
            self.host_ms = measure_host_ms(runner, limit)
            timer.hold_ms = choose_hold_ms(self.forms, self.host_ms)
            self._take_valid({name: self._rough_ms(name) for name in names}, profile)
            self._looks, self._void_calls = timer.looks, dict(timer.void_calls)
            timer.require_idle(limit)
        if len(self.takes) > 1:
            self.notes.append(_describe_takes(self))
        self.after = clocks()

    def _warm_call(self, *, judged: bool) -> float:
        """Milliseconds of a call that counts for nothing; judged where oracles are quick in any case. Raises RunnerFault."""
        sample, *results = self._call(self._inputs.next)
        if judged or self._oracle_seconds < ORACLE_SECONDS / WARM_CALLS:
            self._judge(sample, *results)
        return sample.card

    def _take_valid(self, rough: dict[str, float], profile: str) -> None:
        """Takes until one is valid, then what is measured beside; `rough` has milliseconds of each baseline."""
        most = self._choose_most_pairs(min(rough, key=lambda name: rough[name]), profile)
        self._plan = PairPlan.make(rough, most, profile)
        self.outputs_per_oracle = self._plan.outputs_per_oracle(self._oracle_seconds)
        processors = os.sched_getaffinity(0)
        try:
            while len(self.takes) < _MAX_TAKES:
                if self._placement.choose(processors):
                    self.timer.forget_paces()
                self._take()
                if take_is_valid(self._weighed[self.strongest], self.control.ratio):
                    break
                if self.forms.leave_calls(self.forms_ms):
                    self.timer.hold_ms = choose_hold_ms(self.forms, self.host_ms)
            self._in_a_row = self._call_in_a_row()
        finally:
            self._placement.release(processors)

    def compare_alone(self) -> None:
        """End the candidate's processes and time the baselines once more, without what slowed them down.

        Where they are faster by more than the candidate is in a row, the score is against these times. Raises InfrastructureError.
        """
        timer, processors, best = self.timer, os.sched_getaffinity(0), self.strongest
        together = self.paired[best].baseline
        expected = median(together) * gain_in_a_row(self._samples[best][0], self._in_a_row, self._empty)
        self.runner.process.kill()
        timer.set_candidate(None)
        with timer.session.measuring():
            try:
                self._placement.choose_again()
                self._alone, alone = _time_alone(self._baseline_ms, self.paired, best)
            finally:
                self._placement.release(processors)
        factor = alone_factor(expected, median(self._alone[alone]))
        if factor < 1.0:
            gone = f"less than {best} did, once the candidate's processes are gone: the score is against that"
            self.notes.append(f"the baseline {alone} takes {1.0 - factor:.1%} {gone}")
            scaled = {name: weighed.scale_baseline(factor) for name, weighed in self._weighed.items()}
            self._weighed = scaled if alone == best else self._weighed | {alone: scaled[best]}
            self.paired = {name: weighed.paired for name, weighed in self._weighed.items()}
            self.strongest = alone

    def _baseline_ms(self, name: str) -> float:
        """One call of a baseline, by the card's clock."""
        return self.timer.time_baseline(name, self._inputs.next, self.limit).card

    def _choose_most_pairs(self, name: str, profile: str) -> int:
        """Pairs that the noise of this baseline calls for. The candidate has no part in it: it cannot choose how often it is timed."""
        probe = abba(lambda: self._baseline_ms(name), lambda: self._baseline_ms(name), _NOISE_PAIRS)
        return min(_MAX_PAIRS[profile], count_needed(probe.noise, _WIDTH))

    def _rough_ms(self, name: str) -> float:
        return median(self._baseline_ms(name) for _ in range(WARM_CALLS))

    def _take(self) -> None:
        """In rounds, so that a noisy second of the machine falls on every baseline and not on one; then more with the strongest."""
        plan = {name: split_rounds(count, _ROUNDS) for name, count in self._plan.pairs.items()}
        if self.takes:
            self._discarded.append({"baseline": self.strongest, **_list_calls(*self._samples[self.strongest])})
        self._samples = {name: ([], []) for name in self._plan.pairs}
        empties = []
        for number in range(_ROUNDS):
            empties.append(self.timer.measure_empty(self.limit))
            for name, parts in plan.items():
                if number < len(parts):
                    self._take_pairs(name, parts[number])
        self._weigh(empties)
        while (more := self._count_open()) > 0:  # again where another one turns out stronger
            self._take_pairs(self.strongest, more)
            empties.append(self.timer.measure_empty(self.limit))
            self._weigh(empties)
        self.takes.append(self._weighed[self.strongest].share)
        best = self.strongest
        self.control = abba(lambda: self._baseline_ms(best), lambda: self._baseline_ms(best), self._plan.control)

    def _count_open(self) -> int:
        taken, counted = len(self._samples[self.strongest][0]), len(self.paired[self.strongest].candidate)
        return self._plan.count_open(taken, counted, far_slower=self.far_slower)

    def _call_in_a_row(self) -> list[Sample]:
        """The candidate's calls without a baseline's in between, each judged."""
        number = count_in_a_row(self.paired[self.strongest], self.control, self._oracle_seconds)
        samples = []
        for _ in range(number):
            samples.append((call := self._call(self._inputs.next))[0])
            self._judge(*call)
        return samples

    def _weigh(self, empties: list[Empty]) -> None:
        """What the samples so far say, and which baseline is the strongest."""
        self._empty = Empty(median(empty.early for empty in empties), median(empty.late for empty in empties))
        self._weighed = {name: weigh(candidate, baseline, self._empty) for name, (candidate, baseline) in self._samples.items()}
        self.paired = {name: weighed.paired for name, weighed in self._weighed.items()}
        self.strongest = find_strongest(self.paired)

    def _take_pairs(self, name: str, count: int) -> None:
        pairs = _Pairs(self, name)
        candidate, baseline = self._samples[name]
        abba(lambda: _keep(candidate, pairs.time_candidate()), lambda: _keep(baseline, pairs.time_baseline()), count)

    def _call(self, draw: Draw) -> tuple[Sample, list[torch.Tensor], list[torch.Tensor]]:
        """One timed call: its time, its inputs, which must come back unchanged, and its outputs, until the next one. Raises RunnerFault."""
        tensors: list[torch.Tensor] = []

        def draw_and_keep() -> list[torch.Tensor]:
            tensors[:] = draw()
            return tensors

        def copy_outputs() -> None:  # now: what is written later comes too late
            for copy, slot in zip(self._outputs, self.runner.results, strict=True):
                copy.copy_(slot)

        mode = FORMS.index(self.forms.running)
        sample = self.timer.time_call(self.runner, draw_and_keep, self.limit, mode, delivered=copy_outputs)
        self._calls += 1
        require_unchanged(self.timer.session, tensors)
        return sample, tensors, self._outputs

    def _judge(self, sample: Sample, tensors: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """Compare one timed call's outputs with the oracle. Raises RunnerFault."""
        session, started = self.timer.session, time.monotonic()
        asked, expected = session.task.precision, compute_expected(session, tensors)
        meets = expected.trial(outputs).meets(asked)
        self._oracle_seconds = time.monotonic() - started
        if not meets:
            timed, plain = (functools.partial(self._call_again, tensors, command) for command in (Command.CLOCKED, Command.CALL))
            fresh = self._is_right_on_new_inputs if self._calls > TIMES else None
            raise explain_wrong(f"a timed call (number {self._calls})", expected, outputs, asked, timed, plain, fresh)

    def _is_right_on_new_inputs(self) -> bool:
        """Whether one more plain call, on inputs that it has not seen, is right. Raises RunnerFault."""
        session, tensors = self.timer.session, self._inputs.next()
        outputs = self._call_again(tensors, Command.CALL)
        return compute_expected(session, tensors).trial(outputs).meets(session.task.precision)

    def _call_again(self, tensors: list[torch.Tensor], command: Command) -> list[torch.Tensor]:
        """The results of one more call on these inputs. Raises RunnerFault."""
        mode = FORMS.index(self.forms.running) if command is Command.CLOCKED else 0
        return fresh_call(self.timer.session, self.runner, tensors, mode, self.limit, command=command)

    @property
    def clocks(self) -> tuple[float, float]:
        """(oracle's, card's) milliseconds of the candidate's forward in the last take."""
        return self._weighed[self.strongest].clocks

    @property
    def far_slower(self) -> bool:
        """Whether the candidate is, by the card's clock alone."""
        return self._weighed[self.strongest].far_slower

    @property
    def measurement(self) -> Measurement:
        """The score against the strongest baseline."""
        return self._weighed[self.strongest].measurement

    def raw(self) -> dict[str, Any]:
        """Every sample in milliseconds, in the order in which it was taken."""
        return _list_raw(self)


def _time_alone(time_call: Callable[[str], float], paired: dict[str, Paired], best: str) -> tuple[dict[str, list[float]], str]:
    """Milliseconds of each baseline without the candidate's processes, and the strongest one then; `best` is the strongest in turns."""
    many = max(_MIN_CALLS_ALONE, min(len(paired[best].baseline), _MAX_CALLS_ALONE))
    alone = {name: [time_call(name) for _ in range(many if name == best else _ROUGH_CALLS)] for name in paired}
    strongest = find_strongest_alone(alone, best)
    if strongest != best:  # a few calls may have been lucky
        alone[strongest] += [time_call(strongest) for _ in range(many - _ROUGH_CALLS)]
        strongest = find_strongest_alone(alone, best)
    return alone, strongest


class _Pairs:
    """Pairs of timed calls on the same inputs, whose results are compared.

    `time_candidate` and `time_baseline` are called in turn, either of them first.
    """

    def __init__(self, session: TimingSession, name: str) -> None:
        self._session = session
        self._name = name
        self._screen = session._screens[name]
        self._inputs: list[torch.Tensor] = []
        self._candidate: tuple[Sample, list[torch.Tensor], list[torch.Tensor]] | None = None
        self._waiting = False
        """Whether one of the pair's calls has been taken and the other has not."""

    def time_candidate(self) -> Sample:
        """The candidate's call; one that must be taken again has inputs of its own, since it saw these. Raises RunnerFault."""
        draws = 0

        def draw() -> list[torch.Tensor]:
            nonlocal draws
            draws += 1
            if draws > 1 or not self._waiting:
                return self._session._inputs.next()
            return self._inputs

        self._candidate = self._session._call(draw)
        alone = self._waiting and draws > 1
        if not self._waiting:
            self._inputs = self._candidate[1]
        elif not alone:
            self._compare()
        if alone:
            self._session._judge(*self._candidate)
        self._waiting = not self._waiting
        return self._candidate[0]

    def time_baseline(self) -> Sample:
        """The baseline's call. Raises RunnerFault where the candidate's outputs, now that they can be compared, turn out wrong."""
        if not self._waiting:
            self._inputs = self._session._inputs.next()
        sample = self._session.timer.time_baseline(self._name, lambda: self._inputs, self._session.limit)
        if self._waiting:
            self._compare()
        self._waiting = not self._waiting
        return sample

    def _compare(self) -> None:
        assert self._candidate is not None
        distances = measure_distances(self._candidate[2], self._session.timer.baselines.results)
        if not self._screen.is_usual(distances) or secrets.randbelow(self._session.outputs_per_oracle) == 0:
            self._session._judge(*self._candidate)
            self._screen.accept(distances)


def _describe_takes(session: TimingSession) -> str:
    shares = ", ".join(f"{share:.0%}" for share in session.takes)
    return f"taken {len(session.takes)} times: both clocks agree for {shares} of the calls, control {session.control.ratio:.3f}"


def _list_raw(session: TimingSession) -> dict[str, Any]:
    samples = {name: _list_pairs(session.paired[name], *both) for name, both in session._samples.items()}
    control = {"one_ms": session.control.candidate, "other_ms": session.control.baseline}
    about = {
        "form": session.forms.chosen, "forms_ms": session.forms_ms, "host_ms": session.host_ms,
        "empty_ms": session._empty._asdict(), "clocks_agree": session.takes, "baselines_alone_ms": session._alone,
        "candidate_in_a_row_wall_ms": [sample.wall for sample in session._in_a_row],
        "looks": session._looks, "void_calls": session._void_calls, "discarded_takes": session._discarded,
    }  # fmt: skip
    return {"samples": samples, "control": control, **about, "clocks_before": session.before, "clocks_after": session.after}


def _list_pairs(paired: Paired, candidate: list[Sample], baseline: list[Sample]) -> dict[str, Any]:
    """The pairs that count, and all calls that were taken for them."""
    return {"candidate_ms": paired.candidate, "baseline_ms": paired.baseline, "all": _list_calls(candidate, baseline)}


def _list_calls(candidate: list[Sample], baseline: list[Sample]) -> dict[str, list[Any]]:
    """Calls of both sides as they are written down."""
    return {
        f"{side}_{word}": [getattr(sample, name) for sample in samples]
        for side, samples in (("candidate", candidate), ("baseline", baseline))
        for word, name in (("card_ms", "card"), ("wall_ms", "wall"), ("late_ms", "late"), ("asked_early", "early"))
    }


def _keep(samples: list[Sample], sample: Sample) -> float:
    """Keep a sample; its time by the card's clock."""
    samples.append(sample)
    return sample.card


def write_raw(raw: Path, about: dict[str, Any], sessions: list[TimingSession]) -> None:
    """Write the raw samples: the first session's at the top, every session's below `sessions`."""
    raw.parent.mkdir(parents=True, exist_ok=True)
    first, *_ = all_raw = [session.raw() for session in sessions]
    clock = "card events around forward; bounded by the oracle's clock, from giving the card away until it had it again (wall)"
    raw.write_text(json.dumps(about | {"order": "ABBA", "clock": clock} | first | {"sessions": all_raw}))
