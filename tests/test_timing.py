"""Paired timing: drift cancels, equal kernels come out equal, and the count of pairs does not depend on the candidate."""

import random

from tritonsmith.evaluator.timing import abba, pair_count, rounds_of, strongest


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
