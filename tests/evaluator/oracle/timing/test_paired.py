"""Paired timing: drift cancels, equal kernels come out equal, and the count of pairs does not depend on the candidate."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from tritonsmith.evaluator.oracle.timing.paired import (
    ENOUGH,
    UNSEEN_MS,
    Empty,
    Paired,
    Sample,
    Weighed,
    abba,
    alone_factor,
    clocks_apart,
    compare,
    count_needed,
    find_strongest,
    pair_count,
    split_rounds,
    take_is_valid,
    weigh,
)
from tritonsmith.evaluator.schema import Comparison


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
    assert find_strongest({"slow": paired, "fast": abba(lambda: 1.0, lambda: 2.0, 12)}) == "fast"


def test_pairs_are_even_and_bounded() -> None:
    counts = [pair_count(ms, 0.5) for ms in (0.001, 1.0, 25.0, 4000.0)]
    assert all(count % 2 == 0 and 12 <= count <= 60 for count in counts)
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("noise", [0.002, 0.006, 0.012])
def test_so_many_pairs_as_needed_know_the_ratio_well_enough(noise: float) -> None:
    draws = np.random.default_rng(1)
    count = count_needed(noise, 0.004)
    medians = np.median(draws.normal(1.0, noise, (2000, count)), axis=1)
    assert np.percentile(np.abs(medians - 1.0), 95) <= 0.004
    assert count <= 4 * (noise / 0.004) ** 2 * 3


def test_one_disturbance_is_no_noise() -> None:
    draws = np.random.default_rng(2)
    quiet = tuple(draws.normal(1.0, 0.003, 11))
    assert Paired((1.0,) * 12, (*quiet, 9.0)).noise < 0.008
    assert 0.0015 < Paired((1.0,) * 200, tuple(draws.normal(2.0, 0.006, 200))).noise < 0.0045  # a share of the ratio


def test_rounds_share_the_pairs_out_evenly() -> None:
    assert split_rounds(40, 3) == [14, 14, 12]
    for pairs in (2, 12, 58, 200):
        parts = split_rounds(pairs, 5)
        assert sum(parts) == pairs and all(part % 2 == 0 for part in parts) and max(parts) - min(parts) <= 2


EMPTY = Empty(0.287, 0.307)


def honest(rng: random.Random, card: float = 0.07) -> Sample:
    """A call as an H200 gave them, 2026-11-22."""
    wall = EMPTY.early + card + rng.gauss(0.0011, 0.0007) + (rng.expovariate(1 / 0.005) if rng.random() < 0.05 else 0.0)
    return Sample(wall, card * rng.gauss(1.0, 0.01), max(0.0, rng.gauss(0.0, 0.001)))


def judged(change: Callable[[Sample], Sample] = lambda one: one, card: float = 0.07, seed: int = 4, calls: int = 80) -> Weighed:
    rng = random.Random(seed)
    mine = [change(honest(rng, card)) for _ in range(calls)]
    return weigh(mine, [honest(rng, card) for _ in range(calls)], EMPTY)


def test_a_baseline_that_is_faster_afterwards_counts() -> None:
    """A baseline that is faster once the candidate is gone counts."""
    assert alone_factor(10.0, 10.05) == 1.0 and alone_factor(10.0, 9.95) == 1.0
    assert alone_factor(10.0, 5.0) == 0.5 and abs(alone_factor(10.0, 9.8) - 0.98) < 1e-9
    assert alone_factor(0.006, 0.0059) == 1.0  # some ticks of the card's clock
    weighed = judged()
    low, high = weighed.measurement.interval
    halved = weighed.scale_baseline(0.5)
    assert abs(halved.paired.ratio - 0.5 * weighed.paired.ratio) < 1e-9 and halved.paired.candidate == weighed.paired.candidate
    assert halved.measurement.interval == pytest.approx((0.5 * low, 0.5 * high))


def test_honest_calls_are_neither_faster_nor_slower() -> None:
    assert 0.99 < judged().paired.ratio < 1.01
    for seed in range(20):
        weighed = judged(seed=seed)
        low, high = weighed.measurement.interval
        assert 0.97 < weighed.paired.ratio < 1.01 and weighed.share > 0.7 and low <= weighed.paired.ratio <= high
        assert compare([(low, high)], 0.07) is Comparison.SAME


def test_disputed_takes_stand_only_for_much_slower_kernels() -> None:
    """A take on whose calls the clocks disagree is valid only for a candidate that is far slower."""
    agreed, disturbed = judged(), judged(lambda one: one._replace(wall=one.wall + 0.02))
    slow = judged(lambda one: one._replace(wall=one.wall + 0.14, card=one.card + 0.1))
    apart = judged(lambda one: one._replace(wall=one.wall + 0.2, card=one.card + 0.1))  # the strict profile refuses such a session
    assert (agreed.share >= ENOUGH, disturbed.share >= ENOUGH, slow.share >= ENOUGH) == (True, False, False)
    assert (take_is_valid(agreed, 1.0), take_is_valid(disturbed, 1.0), take_is_valid(slow, 1.0)) == (True, False, True)
    assert slow.far_slower and apart.far_slower and not disturbed.far_slower
    assert not take_is_valid(apart, 1.0) and clocks_apart(*apart.clocks) and not clocks_apart(*slow.clocks)
    assert not take_is_valid(judged(lambda one: one._replace(wall=one.wall + 3.0, card=one.card * 1.25)), 1.0)
    assert not take_is_valid(agreed, 1.02) and not take_is_valid(slow, 1.02)


@pytest.mark.parametrize("part", [0.2, 0.5, 0.85, 1.0])
@pytest.mark.parametrize("lie", [0.004, 0.035])
def test_a_clock_that_lies_in_part_of_the_calls_gains_nothing(part: float, lie: float) -> None:
    rng = random.Random(3)
    weighed = judged(lambda one: one._replace(card=one.card - lie) if rng.random() < part else one)
    assert weighed.paired.ratio < (1.025 if lie < 0.01 else 1.01)
    assert lie < 0.01 or (part < 0.7) is (weighed.share >= ENOUGH)


@pytest.mark.parametrize("lie", [0.002, 0.004, 0.006, 0.008, 0.02, 0.04])
def test_a_lying_clock_gains_two_microseconds_at_most(lie: float) -> None:
    """A clock that always lies gains no more than two microseconds."""
    weighed = judged(lambda one: one._replace(card=one.card - lie))
    assert weighed.paired.ratio < 0.07 / 0.068 and (lie <= UNSEEN_MS or weighed.paired.ratio < 1.01)
    oracle, card = weighed.clocks
    assert oracle - card > lie - 0.0035 and card < 0.071 - lie


def asked_late(ms: float = 0.0) -> Callable[[Sample], Sample]:
    """Asked for after an answer that comes while forward has so many milliseconds left; the card's clock lies by as much."""
    return lambda one: one._replace(wall=one.wall + max(0.0, EMPTY.hidden - ms), card=one.card - ms, early=False)


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("ms", [0.01, 0.02, 0.04])
def test_what_an_answer_may_hide_is_counted(part: float, ms: float) -> None:
    """What an answer may hide is counted where the card is asked for after it."""
    rng = random.Random(5)
    change = asked_late(ms)
    weighed = judged(lambda one: change(one) if rng.random() < part else one, card=0.4)
    assert weighed.paired.ratio < 1.006
    assert part > 0.3 or ms > 0.01 or 0.99 < weighed.paired.ratio  # the other calls are enough


