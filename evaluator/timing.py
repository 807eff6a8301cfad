"""Statistics of paired timings: median of pair ratios with a bootstrap interval. Pure numpy; the clock is the oracle's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tritonsmith.evaluator.schema import Comparison

_MARGIN = 0.01
_CONTROL = (0.99, 1.01)
_RESAMPLES = 2000
_HOST_MS = 0.002
UNSEEN_MS, UNSEEN_PART = 0.004, 0.01
"""What the oracle's clock may read beyond the card's before it is the oracle's that counts: an honest runner's host makes for so much.
Four beside one on a host, each session had 17 % to 100 % of its calls within 4 microseconds, 96 of 99 a quarter (H200, 2026-11-21)."""
ENOUGH = 0.25
"""Share of the calls for which the card's clock must stand; on a quiet host it stands for two thirds or more."""
_FEWEST = 4
Samples = npt.NDArray[np.float64]
_MIN_PAIRS = 12


class Sample(NamedTuple):
    """Milliseconds of one timed call."""

    wall: float
    """By the oracle's clock, from the moment at which the runner could have the card to its echo."""
    card: float
    """By the card's events around forward, as the runner tells it."""
    late: float = 0.0
    """By the oracle's clock, what came after the echo beyond what comes there for a baseline: work that was put off."""


@dataclass(frozen=True)
class Paired:
    """Samples of candidate and baseline in milliseconds, pair by pair, in the order they were taken."""

    candidate: tuple[float, ...]
    baseline: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median of baseline over candidate, pair by pair."""
        return float(np.median(self._ratios()))

    @property
    def candidate_ms(self) -> float:
        """Median of the candidate's samples."""
        return float(np.median(self.candidate))

    @property
    def baseline_ms(self) -> float:
        """Median of the baseline's samples."""
        return float(np.median(self.baseline))

    def _ratios(self) -> Samples:
        return np.divide(np.asarray(self.baseline, dtype=np.float64), np.asarray(self.candidate, dtype=np.float64))

    def interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of the ratio (percentile method, Efron 1979)."""
        random, ratios = np.random.default_rng(0), self._ratios()
        medians = np.median(random.choice(ratios, size=(_RESAMPLES, ratios.size)), axis=1)
        low, high = np.percentile(medians, [2.5, 97.5])
        return float(low), float(high)


def pair_count(baseline_ms: float, seconds: float, most: int = 60) -> int:
    """Pairs per baseline, fixed from the baseline's time alone so that a candidate cannot choose how often it is timed."""
    return max(_MIN_PAIRS, min(most, int(seconds * 1e3 / max(baseline_ms, 1e-3)))) // 2 * 2


