"""One session of timing on a card: takes of a candidate's calls in turn with the baselines', until the clocks agree. Imports torch."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tritonsmith.evaluator.machine import clocks
from tritonsmith.evaluator.oracle.checks.correctness import accepted, reached_class
from tritonsmith.evaluator.oracle.checks.trials import describe_error, judged, require_unchanged
from tritonsmith.evaluator.oracle.handles.runner import Runner, RunnerFault
from tritonsmith.evaluator.oracle.timing.calls import WARM_CALLS, Bench, Draw
from tritonsmith.evaluator.oracle.timing.fresh_inputs import Inputs
from tritonsmith.evaluator.oracle.timing.paired import (
    Empty,
    Paired,
    Sample,
    Weighed,
    abba,
    alone_factor,
    pair_count,
    rounds_of,
    strongest,
    suffices,
    weigh,
)
from tritonsmith.evaluator.oracle.timing.screen import Screen, distances
from tritonsmith.evaluator.schema import Measurement, Status

_SECONDS_PER_BASELINE = {"quick": 1.0, "strict": 2.0}
_MOST_PAIRS = {"quick": 80, "strict": 120}
"""At the noise of the card's clock on an H200 (1 % between calls of 20 us) half of them know the ratio within 0.3 %."""
_CONTROL_PAIRS = 60
_FEW_PAIRS = 16
_ALONE_CALLS, _FEWEST_ALONE, _ROUGH_CALLS = 40, 12, 5
_CLEARLY = 0.95
"""Of a few calls: another baseline that is faster than the strongest by that much was held back."""
_CLOSE = 1.15
"""Baselines within this factor of the strongest get as many pairs as it."""
_ROUNDS = 6
_TAKES = 3
"""Takes of one pair of processes, on other processors, before what the oracle saw stands. A candidate that makes its clock look
wrong can have a session taken again, and so choose among as many takes, whose ratios differ by a few tenths of a percent."""
_JUDGED_PART = 6
"""One timed output in so many is held against an oracle of its own; which ones, nobody knows before. The others: `card_screen`."""