def test_a_late_honest_call_counts_what_it_may_hide() -> None:
    """An honest call that is asked for late counts as longer by what it may hide."""
    weighed = judged(asked_late(), card=0.4)
    assert abs(weighed.paired.candidate_ms - 0.42) < 0.003 and abs(weighed.bare.candidate_ms - 0.4) < 0.003
    low, high = weighed.measurement.interval
    assert low < 0.96 and high > 0.99 and weighed.share > 0.8


def test_a_noisy_host_does_not_move_the_score() -> None:
    """A noisy host does not move the score of the valid calls."""
    rng = random.Random(6)
    weighed = judged(lambda one: one._replace(wall=one.wall + rng.choice([0.0, 0.0, 0.03, 0.1])), calls=120)
    assert 0.99 < weighed.paired.ratio < 1.01 and weighed.share < 0.6


def test_the_oracles_clock_counts_where_clocks_never_agree() -> None:
    """Where the clocks never agree, the oracle's counts, and `slower` is not said."""
    weighed = judged(lambda one: one._replace(wall=one.wall + 0.02))
    low, high = weighed.measurement.interval
    assert weighed.share == 0.0 and weighed.paired.ratio < 0.8 and low < 0.8 and high > 0.99
    assert compare([(low, high)], 0.07) is Comparison.AMBIGUOUS  # a host that is slow for one side, or a lie


def test_what_is_usual_for_the_baselines_is_no_excess() -> None:
    """What is usual for the baselines is no excess, but not without limit."""
    noisy = [Sample(EMPTY.early + 0.0715, 0.07)] * 40
    assert weigh(noisy, noisy, EMPTY).paired.ratio == 1.0
    very = [Sample(EMPTY.early + 0.09, 0.07)] * 40
    lying = [Sample(EMPTY.early + 0.07, 0.06)] * 40
    assert weigh(lying, very, EMPTY).paired.ratio < 1.05  # who slows the baselines' host down may not lie for it


def test_the_words_for_a_measurement() -> None:
    assert compare([(1.02, 1.05), (1.011, 1.03)], 1.0) is Comparison.FASTER
    assert compare([(1.02, 1.05), (1.005, 1.03)], 1.0) is Comparison.AMBIGUOUS  # one session does not see it
    assert compare([(0.995, 1.005)], 1.0) is Comparison.SAME
    assert compare([(0.90, 0.95)], 1.0) is Comparison.SLOWER
    assert compare([(0.9, 1.1)], 1.0) is Comparison.AMBIGUOUS
    assert compare([(1.02, 1.05)], 1.0, control=1.03) is Comparison.AMBIGUOUS  # equal kernels came out as far apart
    assert compare([(0.995, 1.005)], 1.0, control=0.97) is Comparison.AMBIGUOUS
    for control in (0.8, 1.25, 1.9):  # what is far more than the control is off is no noise
        assert compare([(6.82, 10.91)], 0.1, control=control) is Comparison.FASTER
        assert compare([(0.09, 0.15)], 0.1, control=control) is Comparison.SLOWER
    assert compare([], 1.0) is Comparison.AMBIGUOUS


def test_two_microseconds_of_a_short_call_are_nothing() -> None:
    assert compare([(1.03, 1.05)], 0.05) is Comparison.SAME
    assert compare([(1.05, 1.08)], 0.05) is Comparison.FASTER
    assert compare([(0.94, 0.955)], 0.05) is Comparison.SLOWER
