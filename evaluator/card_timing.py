"""Paired timing on a card: a candidate's runner against the baselines' process, under two clocks. Imports torch.

One timed call, the same for both sides: fresh inputs go into the slots and the outputs are poisoned, by the oracle; the runner overwrites
the L2 cache through the driver; then the oracle rings, and the runner queues forward behind a kernel that holds the card (`card_hold`),
waits for the card and echoes. The card's events around forward give the sample. The oracle's time from ring to echo, less what such a call
costs without forward on a quiet host, bounds it: where it reads longer, the runner moves to another processor and the session is taken
again; where it still does, the difference is added to every sample of the candidate. So a candidate that tampers with its own process
gains no more than what goes unseen between the clocks (`timing.UNSEEN_MS`, `UNSEEN_PART`).

Between calls nothing of the candidate runs in the runner's main thread (`quiet`). A candidate with threads of its own is stopped until
the bell rings, and waking it counts: its samples are the oracle's alone. Delivery stands outside the time; its excess over the honest
side's is added.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch

from tritonsmith.evaluator.baselines import NAMES, mode_number
from tritonsmith.evaluator.correctness import accepted, reached_class
from tritonsmith.evaluator.cuda_memory import reset_persisting_cache
from tritonsmith.evaluator.distributions import distinct
from tritonsmith.evaluator.environment import clocks
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.runner_client import Runner, RunnerFault
from tritonsmith.evaluator.schema import Measurement, PrecisionClass, Status
from tritonsmith.evaluator.session import TaskSession
from tritonsmith.evaluator.timing import Paired, abba, beyond, control_holds, pair_count, rounds_of, strongest
from tritonsmith.evaluator.trials import judged, require_unchanged, snapshot
from tritonsmith.evaluator.wire import Command

_BUILD_SECONDS = 300.0  # torch.compile of a large network
_SECONDS_PER_BASELINE = {"quick": 1.0, "strict": 2.0}
_MOST_PAIRS = {"quick": 60, "strict": 120}
"""At the noise of the card's clock on an H200 (1 % between calls of 20 us) sixty pairs know the ratio within 0.3 %."""
_CONTROL_PAIRS = 60
_FEW_PAIRS = 16
_CLOSE = 1.15
"""Baselines within this factor of the strongest get as many pairs as it."""
_ROUNDS = 6
_INPUT_SETS = 3
_WARM_CALLS = 5
_HELD_CALLS = 8
"""Calls without forward, of each side and in each round."""
_SLACK_MS = 0.05
_TAKES = 4
"""Takes of one pair of processes, on other processors, before what the clocks differ by stands. A candidate that makes its clock look
wrong can have a session taken again, and so choose among as many takes, whose ratios differ by a few tenths of a percent."""
_QUIET = 10
"""Percentile of host time that counts: what disturbs a host makes calls longer, never shorter."""
_FRESH_PART = 256
"""One floating value in so many is exchanged for another before each timed call: no content comes twice."""
_CHECKED_PART = 6
"""One timed output in so many is held against an oracle of its own; which ones, nobody knows before."""


class Sample(NamedTuple):
    """Milliseconds of one timed call."""

    wall: float
    """By the oracle's clock, from ring to echo."""
    card: float
    """By the card's events around forward, as the runner tells it; of a runner that stood still, the oracle's less what else it takes."""


Call = Callable[[], Sample]


class Inputs:
    """An endless stream of inputs, none of them seen before, at the price of a copy."""

    def __init__(self, session: TaskSession) -> None:
        self._session = session
        self._sets = [session.draw("own") for _ in range(_INPUT_SETS)]
        self._floating = any(tensor.is_floating_point() for tensor in self._sets[0])
        self._turn = 0

    def next(self) -> list[torch.Tensor]:
        """Tensors for the slots; where no input is floating they are drawn anew."""
        if not self._floating:
            return self._session.draw("own")
        self._turn = (self._turn + 1) % _INPUT_SETS
        self._sets[self._turn] = [_freshened(tensor) for tensor in self._sets[self._turn]]
        return self._sets[self._turn]