class Session:
    """One pair of processes: the candidate's runner and the baselines' as they are now."""

    def __init__(self, bench: Bench, runner: Runner, profile: str, limit: float, names: tuple[str, ...]) -> None:
        self.bench = bench
        self.runner = runner
        self.limit = limit
        self.notes: list[str] = []
        self._calls = 0
        self._inputs = Inputs(bench.session)
        self._got = [torch.empty_like(slot) for slot in runner.outputs]
        self._screens = {name: Screen() for name in names}
        self._samples: dict[str, tuple[list[Sample], list[Sample]]] = {}
        """By baseline: the candidate's calls and the baseline's, pair by pair."""
        self._discarded: list[dict[str, Any]] = []
        """Takes that were taken again: the calls of the candidate and of the strongest baseline."""
        self._weighed: dict[str, Weighed] = {}
        self.paired: dict[str, Paired] = {}
        self.strongest: str
        self.control: Paired
        """The strongest baseline against itself."""
        self.takes: list[float] = []
        """Share of the candidate's calls for which the card's clock stands, take by take; the last take is the result."""
        self.before = clocks()
        self._alone: dict[str, list[float]] = {}
        """Milliseconds of the baselines without the candidate's processes."""
        bench.accompany(runner)
        processors = os.sched_getaffinity(0)
        with bench.session.measuring():
            for _ in range(WARM_CALLS):
                self._judge(*self._call(self._inputs.next))
            rough = {name: self._rough(name) for name in names}
            best = min(rough.values())
            most, seconds = _MOST_PAIRS[profile], _SECONDS_PER_BASELINE[profile]
            pairs = {name: pair_count(ms, seconds, most if ms <= best * _CLOSE else _FEW_PAIRS) for name, ms in rough.items()}
            control = pair_count(best, seconds, _CONTROL_PAIRS)
            try:
                while len(self.takes) < _TAKES:
                    bench.settle(runner, processors)
                    self._take(pairs, control)
                    if suffices(self._weighed[self.strongest], self.control.ratio):
                        break
            finally:
                bench.unsettle(runner, processors)
            self._looks, self._lost = bench.looks, dict(bench.lost)
            bench.require_idle(limit)
        if len(self.takes) > 1:
            told = ", ".join(f"{one:.0%}" for one in self.takes)
            self.notes.append(f"taken {len(self.takes)} times: both clocks agree for {told} of the calls, control {self.control.ratio:.3f}")
        self.after = clocks()

    def compare_alone(self) -> None:
        """End the candidate's processes and time the baselines once more: whatever slowed them down beside it is over.

        Where they are faster, the score is against these times. Raises InfrastructureError.
        """
        bench, processors, best = self.bench, os.sched_getaffinity(0), self.strongest
        beside = self.paired[best].baseline
        self.runner.kill()
        bench.accompany(None)
        counts = {name: _ROUGH_CALLS for name in self.paired} | {best: max(_FEWEST_ALONE, min(len(beside), _ALONE_CALLS))}
        with bench.session.measuring():
            try:
                bench.resettle()
                for name, count in counts.items():
                    once = bench.baseline(name, self._inputs.next, self.limit)
                    self._alone[name] = [once().card for _ in range(count)]
            finally:
                bench.unsettle(self.runner, processors)
        alone = {name: median(samples) for name, samples in self._alone.items()}
        least = min(alone.values())
        factor = alone_factor(median(beside), least if least < _CLEARLY * alone[best] else alone[best])
        if factor < 1.0:
            self.notes.append(f"baselines take {1.0 - factor:.1%} less once the candidate's processes are gone: the score is against that")
            self._weighed = {name: one.scaled(factor) for name, one in self._weighed.items()}
            self.paired = {name: one.paired for name, one in self._weighed.items()}

    def _rough(self, name: str) -> float:
        once = self.bench.baseline(name, self._inputs.next, self.limit)
        return median(once().card for _ in range(WARM_CALLS))

    def _take(self, pairs: dict[str, int], control: int) -> None:
        """In rounds, so that a noisy second of the machine falls on every baseline and not on one."""
        plan = {name: rounds_of(count, _ROUNDS) for name, count in pairs.items()}
        if self.takes:
            self._discarded.append({"baseline": self.strongest, **_told(*self._samples[self.strongest])})
        self._samples = {name: ([], []) for name in pairs}
        empties = []
        for turn in range(_ROUNDS):
            empties.append(self.bench.empty(self.limit))
            for name, parts in plan.items():
                if turn < len(parts):
                    self._take_pairs(name, parts[turn])
        self._empty = Empty(median(one.early for one in empties), median(one.late for one in empties))
        self._weighed = {name: weigh(mine, theirs, self._empty) for name, (mine, theirs) in self._samples.items()}
        self.paired = {name: one.paired for name, one in self._weighed.items()}
        self.strongest = strongest(self.paired)
        self.takes.append(self._weighed[self.strongest].share)
        once = self.bench.baseline(self.strongest, self._inputs.next, self.limit)
        self.control = abba(lambda: once().card, lambda: once().card, control)

    def _take_pairs(self, name: str, count: int) -> None:
        pairs = _Pairs(self, name)
        mine, theirs = self._samples[name]
        abba(lambda: _kept(mine, pairs.candidate()), lambda: _kept(theirs, pairs.baseline()), count)

    def _call(self, draw: Draw) -> tuple[Sample, list[torch.Tensor], list[torch.Tensor]]:
        """One timed call: its time, its inputs, which must come back unchanged, and its outputs, until the next one. Raises RunnerFault."""
        tensors: list[torch.Tensor] = []

        def drawn() -> list[torch.Tensor]:
            tensors[:] = draw()
            return tensors

        def copied() -> None:  # now: what is written later comes too late
            for mine, slot in zip(self._got, self.runner.outputs, strict=True):
                mine.copy_(slot)

        took = self.bench.timed(self.runner, drawn, self.limit, delivered=copied)
        self._calls += 1
        require_unchanged(self.bench.session, tensors)
        return took, tensors, self._got

    def _judge(self, took: Sample, tensors: list[torch.Tensor], got: list[torch.Tensor]) -> None:
        """Hold one timed call's outputs against the oracle. Raises RunnerFault."""
        session = self.bench.session
        asked, trial = session.task.precision, judged(session, tensors, got)
        if not accepted(reached_class([trial]), asked):
            said = f"a timed call (number {self._calls}) gave a wrong result, the checked calls did not"
            raise RunnerFault(Status.CHEATING, f"{said}: {describe_error([trial], asked)}")

    @property
    def clocks(self) -> tuple[float, float]:
        """(oracle's, card's) milliseconds of the candidate's forward in the last take."""
        return self._weighed[self.strongest].clocks

    @property
    def far_slower(self) -> bool:
        """Whether it is by the card's clock alone."""
        return self._weighed[self.strongest].far_slower

    @property
    def measurement(self) -> Measurement:
        """The score against the strongest baseline."""
        return self._weighed[self.strongest].measurement

    def raw(self) -> dict[str, Any]:
        """Every sample in milliseconds, in the order in which it was taken."""
        samples = {
            name: {
                "candidate_ms": self.paired[name].candidate, "baseline_ms": self.paired[name].baseline, "all": _told(mine, theirs),
            }
            for name, (mine, theirs) in self._samples.items()
        }  # fmt: skip
        control = {"one_ms": self.control.candidate, "other_ms": self.control.baseline}
        told = {
            "empty_ms": self._empty._asdict(), "clocks_agree": self.takes, "baselines_alone_ms": self._alone,
            "looks": self._looks, "void_calls": self._lost, "discarded_takes": self._discarded,
        }  # fmt: skip
        return {"samples": samples, "control": control, **told, "clocks_before": self.before, "clocks_after": self.after}


