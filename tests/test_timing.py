"""Paired timing: drift cancels, equal kernels come out equal, and the count of pairs does not depend on the candidate."""

import random
from typing import Any, cast

from tritonsmith.evaluator.card_timing import Bench, Sample, Session
from tritonsmith.evaluator.schema import Comparison
from tritonsmith.evaluator.timing import abba, beyond, compare, pair_count, rounds_of, strongest
from tritonsmith.evaluator.wire import Command


def clock(base: float, state: dict[str, float], rng: random.Random):  # type: ignore[no-untyped-def]
    def once() -> float:
        state["drift"] *= 1.004  # the card warms up
        return base * state["drift"] * rng.uniform(0.995, 1.005)

    return once


def test_drift_does_not_make_equal_kernels_differ() -> None:
    state, rng = {"drift": 1.0}, random.Random(1)
    paired = abba(clock(1.0, state, rng), clock(1.0, state, rng), 40)
    assert state["drift"] > 1.3  # it drifted by a third during the run
    assert abs(paired.ratio - 1) < 0.01
    low, high = paired.interval()
    assert low <= paired.ratio <= high


def test_a_true_gain_is_seen_through_drift() -> None:
    state, rng = {"drift": 1.0}, random.Random(2)
    paired = abba(clock(1.0, state, rng), clock(1.1, state, rng), 40)
    assert paired.interval()[0] > 1.05


def test_samples_belong_to_the_side_that_made_them() -> None:
    paired = abba(lambda: 1.0, lambda: 3.0, 12)
    assert set(paired.candidate) == {1.0} and set(paired.baseline) == {3.0}
    assert strongest({"slow": paired, "fast": abba(lambda: 1.0, lambda: 2.0, 12)}) == "fast"


def test_pairs_are_even_and_bounded() -> None:
    counts = [pair_count(ms, 0.5) for ms in (0.001, 1.0, 25.0, 4000.0)]
    assert all(count % 2 == 0 and 12 <= count <= 60 for count in counts)
    assert counts == sorted(counts, reverse=True)


def test_rounds_share_the_pairs_out_evenly() -> None:
    assert rounds_of(40, 3) == [14, 14, 12]
    for pairs in (2, 12, 58, 200):
        parts = rounds_of(pairs, 5)
        assert sum(parts) == pairs and all(part % 2 == 0 for part in parts) and max(parts) - min(parts) <= 2


class TimedRunner:
    """Answers each command with a fixed number of milliseconds; one with threads of its own must stand still while inputs come."""

    def __init__(self, *, threads: bool = False, **milliseconds: float) -> None:
        self.milliseconds = milliseconds
        self.threads = threads
        self.stopped = False

    def command(self, command: Command, argument: int = 0, *, timeout: float, stopped: bool = False) -> float:
        assert self.stopped is stopped
        self.stopped = False
        return self.milliseconds[command.name.lower()]

    @property
    def device_ms(self) -> float:
        return self.milliseconds["card"]

    def has_more_threads(self) -> bool:
        return self.threads

    def pause(self) -> None:
        self.stopped = True

    def poison(self) -> None:
        assert self.stopped is self.threads


class Placed:
    """Stands for a session: inputs may come into the slots of a runner with threads only while nothing of it runs."""

    def __init__(self) -> None:
        self.runner: TimedRunner | None = None
        self.places = 0

    def place(self, tensors: list[Any]) -> None:
        assert self.runner is not None and self.runner.stopped is self.runner.threads
        self.places += 1

    def sync(self) -> None:
        pass


def timed(**about: Any) -> Sample:
    placed = Placed()
    bench = Bench(cast(Any, placed), besides=0.5)
    bench._overwrite_cache = lambda: None  # type: ignore[method-assign]
    bench._baselines = cast(Any, TimedRunner(flush=0.1, clocked=5.5, card=5.0, deliver=0.2))
    placed.runner = cast(Any, bench._baselines)
    for _ in range(5):
        assert bench.timed(cast(Any, placed.runner), [], 1.0) == (5.5, 5.0)
    placed.runner = TimedRunner(**about)
    took = bench.timed(cast(Any, placed.runner), [], 1.0)
    assert placed.places == 6
    return took


def test_work_put_off_until_delivery_is_added_to_the_time() -> None:
    assert timed(flush=0.1, clocked=1.5, card=1.0, deliver=0.2) == (1.5, 1.0)
    assert timed(flush=0.1, clocked=1.5, card=1.0, deliver=3.2) == (4.5, 1.0)


def test_waking_a_runner_is_not_charged_to_it() -> None:
    assert timed(flush=0.9, clocked=1.5, card=1.0, deliver=0.2) == (1.5, 1.0)


def test_a_candidate_with_threads_stands_still_until_the_bell_rings() -> None:
    wall, card = timed(threads=True, clocked=1.8, card=1.0, deliver=0.2)  # it never flushes: the oracle does
    assert wall == 1.8 and abs(card - 1.3) < 1e-9  # waking it counts, which its own clock does not see


def clocks_of(samples: list[Sample]) -> tuple[float, float]:
    """Of a session that took these calls, where one without forward takes half a millisecond."""
    made = object.__new__(Session)
    made._samples = {"eager": (samples, [Sample(1.6, 1.1)] * len(samples))}
    made.besides = 0.5
    return made.clocks


def test_the_oracles_clock_bounds_what_a_runner_says_of_the_cards() -> None:
    wall, card = clocks_of([Sample(1.502, 1.0), Sample(1.58, 1.0)] * 9)  # a host that is disturbed now and then
    assert card == 1.0 and abs(wall - 1.002) < 1e-9 and beyond(wall, card) == 0.0
    wall, card = clocks_of([Sample(1.5, 0.2)] * 9)  # its events say 0.2 ms, the oracle saw a whole one
    assert card == 0.2 and abs(beyond(wall, card) - 0.8) < 1e-9


def test_a_small_difference_between_the_clocks_is_the_hosts() -> None:
    assert beyond(0.105, 0.1) == 0.0 and beyond(0.107, 0.1) > 0.006
    assert beyond(2.015, 2.0) == 0.0 and beyond(2.025, 2.0) > 0.02


def test_the_words_for_a_measurement() -> None:
    assert compare([(1.02, 1.05), (1.011, 1.03)], 1.0) is Comparison.FASTER
    assert compare([(1.02, 1.05), (1.005, 1.03)], 1.0) is Comparison.AMBIGUOUS  # one session does not see it
    assert compare([(0.995, 1.005)], 1.0) is Comparison.SAME
    assert compare([(0.90, 0.95)], 1.0) is Comparison.SLOWER
    assert compare([(0.9, 1.1)], 1.0) is Comparison.AMBIGUOUS
    assert compare([(1.02, 1.05)], 1.0, control=1.03) is Comparison.AMBIGUOUS  # a card on which equal is not equal says nothing
    assert compare([], 1.0) is Comparison.AMBIGUOUS


def test_two_microseconds_of_a_short_call_are_nothing() -> None:
    assert compare([(1.03, 1.05)], 0.05) is Comparison.SAME
    assert compare([(1.05, 1.08)], 0.05) is Comparison.FASTER
    assert compare([(0.94, 0.955)], 0.05) is Comparison.SLOWER
