"""Paired timing: drift cancels, equal kernels come out equal, and the count of pairs does not depend on the candidate."""

import random
from collections.abc import Iterable
from typing import Any, cast

import pytest

from tritonsmith.evaluator import card_timing
from tritonsmith.evaluator.card_session import Session
from tritonsmith.evaluator.card_timing import Bench
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.runner_client import RunnerFault
from tritonsmith.evaluator.schema import Comparison, Status
from tritonsmith.evaluator.timing import (
    ENOUGH,
    UNSEEN_MS,
    Sample,
    abba,
    compare,
    counts,
    excess,
    pair_count,
    rounds_of,
    strongest,
    weigh,
)
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

    def __init__(self, *, threads: bool = False, early: bool = False, **milliseconds: float) -> None:
        self.milliseconds = milliseconds
        self.threads, self.answered = threads, early
        self.stopped = False
        self.asked = Command.EMPTY

    def post(self, command: Command, argument: int = 0) -> None:
        assert self.stopped is (self.threads and command is Command.CLOCKED)
        self.asked = command

    def resume(self) -> None:
        self.stopped = False

    def echo(self, start: float, timeout: float) -> float:
        assert not self.stopped
        return self.milliseconds[self.asked.name.lower()]

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


class Hold:
    """Stands for the card being held; `lost` says whether somebody else had it meanwhile, time by time."""

    def __init__(self, lost: Iterable[bool] = ()) -> None:
        self.lost = iter(lost)
        self.interrupted = False

    def begin(self, milliseconds: float = 0.5) -> None:
        self.interrupted = next(self.lost, False)

    def ended(self) -> float:
        return 0.0


def bench(lost: Iterable[bool] = (), **about: Any) -> tuple[Bench, Any, Placed]:
    placed = Placed()
    made = Bench(cast(Any, placed), empty_ms=0.5, hold=cast(Any, Hold(lost)))
    made._baselines = cast(Any, TimedRunner(clocked=5.5, card=5.0, deliver=0.2, empty=0.5))
    placed.runner = cast(Any, made._baselines)
    if not lost:
        for _ in range(5):
            assert made.timed(cast(Any, placed.runner), list, 1.0) == (5.5, 5.0, 0.0)
        made._retaken.extend([1000.0] * 11)  # a real clock runs meanwhile
    placed.runner = TimedRunner(empty=0.5, **about)
    return made, placed.runner, placed


def test_work_put_off_until_delivery_is_seen() -> None:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.2)
    assert made.timed(runner, list, 1.0) == (1.5, 1.0, 0.0)
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=3.2)
    sample = made.timed(runner, list, 1.0)
    assert abs(sample.late - 3.0) < 1e-9 and abs(excess(sample, 0.5) - 3.0) < 1e-9 and not counts(sample, 0.5)


def test_work_that_still_runs_after_the_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.2)
    made._retaken.clear()
    made._retaken.append(0.25)
    ticks = iter([10.0, 10.00125])  # the card could be taken again after 1.25 ms
    monkeypatch.setattr(card_timing.time, "perf_counter", lambda: next(ticks))
    assert abs(made.timed(runner, list, 1.0).late - 1.0) < 1e-6


def test_a_candidate_with_threads_stands_still_until_the_bell_rings() -> None:
    made, runner, _ = bench(threads=True, clocked=1.8, card=1.0, deliver=0.2)
    sample = made.timed(runner, list, 1.0)
    assert sample.wall == 1.8 and not counts(sample, 0.5)  # what its own clock does not see counts


def test_a_call_in_which_somebody_else_had_the_card_is_taken_again() -> None:
    made, runner, placed = bench(lost=[True, False, False, True, False, False], clocked=1.5, card=1.0, deliver=0.2)
    assert made.timed(runner, list, 1.0).card == 1.0 and placed.places == 3


def test_answers_before_the_card_was_given_back_are_cheating_and_a_shared_card_is_not() -> None:
    made, runner, _ = bench(early=True, clocked=0.1, card=0.05, deliver=0.2)
    with pytest.raises(RunnerFault, match="belongs to another process") as caught:
        made.timed(runner, list, 1.0)
    assert caught.value.status is Status.CHEATING
    made, runner, _ = bench(lost=[True] * 200, clocked=1.5, card=1.0, deliver=0.2)
    with pytest.raises(InfrastructureError, match="something else uses this card"):
        made.timed(runner, list, 1.0)