def _freshened(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in which one value in 256 is replaced by that of another random place, so that sums and hashes move as well."""
    once = distinct(tensor)
    if not tensor.is_floating_point() or once.numel() < 2:
        return tensor.clone()
    old = once.reshape(-1)
    flat, count = old.clone(), old.numel()
    places = torch.arange(secrets.randbelow(min(_FRESH_PART, count)), count, _FRESH_PART, device=flat.device)
    flat[places] = old[(places + 1 + secrets.randbelow(count - 1)) % count]
    return flat.view(once.shape).expand(tensor.shape)


class Bench:
    """Times calls of one task; keeps the baselines' process alive between candidates.

    Args:
        session: the task on the card.
        modes: settings of baselines that were chosen before.
        besides: what a call took without forward, so far (milliseconds).
    """

    def __init__(self, session: TaskSession, modes: dict[str, int] | None = None, besides: float = math.inf) -> None:
        self.session = session
        self.modes = dict(modes or {})
        self.notes: list[str] = []
        self._baselines: Runner | None = None
        self._unopened: tuple[str, ...] = ()
        self._honest: deque[float] = deque(maxlen=101)
        """Milliseconds that delivery took the baselines' process."""
        self._flush: torch.Tensor | None = None
        self.without_forward = besides

    def close(self) -> None:
        """End the baselines' process."""
        if self._baselines:
            self._baselines.close()
            self._baselines = None

    # ---- one timed call

    def timed(self, runner: Runner, tensors: list[torch.Tensor], timeout: float, mode: int = 0) -> Sample:
        """One call on a cold cache and inputs that the runner has not seen. Raises RunnerFault."""
        threads = runner is not self._baselines and runner.has_more_threads()
        if threads:
            runner.pause()
        self.session.place(tensors)
        runner.poison()
        self.session.sync()  # else the poison could land on what the candidate delivers
        if threads:
            self._overwrite_cache()
        else:
            runner.command(Command.FLUSH, timeout=timeout)
        wall = runner.command(Command.CLOCKED, mode, timeout=timeout, stopped=threads)
        card = runner.device_ms
        delivery = runner.command(Command.DELIVER, timeout=timeout)
        if runner is self._baselines:
            self._honest.append(delivery)
            return Sample(wall, card)
        usual = sorted(self._honest)[len(self._honest) // 2] if self._honest else 0.0
        excess = delivery - usual
        if excess > max(_SLACK_MS, usual / 2):
            wall += excess
        if threads and self.without_forward < math.inf:  # the card's clock does not see the waking, which counts
            card = wall - self.without_forward
        return Sample(wall, card)

    def _overwrite_cache(self) -> None:
        """From this side, for a runner that stands still."""
        if self._flush is None:
            self._flush = torch.empty(2 * self.session.hardware.l2_bytes, dtype=torch.uint8, device="cuda")
            reset_persisting_cache()
        self._flush.fill_(1)
        self.session.sync()

    # ---- baselines

    def begin(self, names: tuple[str, ...] = NAMES) -> None:
        """Start the baselines' process, which builds these baselines while something else goes on; `open_baselines` waits for it."""
        if self._baselines is None:
            self._baselines = self.session.new_runner("reference", self.session.setup)
            modes = [mode for name in names for mode in self._settings(name)]
            weights = self.session.copied_weights()  # the candidate's may be drawn again while this process starts
            self._baselines.begin(task=self.session.task.model_dump(mode="json"), build=modes, weights=str(weights))
            self._unopened = names

    def open_baselines(self) -> None:
        """Wait until the baselines are built, and keep the faster setting of each. Raises InfrastructureError."""
        self.begin()
        assert self._baselines is not None
        try:
            self._baselines.wait_ready(_BUILD_SECONDS)
        except RunnerFault as fault:
            self.close()
            raise InfrastructureError(f"the baselines' process did not start: {fault}") from fault
        names, self._unopened = self._unopened, ()
        inputs = Inputs(self.session) if names else None
        for name in names:
            assert inputs is not None
            self._choose_mode(self._baselines, name, inputs)

    def _settings(self, name: str) -> list[int]:
        """Where TF32 is allowed both settings count: a stricter one is a fair bar as well. Once chosen, it stays."""
        settings = (False,) if self.session.task.precision is PrecisionClass.IEEE else (False, True)
        return [self.modes[name]] if name in self.modes else [mode_number(name, tf32) for tf32 in settings]

    def _choose_mode(self, runner: Runner, name: str, inputs: Inputs) -> None:
        best: tuple[float, int] | None = None
        for mode in self._settings(name):
            try:
                runner.command(Command.CALL, mode, timeout=_BUILD_SECONDS)
                took = min(self.timed(runner, inputs.next(), _BUILD_SECONDS, mode).card for _ in range(_WARM_CALLS))
            except RunnerFault as fault:
                self.notes.append(f"baseline {name} could not be had: {str(fault)[:200]}")
                return
            if best is None or took < best[0]:
                best = (took, mode)
        if best:
            self.modes[name] = best[1]

    def baseline(self, name: str, inputs: Inputs, limit: float) -> Call:
        """Timed calls of one baseline; what goes wrong there is never the candidate's fault."""

        def once() -> Sample:
            assert self._baselines is not None
            try:
                return self.timed(self._baselines, inputs.next(), limit, self.modes[name])
            except RunnerFault as fault:
                self.close()
                raise InfrastructureError(f"a baseline failed while it was timed: {fault}") from fault

        return once

    def besides(self, limit: float) -> float:
        """Milliseconds from ring to echo that a timed call takes without forward, at the quietest so far. Raises InfrastructureError."""
        runner = self._baselines
        assert runner is not None
        taken = []
        try:
            for _ in range(_HELD_CALLS):
                runner.command(Command.FLUSH, timeout=limit)
                taken.append(runner.command(Command.HOLD, timeout=limit))
        except RunnerFault as fault:
            self.close()
            raise InfrastructureError(f"the baselines' process failed while it was timed: {fault}") from fault
        self.without_forward = min(self.without_forward, float(np.percentile(taken, _QUIET)))
        return self.without_forward


class Session:
    """One pair of processes: the candidate's runner and the baselines' as they are now."""

    def __init__(self, bench: Bench, runner: Runner, profile: str, limit: float, names: tuple[str, ...]) -> None:
        self.bench = bench
        self.runner = runner
        self.limit = limit
        self.notes: list[str] = []
        self._calls = 0
        self._inputs = Inputs(bench.session)
        self._samples: dict[str, tuple[list[Sample], list[Sample]]] = {}
        """By baseline: the candidate's calls and the baseline's, pair by pair."""
        self.takes: list[float] = []
        """What the clocks differ by, in milliseconds, take by take; the last one stands."""
        self.before = clocks()
        processors = os.sched_getaffinity(0)
        with bench.session.measuring():
            for _ in range(_WARM_CALLS):
                self.candidate()
            rough = {name: self._rough(name) for name in names}
            best = min(rough.values())
            most, seconds = _MOST_PAIRS[profile], _SECONDS_PER_BASELINE[profile]
            counts = {name: pair_count(ms, seconds, most if ms <= best * _CLOSE else _FEW_PAIRS) for name, ms in rough.items()}
            pairs = pair_count(best, seconds, _CONTROL_PAIRS)
            while len(self.takes) < _TAKES:
                self._take(counts, pairs)
                if self.unseen == 0.0 and control_holds(self.control.ratio):
                    break
                runner.run_on({secrets.choice(sorted(processors))})
        runner.run_on(processors)
        if len(self.takes) > 1:
            told = ", ".join(f"{1e3 * one:.0f}" for one in self.takes)
            self.notes.append(f"taken {len(self.takes)} times: clocks {told} us apart, the control reads {self.control.ratio:.3f} at last")
        self.after = clocks()

    def _rough(self, name: str) -> float:
        once = self.bench.baseline(name, self._inputs, self.limit)
        return median(once().card for _ in range(_WARM_CALLS))

    def _take(self, counts: dict[str, int], control: int) -> None:
        """In rounds, so that a noisy second of the machine falls on every baseline and not on one."""
        plan = {name: rounds_of(count, _ROUNDS) for name, count in counts.items()}
        self._samples = {name: ([], []) for name in counts}
        for turn in range(_ROUNDS):
            self.besides = self.bench.besides(self.limit)
            for name, parts in plan.items():
                if turn < len(parts):
                    self._take_pairs(name, parts[turn])
        wall, card = self.clocks
        self.takes.append(wall - card)
        self.unseen = beyond(wall, card)
        self.paired = {
            name: Paired(tuple(one.card for one in mine), tuple(one.card for one in theirs)).longer(self.unseen)
            for name, (mine, theirs) in self._samples.items()
        }
        self.strongest = strongest(self.paired)
        once = self.bench.baseline(self.strongest, self._inputs, self.limit)
        self.control = abba(lambda: once().card, lambda: once().card, control)

    def _take_pairs(self, name: str, count: int) -> None:
        mine, theirs = self._samples[name]
        once = self.bench.baseline(name, self._inputs, self.limit)
        abba(lambda: _kept(mine, self.candidate()), lambda: _kept(theirs, once()), count)

    def _clocks(self, samples: list[Sample]) -> tuple[float, float]:
        """(oracle's, card's) milliseconds of forward; by the oracle's on a quiet host."""
        card = median(one.card for one in samples)
        return float(np.percentile([one.wall - one.card for one in samples], _QUIET)) - self.besides + card, card

    def candidate(self) -> Sample:
        """One timed call; inputs must come back unchanged, and some outputs, nobody knows which, are judged. Raises RunnerFault."""
        session = self.bench.session
        tensors = self._inputs.next()
        took = self.bench.timed(self.runner, tensors, self.limit)
        self._calls += 1
        require_unchanged(session, tensors)
        if self._calls <= _WARM_CALLS or secrets.randbelow(_CHECKED_PART) == 0:
            trial = judged(session, tensors, snapshot(self.runner))
            if not accepted(reached_class([trial]), session.task.precision):
                raise RunnerFault(Status.CHEATING, f"a timed call (number {self._calls}) gave a wrong result, the checked calls did not")
        return took

    @property
    def clocks(self) -> tuple[float, float]:
        """(oracle's, card's) milliseconds of the candidate's forward, over all its calls of the last take."""
        return self._clocks([one for mine, _ in self._samples.values() for one in mine])

    @property
    def measurement(self) -> Measurement:
        """The score against the strongest baseline."""
        return measurement_of(self.paired[self.strongest])

    def raw(self) -> dict[str, Any]:
        """Every sample in milliseconds, in the order in which it was taken."""
        samples = {
            name: {
                "candidate_ms": self.paired[name].candidate, "baseline_ms": self.paired[name].baseline,
                "candidate_wall_ms": [one.wall for one in mine], "baseline_wall_ms": [one.wall for one in theirs],
            }
            for name, (mine, theirs) in self._samples.items()
        }  # fmt: skip
        control = {"one_ms": self.control.candidate, "other_ms": self.control.baseline}
        told = {"without_forward_ms": self.besides, "clocks_differ_ms": self.takes, "added_to_candidate_ms": self.unseen}
        return {"samples": samples, "control": control, **told, "clocks_before": self.before, "clocks_after": self.after}


def _kept(samples: list[Sample], sample: Sample) -> float:
    """Keep a sample; its time by the card's clock."""
    samples.append(sample)
    return sample.card


def measurement_of(paired: Paired) -> Measurement:
    """Ratio, interval and count of pairs."""
    return Measurement(ratio=paired.ratio, interval=paired.interval(), pairs=len(paired.candidate))


def write_raw(raw: Path, about: dict[str, Any], sessions: list[Session]) -> None:
    """The raw samples: the first session's at the top, every session's below `sessions`."""
    raw.parent.mkdir(parents=True, exist_ok=True)
    first, *_ = all_raw = [session.raw() for session in sessions]
    clock = "card events around forward, behind a kernel that holds the card; bounded by the oracle's clock (wall)"
    raw.write_text(json.dumps(about | {"order": "ABBA", "clock": clock} | first | {"sessions": all_raw}))