def rounds_of(pairs: int, rounds: int) -> list[int]:
    """`pairs` split into at most `rounds` even parts of two or more: [14, 14, 12] for 40 pairs in 3 rounds."""
    left, parts = pairs // 2, []
    for waiting in range(rounds, 0, -1):
        part = -(-left // waiting)
        left -= part
        if part:
            parts.append(2 * part)
    return parts


def abba(candidate: Callable[[], float], baseline: Callable[[], float], pairs: int) -> Paired:
    """Take `pairs` pairs in the order A B B A A B B A ...: linear drift cancels. Each callable returns milliseconds of one call."""
    mine: list[float] = []
    theirs: list[float] = []
    for number in range(pairs):
        first, second = (candidate, baseline) if number % 2 == 0 else (baseline, candidate)
        one, two = first(), second()
        mine.append(one if first is candidate else two)
        theirs.append(two if first is candidate else one)
    return Paired(tuple(mine), tuple(theirs))


def control_holds(ratio: float) -> bool:
    """Whether a baseline measured against itself came out equal; otherwise the session says nothing."""
    return _CONTROL[0] <= ratio <= _CONTROL[1]


def compare(intervals: Sequence[tuple[float, float]], candidate_ms: float, control: float | None = None) -> Comparison:
    """The verdict in words, from the score's interval in each session and the candidate's median.

    A margin of 1 %, and of two microseconds of a call, is nothing: two processes that run the same code may differ by as much.
    FASTER: every session's lower end lies above 1 + margin. SLOWER: every upper end below 1 / (1 + margin). SAME: every interval within
    a margin twice as wide. Anything else, and any session whose control failed, is AMBIGUOUS.
    """
    if not intervals or (control is not None and not control_holds(control)):
        return Comparison.AMBIGUOUS
    margin = max(_MARGIN, _HOST_MS / candidate_ms) if candidate_ms > 0 else _MARGIN
    if all(low > 1 + margin for low, _ in intervals):
        return Comparison.FASTER
    if all(high < 1 / (1 + margin) for _, high in intervals):
        return Comparison.SLOWER
    alike = all(low >= 1 / (1 + 2 * margin) and high <= 1 + 2 * margin for low, high in intervals)
    return Comparison.SAME if alike else Comparison.AMBIGUOUS


def excess(sample: Sample, empty_ms: float) -> float:
    """Milliseconds that the oracle saw beyond what the card's clock says; `empty_ms` is what a call takes without forward."""
    return sample.wall - empty_ms - sample.card + sample.late


def counts(sample: Sample, empty_ms: float) -> bool:
    """Whether the card's clock stands for a call: the oracle's reads no more than goes unseen."""
    return excess(sample, empty_ms) <= max(UNSEEN_MS, UNSEEN_PART * sample.card)


class Weighed(NamedTuple):
    """What the calls of one take say."""

    paired: Paired
    """The pairs that a score is made of."""
    share: float
    """Part of the candidate's calls for which the card's clock stands."""
    added: float
    """Milliseconds added to each of them, for what the oracle saw beyond the card's clock and did not see with the baseline."""


def weigh(mine: Sequence[Sample], theirs: Sequence[Sample], empty_ms: float) -> Weighed:
    """Make a score's pairs of all the calls.

    Those pairs alone for which the card's clock stands, where there are enough: a candidate that makes its clock look wrong now and then
    leaves the calls in which it did not. One that always shifts it a little has few left, since an honest host takes up most of what goes
    unseen; and by as much as the calls that stand are longer to the oracle, on average, than the baseline's are, each of them counts as
    longer. (Honest calls of 0.33 to 0.93 ms gained 0.6 microseconds by that, a lie of 4 microseconds kept 0.7 of them; H200, 2026-11-21.)
    Otherwise all of them, with what the oracle saw in place of the card's clock where the two disagree.
    """
    standing = [counts(one, empty_ms) for one in mine]
    share = sum(standing) / max(1, len(standing))
    if share >= ENOUGH and sum(standing) >= _FEWEST:
        kept = [pair for pair, stands in zip(zip(mine, theirs, strict=True), standing, strict=True) if stands]
        usual = [excess(two, empty_ms) for two in theirs if counts(two, empty_ms)]
        added = max(0.0, fmean(excess(one, empty_ms) for one, _ in kept) - fmean(usual)) if usual else 0.0
        return Weighed(Paired(tuple(one.card + added for one, _ in kept), tuple(two.card for _, two in kept)), share, added)
    seen = [one.card if stands else one.card + excess(one, empty_ms) for one, stands in zip(mine, standing, strict=True)]
    return Weighed(Paired(tuple(seen), tuple(two.card for two in theirs)), share, 0.0)


def strongest(baselines: dict[str, Paired]) -> str:
    """Name of the baseline with the smallest median."""
    return min(baselines, key=lambda name: baselines[name].baseline_ms)


def spread(samples: Sequence[float]) -> float:
    """Interquartile range over the median: how noisy the card was."""
    low, middle, high = np.percentile(samples, [25, 50, 75])
    return float((high - low) / middle) if middle else 0.0
