"""A race of several entrants against an incumbent: short rounds of pairs, after each of which the slower ones leave. Pure arithmetic.

Successive halving (Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", 2016): every round
each entrant that is left gets more pairs than in the round before, and about half of them stay. An entrant also leaves as soon as its
interval lies below what is worth having, or below that of the best entrant (a sequential test on paired ratios).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tritonsmith.evaluator.protocol import GAIN

Pair = tuple[float, float]
"""Milliseconds of incumbent and entrant, taken one right after the other."""
_ROUNDS = (4, 4, 8, 16, 16)
"""Pairs of each round; even, so that either side is first equally often."""
_LEAST_NOISE = 0.004
"""Standard deviation of a ratio, as a share, that a few pairs may not go below: the card's clock is not better (H200, 1 % for 20 us)."""
_HALF_WIDTH = 1.96 * 1.2533
"""Half of the 95 % interval of a median of n normal samples, in units of their deviation over the root of n."""
_FEW = 1.5
"""A deviation that was seen in the few pairs of a race may be larger by this factor."""


@dataclass
class Standing:
    """What a race knows of one entrant."""

    ratios: list[float] = field(default_factory=list)
    """Incumbent over entrant, pair by pair."""
    left_after: int | None = None
    """The round after which it left; None for one that stayed to the end."""

    @property
    def ratio(self) -> float:
        """Median of the ratios; above 1 the entrant is faster."""
        return float(np.median(self.ratios))

    @property
    def interval(self) -> tuple[float, float]:
        """About 95 % of the ratio, from the median distance to the median: no single disturbance counts."""
        ratio = self.ratio
        noise = max(_LEAST_NOISE, 1.4826 * float(np.median(np.abs(np.asarray(self.ratios) / ratio - 1.0))))
        half = _FEW * _HALF_WIDTH * noise / math.sqrt(len(self.ratios))
        return ratio * (1.0 - half), ratio * (1.0 + half)


def run_race(
    entrants: Sequence[str], time_pair: Callable[[str, bool], Pair], keep: int, in_time: Callable[[], bool] = lambda: True,
    least: float = GAIN,
) -> dict[str, Standing]:  # fmt: skip
    """Race the entrants; the result is in their order, and those that stayed have no `left_after`.

    Args:
        entrants: their names.
        time_pair: times one pair of an entrant and the incumbent; the flag says that the entrant is first. An exception ends the race.
        keep: entrants that halving leaves over. Fewer stay where the others are clearly slower.
        in_time: whether another round may begin.
        least: the ratio that an entrant must still be able to reach.
    """
    standings = {name: Standing() for name in entrants}
    alive = list(entrants)
    for number, pairs in enumerate(_ROUNDS):
        if not alive or not in_time():
            break
        for pair in range(pairs):  # in turn, so that a noisy second of the machine falls on all of them
            for name in alive:
                incumbent, entrant = time_pair(name, pair % 2 == 1)
                standings[name].ratios.append(incumbent / entrant)
        stay = _choose(alive, standings, keep, least)
        for name in alive:
            if name not in stay:
                standings[name].left_after = number
        if len(stay) == 1 and _is_settled(standings[stay[0]]):
            break
        alive = stay
    return standings


def _choose(alive: Sequence[str], standings: dict[str, Standing], keep: int, least: float) -> list[str]:
    """Who stays: not clearly below `least` or slower than the best, and among the better half."""
    intervals = {name: standings[name].interval for name in alive}
    best = max(alive, key=lambda name: standings[name].ratio)
    able = [name for name in alive if intervals[name][1] >= max(least, intervals[best][0])]
    room = max(keep, math.ceil(len(alive) / 2))
    ranked = sorted(able, key=lambda name: -standings[name].ratio)[:room]
    return [name for name in alive if name in ranked]


def _is_settled(standing: Standing) -> bool:
    """Whether the incumbent is out of the interval of the only one that is left."""
    low, _ = standing.interval
    return low > 1.0