class _Pairs:
    """Pairs of timed calls on the same inputs, whose results are compared: `candidate` and `baseline` in turn, in either order."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._screen = session._screens[name]
        self._theirs = session.bench.baseline(name, lambda: self._inputs, session.limit)
        self._inputs: list[torch.Tensor] = []
        self._mine: tuple[Sample, list[torch.Tensor], list[torch.Tensor]] | None = None
        self._waiting = False
        """Whether one of the pair's calls has been taken and the other has not."""

    def candidate(self) -> Sample:
        """The candidate's call; one that must be taken again has inputs of its own, since it saw these. Raises RunnerFault."""
        draws = 0

        def draw() -> list[torch.Tensor]:
            nonlocal draws
            draws += 1
            if draws > 1 or not self._waiting:
                return self._session._inputs.next()
            return self._inputs

        self._mine = self._session._call(draw)
        alone = self._waiting and draws > 1
        if not self._waiting:
            self._inputs = self._mine[1]
        elif not alone:
            self._compare()
        if alone:
            self._session._judge(*self._mine)
        self._waiting = not self._waiting
        return self._mine[0]

    def baseline(self) -> Sample:
        """The baseline's call. Raises RunnerFault where the candidate's outputs, now that they can be compared, turn out wrong."""
        if not self._waiting:
            self._inputs = self._session._inputs.next()
        took = self._theirs()
        if self._waiting:
            self._compare()
        self._waiting = not self._waiting
        return took

    def _compare(self) -> None:
        assert self._mine is not None
        found = distances(self._mine[2], self._session.bench.baseline_outputs)
        if not self._screen.usual(found) or secrets.randbelow(_JUDGED_PART) == 0:
            self._session._judge(*self._mine)
            self._screen.accept(found)


def _told(mine: list[Sample], theirs: list[Sample]) -> dict[str, list[Any]]:
    """Calls of both sides as they are written down."""
    return {
        f"{side}_{word}": [getattr(one, name) for one in calls]
        for side, calls in (("candidate", mine), ("baseline", theirs))
        for word, name in (("card_ms", "card"), ("wall_ms", "wall"), ("late_ms", "late"), ("asked_early", "early"))
    }


def _kept(samples: list[Sample], sample: Sample) -> float:
    """Keep a sample; its time by the card's clock."""
    samples.append(sample)
    return sample.card


def write_raw(raw: Path, about: dict[str, Any], sessions: list[Session]) -> None:
    """The raw samples: the first session's at the top, every session's below `sessions`."""
    raw.parent.mkdir(parents=True, exist_ok=True)
    first, *_ = all_raw = [session.raw() for session in sessions]
    clock = "card events around forward; bounded by the oracle's clock, from giving the card away until it had it again (wall)"
    raw.write_text(json.dumps(about | {"order": "ABBA", "clock": clock} | first | {"sessions": all_raw}))
