"""A race keeps the best entrant, drops clearly slower ones early, and times no more than its seconds allow."""

import numpy as np
import pytest

from tritonsmith.evaluator.oracle.timing.halving import run_race

INCUMBENT_MS = 0.1


def noisy_card(speeds, seed, noise=0.01, burst=0.02):
    """A card on which an entrant takes the incumbent's time over its speed; one call in fifty takes twice as long. Counts its pairs."""
    random = np.random.default_rng(seed)
    counts = dict.fromkeys(speeds, 0)

    def call(ms):
        return ms * float(1.0 + noise * random.standard_normal()) * (2.0 if random.random() < burst else 1.0)

    def time_pair(name, entrant_first):
        counts[name] += 1
        return call(INCUMBENT_MS), call(INCUMBENT_MS / speeds[name])

    return time_pair, counts


@pytest.mark.parametrize("seed", range(20))
def test_the_best_of_eight_stays_and_wins(seed):
    speeds = {"best": 1.12, "good": 1.06, "same": 1.0, "bit": 0.97, "slow": 0.8, "slower": 0.6, "half": 0.5, "tenth": 0.1}
    time_pair, counts = noisy_card(speeds, seed)
    standings = run_race(list(speeds), time_pair, keep=2)
    kept = [name for name, standing in standings.items() if standing.left_after is None]
    assert "best" in kept and max(kept, key=lambda name: standings[name].ratio) == "best" and len(kept) <= 2
    assert all(counts[name] == 4 for name in ("slow", "slower", "half", "tenth")), "what is clearly slower leaves after the first round"
    assert abs(standings["best"].ratio / 1.12 - 1) < 0.02
    assert sum(counts.values()) < 8 * 48 / 2, "far fewer pairs than all entrants to the end"


def test_the_best_wins_nearly_always_where_entrants_differ_by_little():
    speeds = {f"e{number}": 0.98 + 0.01 * number for number in range(8)}
    wins = 0
    for seed in range(100):
        time_pair, _ = noisy_card(speeds, seed)
        standings = run_race(list(speeds), time_pair, keep=3)
        kept = {name: standing for name, standing in standings.items() if standing.left_after is None}
        wins += max(kept, key=lambda name: kept[name].ratio) in ("e7", "e6")
    assert wins >= 95


def test_nobody_stays_where_all_are_slower():
    time_pair, counts = noisy_card({"a": 0.8, "b": 0.7}, 1)
    standings = run_race(["a", "b"], time_pair, keep=2)
    assert all(standing.left_after == 0 for standing in standings.values()) and counts == {"a": 4, "b": 4}


def test_what_can_bring_nothing_leaves_before_the_end():
    time_pair, counts = noisy_card({"same": 1.0}, 3, noise=0.002, burst=0.0)
    standing = run_race(["same"], time_pair, keep=1)["same"]
    assert standing.left_after is not None and counts["same"] <= 32
    time_pair, counts = noisy_card({"good": 1.1, "better": 1.2}, 3)
    assert run_race(["good"], time_pair, keep=1, least=1.3)["good"].left_after == 0, "an earlier heat has shown more"


def test_the_incumbent_is_first_in_every_second_pair_and_no_round_begins_too_late():
    order = []

    def time_pair(name, entrant_first):
        order.append(entrant_first)
        return 1.0, 1.0

    standings = run_race(["a"], time_pair, keep=1, in_time=lambda: len(order) < 8)
    assert order == [False, True] * 4 and len(standings["a"].ratios) == 8 and standings["a"].left_after is None
    assert run_race(["a"], time_pair, keep=1, in_time=lambda: False)["a"].ratios == []