@pytest.mark.parametrize("card", [float("nan"), float("inf"), float("-inf")])
def test_a_clock_that_reads_no_number_is_cheating(card: float) -> None:
    made, runner, _ = bench(clocked=1.5, card=card, deliver=0.2)
    with pytest.raises(RunnerFault, match="is no number") as caught:
        made.timed(runner, list, 1.0)
    assert caught.value.status is Status.CHEATING


EMPTY = 0.147


def honest(rng: random.Random, card: float = 0.07) -> Sample:
    """A call as a quiet host answers it (H200, 2026-11-21)."""
    return Sample(EMPTY + card + rng.gauss(-0.001, 0.001) + rng.expovariate(1 / 0.002), card * rng.gauss(1.0, 0.01))


def score(mine: list[Sample], card: float = 0.07) -> tuple[float, float]:
    rng = random.Random(9)
    weighed = weigh(mine, [honest(rng, card) for _ in mine], EMPTY)
    return weighed.paired.ratio, weighed.share


@pytest.mark.parametrize("part", [0.2, 0.5, 0.85, 1.0])
def test_a_clock_that_lies_in_part_of_the_calls_gains_nothing(part: float) -> None:
    rng = random.Random(4)
    mine = [one._replace(card=0.5 * one.card) if rng.random() < part else one for one in (honest(rng) for _ in range(80))]
    ratio, share = score(mine)
    assert ratio < 1.01 and (part < 0.7) is (share >= ENOUGH)
    assert 0.99 < score([honest(rng) for _ in range(80)])[0] < 1.01


def test_a_clock_that_always_lies_a_little_gains_no_more_than_goes_unseen() -> None:
    rng = random.Random(5)
    for lie in (0.002, 0.004, 0.006, 0.008, 0.02, 0.04):
        ratio, _ = score([(one := honest(rng))._replace(card=one.card - lie) for _ in range(80)])
        assert ratio < 0.07 / (0.07 - UNSEEN_MS / 2) * 1.01  # half of it is paid back: the oracle's calls are longer than the baseline's
        assert lie <= UNSEEN_MS or ratio < 1.01


def test_what_the_oracle_saw_beyond_the_baselines_calls_is_added() -> None:
    quiet = [Sample(EMPTY + 0.071, 0.07)] * 40  # one microsecond between the clocks, on both sides
    assert weigh(quiet, quiet, EMPTY).added == 0.0
    lying = [one._replace(card=0.068) for one in quiet]
    weighed = weigh(lying, quiet, EMPTY)
    assert weighed.share == 1.0 and abs(weighed.added - 0.002) < 1e-9 and abs(weighed.paired.ratio - 1.0) < 1e-6
    assert weigh(quiet, lying, EMPTY).added == 0.0  # a baseline whose calls look longer gives nothing away


def test_a_noisy_host_does_not_move_the_score_of_the_calls_that_stand() -> None:
    rng = random.Random(6)
    mine = [one._replace(wall=one.wall + rng.choice([0.0, 0.0, 0.03, 0.1])) for one in (honest(rng) for _ in range(120))]
    ratio, share = score(mine)
    assert 0.99 < ratio < 1.01 and share < 0.6


def test_the_clocks_of_a_session_are_those_of_the_calls_that_stand() -> None:
    made = object.__new__(Session)
    made.bench = cast(Any, type("Bench", (), {"empty_ms": 0.5}))
    made._samples = {"eager": ([Sample(1.502, 1.0), Sample(1.58, 1.0)] * 9, [Sample(1.6, 1.1)] * 18)}
    wall, card = made.clocks
    assert card == 1.0 and abs(wall - 1.002) < 1e-9
    made._samples = {"eager": ([Sample(1.5, 0.2)] * 9, [Sample(1.6, 1.1)] * 9)}  # its events say 0.2 ms, the oracle saw a whole one
    wall, card = made.clocks
    assert card == 0.2 and abs(wall - 1.0) < 1e-9


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
