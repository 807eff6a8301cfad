"""Paired timing on a card: a candidate's runner against the baselines' process, both under the oracle's clock. Imports torch.

One timed call, the same for both sides: fresh inputs go into the slots and the outputs are poisoned, by the oracle; the runner overwrites
the L2 cache through the driver, which also takes up waking it and the card's switch between processes; then the oracle rings and takes
the time until the echo. Meanwhile nothing of the candidate runs in the runner's main thread (`quiet`). A candidate with threads of its
own is stopped until the bell rings, and waking it counts. Delivery stands outside the time; its excess over the honest side's is added.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

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
from tritonsmith.evaluator.timing import Paired, abba, control_holds, pair_count, rounds_of, strongest
from tritonsmith.evaluator.trials import judged, require_unchanged, snapshot
from tritonsmith.evaluator.wire import Command

_BUILD_SECONDS = 300.0  # torch.compile of a large network
_SECONDS_PER_BASELINE = {"quick": 1.0, "strict": 2.0}
_MOST_PAIRS = {"quick": 100, "strict": 200}
"""At the noise seen on an H200 (3 % between pairs of 0.1 ms calls) a hundred pairs find a gain of 3 % in 99 of 100 measurements."""
_CONTROL_PAIRS = 100
_FEW_PAIRS = 24
_CLOSE = 1.15
"""Baselines within this factor of the strongest get as many pairs as it."""
_ROUNDS = 6
_INPUT_SETS = 3
_WARM_CALLS = 5
_SETTLING_CALLS = 3
"""Calls of each side, not counted, whenever processors or baselines changed."""
_CLOCKED_CALLS = 9
_SLACK_MS = 0.05
_FEWEST_PROCESSORS = 6
_FRESH_PART = 256
"""One floating value in so many is exchanged for another before each timed call: no content comes twice."""
_CHECKED_PART = 6
"""One timed output in so many is held against an oracle of its own; which ones, nobody knows before."""

Call = Callable[[], float]


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


def places() -> list[int] | None:
    """Processors for the oracle and the two runners, no two of which share a core in any usual numbering; None where there are few."""
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < _FEWEST_PROCESSORS:
        return None
    return [mine[2], mine[7], mine[12 % len(mine)]] if len(mine) > 12 else [mine[0], mine[2], mine[-1]]


class Bench:
    """Times calls of one task; keeps the baselines' process alive between candidates.

    Args:
        session: the task on the card.
        modes: settings of baselines that were chosen before.
    """

    def __init__(self, session: TaskSession, modes: dict[str, int] | None = None) -> None:
        self.session = session
        self.modes = dict(modes or {})
        self.notes: list[str] = []
        self._baselines: Runner | None = None
        self._unopened: tuple[str, ...] = ()
        self._honest: deque[float] = deque(maxlen=101)
        """Milliseconds that delivery took the baselines' process."""
        self._flush: torch.Tensor | None = None
        self._places = places()

    def close(self) -> None:
        """End the baselines' process."""
        if self._baselines:
            self._baselines.close()
            self._baselines = None

    @contextlib.contextmanager
    def in_place(self, runner: Runner) -> Iterator[None]:
        """While it is open, oracle and runners keep to processors of their own, and nothing else of ours computes."""
        before = os.sched_getaffinity(0)
        with self.session.measuring():
            try:
                if self._places:
                    os.sched_setaffinity(0, {self._places[0]})
                yield
            finally:
                os.sched_setaffinity(0, before)
                for one in (runner, self._baselines):
                    if one is not None:
                        one.run_on(before)

    def change_places(self, runner: Runner, turn: int) -> None:
        """Give the runners their processors; they change from turn to turn, so that neither side always has the better one."""
        chosen = self._places
        if chosen and self._baselines is not None:
            first, second = chosen[1:] if turn % 2 else reversed(chosen[1:])
            runner.run_on({first})
            self._baselines.run_on({second})

    # ---- one timed call

    def timed(self, runner: Runner, tensors: list[torch.Tensor], timeout: float, mode: int = 0, command: Command = Command.CALL) -> float:
        """Milliseconds of one call on a cold cache and inputs that the runner has not seen. Raises RunnerFault."""
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
        took = runner.command(command, mode, timeout=timeout, stopped=threads)
        delivery = runner.command(Command.DELIVER, timeout=timeout)
        if runner is self._baselines:
            self._honest.append(delivery)
            return took
        usual = sorted(self._honest)[len(self._honest) // 2] if self._honest else 0.0
        excess = delivery - usual
        return took + excess if excess > max(_SLACK_MS, usual / 2) else took

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
            self._baselines = Runner(self.session.setup, "reference")
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
                took = min(self.timed(runner, inputs.next(), _BUILD_SECONDS, mode) for _ in range(_WARM_CALLS))
            except RunnerFault as fault:
                self.notes.append(f"baseline {name} could not be had: {str(fault)[:200]}")
                return
            if best is None or took < best[0]:
                best = (took, mode)
        if best:
            self.modes[name] = best[1]

    def baseline(self, name: str, inputs: Inputs, limit: float, command: Command = Command.CALL) -> Call:
        """Timed calls of one baseline; what goes wrong there is never the candidate's fault."""

        def once() -> float:
            assert self._baselines is not None
            try:
                return self.timed(self._baselines, inputs.next(), limit, self.modes[name], command)
            except RunnerFault as fault:
                self.close()
                raise InfrastructureError(f"a baseline failed while it was timed: {fault}") from fault

        return once

    @property
    def baselines_device_ms(self) -> float:
        """The card's clock in the last CLOCKED call of a baseline."""
        assert self._baselines is not None
        return self._baselines.device_ms


class Session:
    """One pair of processes: the candidate's runner and the baselines' as they are now."""

    def __init__(self, bench: Bench, runner: Runner, profile: str, limit: float, names: tuple[str, ...]) -> None:
        self.bench = bench
        self.runner = runner
        self.limit = limit
        self.notes: list[str] = []
        self._calls = 0
        self._inputs = Inputs(bench.session)
        self.before = clocks()
        bench.change_places(runner, 0)
        for _ in range(_WARM_CALLS):
            self.candidate()
        rough = {name: median(bench.baseline(name, self._inputs, limit)() for _ in range(_WARM_CALLS)) for name in names}
        best = min(rough.values())
        most, seconds = _MOST_PAIRS[profile], _SECONDS_PER_BASELINE[profile]
        self.paired = self._take(
            {name: pair_count(ms, seconds, most if ms <= best * _CLOSE else _FEW_PAIRS) for name, ms in rough.items()}
        )
        self.strongest = strongest(self.paired)
        self.control = self._control(pair_count(best, seconds, _CONTROL_PAIRS))
        if not control_holds(self.control.ratio):  # something else used the machine: once more, and then it stands as it is
            self.notes.append(f"a session was taken again: the control read {self.control.ratio:.3f}")
            self.paired = self._take({name: len(pair.candidate) for name, pair in self.paired.items()})
            self.control = self._control(pair_count(best, seconds, _CONTROL_PAIRS))
        self.after = clocks()

    def _take(self, counts: dict[str, int]) -> dict[str, Paired]:
        """In rounds, so that a noisy second of the machine falls on every baseline and not on one."""
        plan = {name: rounds_of(count, _ROUNDS) for name, count in counts.items()}
        paired: dict[str, Paired] = {}
        for turn in range(_ROUNDS):
            self.bench.change_places(self.runner, turn)
            for name, parts in plan.items():
                if turn < len(parts):
                    once = self.bench.baseline(name, self._inputs, self.limit)
                    for call in (self.candidate, once) * _SETTLING_CALLS:
                        call()
                    taken = abba(self.candidate, once, parts[turn]).in_group(turn % 2)
                    paired[name] = paired[name] + taken if name in paired else taken
        return paired

    def _control(self, pairs: int) -> Paired:
        once = self.bench.baseline(self.strongest, self._inputs, self.limit)
        return abba(once, once, pairs)

    def candidate(self, command: Command = Command.CALL) -> float:
        """One timed call; inputs must come back unchanged, and some outputs, nobody knows which, are judged. Raises RunnerFault."""
        session = self.bench.session
        tensors = self._inputs.next()
        took = self.bench.timed(self.runner, tensors, self.limit, command=command)
        self._calls += 1
        require_unchanged(session, tensors)
        if self._calls <= _WARM_CALLS or secrets.randbelow(_CHECKED_PART) == 0:
            trial = judged(session, tensors, snapshot(self.runner))
            if not accepted(reached_class([trial]), session.task.precision):
                raise RunnerFault(Status.CHEATING, f"a timed call (number {self._calls}) gave a wrong result, the checked calls did not")
        return took

    def clocks_of_both(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """(wall, card) milliseconds of the candidate and of the strongest baseline: medians of calls that both clocks saw."""
        once = self.bench.baseline(self.strongest, self._inputs, self.limit, Command.CLOCKED)
        mine, theirs = [], []
        for _ in range(_CLOCKED_CALLS):
            mine.append((self.candidate(Command.CLOCKED), self.runner.device_ms))
            theirs.append((once(), self.bench.baselines_device_ms))
        return _medians(mine), _medians(theirs)

    @property
    def measurement(self) -> Measurement:
        """The score against the strongest baseline."""
        return measurement_of(self.paired[self.strongest])

    def raw(self) -> dict[str, Any]:
        """Every sample in milliseconds, in the order in which it was taken."""
        samples = {
            name: {"candidate_ms": pair.candidate, "baseline_ms": pair.baseline, "group": pair.group} for name, pair in self.paired.items()
        }
        control = {"one_ms": self.control.candidate, "other_ms": self.control.baseline}
        return {"samples": samples, "control": control, "clocks_before": self.before, "clocks_after": self.after}


def _medians(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return median(wall for wall, _ in pairs), median(card for _, card in pairs)


def measurement_of(paired: Paired) -> Measurement:
    """Ratio, interval and count of pairs."""
    return Measurement(ratio=paired.ratio, interval=paired.interval(), pairs=len(paired.candidate))


def write_raw(raw: Path, about: dict[str, Any], sessions: list[Session]) -> None:
    """The raw samples: the first session's at the top, every session's below `sessions`."""
    raw.parent.mkdir(parents=True, exist_ok=True)
    first, *_ = all_raw = [session.raw() for session in sessions]
    clock = "oracle wall clock; fresh inputs and L2 overwritten before each call"
    raw.write_text(json.dumps(about | {"order": "ABBA", "clock": clock} | first | {"sessions": all_raw}))
