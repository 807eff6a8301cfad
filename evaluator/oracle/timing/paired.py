"""Statistics of paired timings: median of pair ratios with a bootstrap interval. Pure numpy; the clock is the oracle's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tritonsmith.evaluator.schema import Comparison, Measurement

_MARGIN = 0.01
"""Share by which two equal kernels may differ."""
_CONTROL = (0.99, 1.01)
"""Bounds of the ratio of a baseline to itself."""
_TICKS_MS = 0.0002
"""Some ticks of the card's clock, in milliseconds."""
_RESAMPLES = 2000
"""Samples drawn for a bootstrap interval."""
_HOST_MS = 0.002
"""Milliseconds by which calls of equal kernels may differ between two processes."""
UNSEEN_MS = 0.003
"""What the oracle's clock may read beyond the card's, and beyond what it reads for a baseline, before a call is left out.

Milliseconds. Nine calls of ten are within 2 microseconds of the median (H200, 2026-11-22).
"""
UNSEEN_PART = 0.01
"""The same as a share of the call; the larger of the two counts."""
_MAX_USUAL_MS = 0.002
"""Milliseconds that may be usual between the clocks; what is usual is learnt from the baselines' calls."""
_NEAR_MS = 0.006
"""Milliseconds beyond the limit at which calls still show a lie that most of them share; further off it is a disturbance."""
ENOUGH = 0.25
"""Share of the calls for which the card's clock must stand; usually it stands for 95 % of honest calls (H200, 2026-11-22)."""
_IN_TIME = 0.8
"""Share of the calls that the card must have been asked for before the answer, for the others to be left out."""
CLOCK_PART = 0.1
"""How far the two clocks may be apart, as a share of the call."""
CLOCK_MS = 0.05
"""The same in milliseconds; the larger of the two counts."""
_FAR_SLOWER = 0.5
"""A candidate that reaches less than this ratio by the card's clock alone gains nothing by a wrong clock."""
_MIN_CALLS = 4
"""With fewer calls of a kind nothing is said about that kind."""
_COMPARED = (10, 25, 40, 50)
"""Percentiles in which the two sides are compared: what is done in more than half of the calls shows in one of them."""
_CERTAIN = 7
"""Percentiles by which the baseline's are taken higher, so that a difference is certain."""
_QUIET = 10
"""Percentile of what the oracle saw that counts: what disturbs a call makes it longer, never shorter."""
_CALLS_IN_A_ROW = (5, 12)
"""Calls of the candidate without a baseline's in between, at the least and at the most. Each is judged, so the oracle's time decides."""
_SECONDS_IN_A_ROW = 4.0
"""What their oracles may take; where the fewest take longer, none is made."""
_HELD_BACK = 0.95
"""Of a few calls: another baseline that takes less than this part of the strongest one's time was held back."""
_MIN_PAIRS = 12
"""Pairs with a baseline at the least."""
_MEDIAN_WIDTH = 1.96 * 1.2533
"""Half of the 95 % interval of a median of n normal samples, in units of their deviation over the root of n."""
_NOISE_MARGIN = 1.3
"""A deviation that was seen in few pairs may be larger by this factor."""
Samples = npt.NDArray[np.float64]


class Sample(NamedTuple):
    """Milliseconds of one timed call."""

    wall: float
    """By the oracle's clock, from giving the card away until it had it again: forward, and two changes of hands."""
    card: float
    """By the card's events around forward, as the runner reports it."""
    late: float = 0.0
    """By the oracle's clock, how much longer the delivery took than the baselines' do: work that was put off."""
    early: bool = True
    """Whether the oracle asked for the card before the runner answered: then it had it the moment that forward was done."""


class Empty(NamedTuple):
    """Milliseconds of a call without forward by the oracle's clock, from giving the card away until it had it again."""

    early: float
    """Asked for before the answer."""
    late: float
    """Asked for after it."""

    @property
    def hidden(self) -> float:
        """How long work may go on after the answer, unseen, where the card is asked for after it."""
        return max(0.0, self.late - self.early)


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

    def scale_baseline(self, factor: float) -> Paired:
        """The same with every sample of the baseline multiplied."""
        return Paired(self.candidate, tuple(factor * ms for ms in self.baseline))

    @property
    def measurement(self) -> Measurement:
        """Ratio, interval and count of pairs."""
        return Measurement(ratio=self.ratio, interval=self.interval(), pairs=len(self.candidate))

    @property
    def noise(self) -> float:
        """Standard deviation of one pair's ratio as a share, from the median distance to the median: no single disturbance counts."""
        ratios = self._ratios()
        return float(1.4826 * np.median(np.abs(ratios - np.median(ratios))) / np.median(ratios))

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


def count_needed(noise: float, width: float) -> int:
    """Pairs after which the 95 % interval of the median ratio is known to +- `width`.

    Args:
        noise: standard deviation of the ratio of one pair.
        width: half of the interval, as a share.
    """
    return math.ceil((_MEDIAN_WIDTH * _NOISE_MARGIN * noise / width) ** 2)


def split_rounds(pairs: int, rounds: int) -> list[int]:
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
    candidate_ms: list[float] = []
    baseline_ms: list[float] = []
    for number in range(pairs):
        if number % 2 == 0:
            candidate_ms.append(candidate())
            baseline_ms.append(baseline())
        else:
            baseline_ms.append(baseline())
            candidate_ms.append(candidate())
    return Paired(tuple(candidate_ms), tuple(baseline_ms))


def control_holds(ratio: float) -> bool:
    """Whether a baseline measured against itself came out equal; otherwise the session says nothing."""
    return _CONTROL[0] <= ratio <= _CONTROL[1]


def compare(intervals: Sequence[tuple[float, float]], candidate_ms: float, control: float | None = None) -> Comparison:
    """The verdict in words, from the score's interval in each session and the candidate's median; of an estimate, from its one band.

    A margin of 1 %, and of two microseconds of a call, is nothing: two processes that run the same code may differ by as much.
    A control that failed widens every interval by as much as it is off: equal kernels came out that far apart.
    FASTER: every session's lower end lies above 1 + margin. SLOWER: every upper end below 1 / (1 + margin). SAME: every interval within
    a margin twice as wide, and the control holds. Anything else is AMBIGUOUS.
    """
    if not intervals:
        return Comparison.AMBIGUOUS
    margin = max(_MARGIN, _HOST_MS / candidate_ms) if candidate_ms > 0 else _MARGIN
    holds = control is None or control_holds(control)
    off = 1.0 if holds or not control or control < 0.0 else max(control, 1.0 / control)
    intervals = [(low / off, high * off) for low, high in intervals]
    if all(low > 1 + margin for low, _ in intervals):
        return Comparison.FASTER
    if all(high < 1 / (1 + margin) for _, high in intervals):
        return Comparison.SLOWER
    if not holds:
        return Comparison.AMBIGUOUS
    alike = all(low >= 1 / (1 + 2 * margin) and high <= 1 + 2 * margin for low, high in intervals)
    return Comparison.SAME if alike else Comparison.AMBIGUOUS


def seen_ms(sample: Sample, empty: Empty) -> float:
    """Milliseconds of forward by the oracle's clock, with what was put off."""
    return sample.wall - (empty.early if sample.early else empty.late) + sample.late


def excess(sample: Sample, empty: Empty) -> float:
    """Milliseconds that the oracle saw beyond what the card's clock says."""
    return seen_ms(sample, empty) - sample.card


class Weighed(NamedTuple):
    """What the calls of one take say."""

    paired: Paired
    """The pairs that a score is made of."""
    bare: Paired
    """The same pairs by the card's clock alone."""
    share: float
    """Part of the candidate's calls for which the card's clock stands."""
    enough: bool
    """Whether that is enough of them."""
    clocks: tuple[float, float]
    """Milliseconds of the candidate's forward by the oracle's clock, undisturbed, and by the card's."""

    @property
    def far_slower(self) -> bool:
        """Whether the candidate is far slower, by its own word."""
        return self.bare.ratio < _FAR_SLOWER

    def scale_baseline(self, factor: float) -> Weighed:
        """The same with every sample of the baseline multiplied."""
        return self._replace(paired=self.paired.scale_baseline(factor), bare=self.bare.scale_baseline(factor))

    @property
    def measurement(self) -> Measurement:
        """The score and its interval, which reaches up to what the card's clock says: in between the two clocks cannot decide."""
        seen = self.paired.measurement
        return seen.model_copy(update={"interval": (seen.interval[0], self.bare.interval()[1])})


def weigh(candidate: Sequence[Sample], baseline: Sequence[Sample], empty: Empty) -> Weighed:
    """Make a score's pairs of all the calls of one take.

    The card's clock stands for a call of which the oracle saw little more than it sees of the baseline's calls.

    - Where it stands for enough calls the others are left out. A clock that lies now and then leaves the calls in which it did not.
    - A lie, or work that is put off, in most of the calls that are left moves their median, which is the score. Each call counts as
      longer by as much as this certainly does (`_shift`).
    - Where the card's clock stands for few calls, what the oracle saw counts.
    - Calls after whose answer the card was asked for are left out, or count as longer by what such an answer may hide.
    """
    in_time = [sample.early for sample in candidate]
    usable = in_time if _are_enough(in_time, _IN_TIME) else [True] * len(candidate)
    baseline_in_time = [sample for sample in baseline if sample.early]
    others = [excess(sample, empty) for sample in (baseline_in_time if len(baseline_in_time) >= _MIN_CALLS else baseline)]
    usual = float(np.clip(np.median(others), -_MAX_USUAL_MS, _MAX_USUAL_MS))
    others = [more - usual for more in others]
    beyond = [excess(sample, empty) - usual for sample in candidate]
    limits = [max(UNSEEN_MS, UNSEEN_PART * sample.card) for sample in candidate]
    standing = [fits and more <= most for fits, more, most in zip(usable, beyond, limits, strict=True)]
    enough = _are_enough(standing, ENOUGH)
    kept = [number for number, stands in enumerate(standing if enough else usable) if stands]
    hidden = [0.0 if sample.early else empty.hidden for sample in candidate]
    bare = Paired(tuple(candidate[number].card for number in kept), tuple(baseline[number].card for number in kept))
    if enough:
        near = [number for number, more in enumerate(beyond) if usable[number] and more <= limits[number] + _NEAR_MS]
        others = [more for more in others if more <= float(np.median(limits)) + _NEAR_MS] or others
        added = _shift([beyond[number] for number in near], others, [near.index(number) for number in kept])
        seen = tuple(candidate[number].card + hidden[number] + added for number in kept)
    else:
        seen = tuple(candidate[number].card + hidden[number] + max(0.0, beyond[number]) for number in kept)
    card = float(np.median(bare.candidate))
    least = [more + late for more, late, fits in zip(beyond, hidden, usable, strict=True) if fits]
    oracle = card + float(np.percentile(least, _QUIET))
    return Weighed(Paired(seen, bare.baseline), bare, sum(standing) / len(standing), enough, (oracle, card))


def _are_enough(calls: Sequence[bool], share: float) -> bool:
    """Whether so many of a take's calls are true that the others may be left out."""
    return sum(calls) >= max(_MIN_CALLS, share * len(calls))


def alone_factor(together_ms: float, alone_ms: float) -> float:
    """What a baseline's times are multiplied by if it is faster once the candidate's processes are gone; 1 within a margin.

    The margin is the control's, and some ticks of the card's clock.
    """
    factor = alone_ms / together_ms
    return factor if factor < _CONTROL[0] and together_ms - alone_ms > _TICKS_MS else 1.0


def count_in_a_row(pairs: Paired, control: Paired, oracle_seconds: float) -> int:
    """How often a candidate is called without a baseline's calls in between: not at all where the baseline gains nothing by that.

    A forward that keeps the host busy for longer than the card is held finds the processor's caches full of the other process's data
    after each turn of that process. Alone the baselines do without that, so the candidate is called alone as well.

    Args:
        pairs: calls in turn with the strongest baseline's.
        control: that baseline against itself, in a row.
        oracle_seconds: what it takes to judge one call.
    """
    if alone_factor(pairs.baseline_ms, float(np.median((*control.candidate, *control.baseline)))) == 1.0:
        return 0
    least, most = _CALLS_IN_A_ROW
    affordable = int(_SECONDS_IN_A_ROW / max(oracle_seconds, 1e-3))
    return min(affordable, most) if affordable >= least else 0


def find_strongest_alone(alone: Mapping[str, Sequence[float]], strongest: str) -> str:
    """The strongest baseline once the candidate's processes are gone: another than in turns only where it was certainly held back.

    Args:
        alone: by baseline, its times then.
        strongest: the one in turns with the candidate.
    """
    medians = {name: float(np.median(samples)) for name, samples in alone.items()}
    least = min(medians, key=lambda name: medians[name])
    return least if medians[least] < _HELD_BACK * medians[strongest] else strongest


def gain_in_a_row(in_turns: Sequence[Sample], in_a_row: Sequence[Sample], empty: Empty) -> float:
    """What a candidate's calls in a row take of those in turn with a baseline's: a share, at most 1; also without calls in a row.

    By the oracle's clock, since the runner's word may say anything.
    """
    if not in_a_row:
        return 1.0
    alternating, alone = (float(np.median([seen_ms(sample, empty) for sample in samples])) for samples in (in_turns, in_a_row))
    return float(np.clip(alone / alternating, 0.0, 1.0)) if alternating > 0.0 else 1.0


def take_is_valid(weighed: Weighed, control: float) -> bool:
    """Whether a take may stand: its control holds, and the card's clock stands for enough calls.

    A take is also valid if the candidate is far slower by its own word and both clocks roughly agree. About one take in thirty is
    disturbed by the host; the next one usually is not (H200, 2026-11-22).
    """
    return control_holds(control) and (weighed.enough or (weighed.far_slower and not clocks_apart(*weighed.clocks)))


def clocks_apart(wall: float, card: float) -> bool:
    """Whether two clocks' milliseconds of one forward differ by more than what a disturbed host makes for."""
    return abs(wall - card) > max(CLOCK_PART * wall, CLOCK_MS)


def _shift(candidate: Sequence[float], baseline: Sequence[float], kept: Sequence[int]) -> float:
    """By how much many of the candidate's values certainly lie above the baseline's; 0 when that is not certain.

    The largest of some percentiles' distances, each from the candidate's to a slightly higher one of the baseline's. Of 108 honest
    sessions of short calls one in twenty shows a shift of more than 0.8 microseconds by that (H200, 2026-11-22). The larger of two
    shifts counts: among the calls that are kept, what was large is missing; among all, what makes a call be left out may be small.
    """
    left = [candidate[number] for number in kept]
    usual = np.percentile(baseline, [percentile + _CERTAIN for percentile in _COMPARED])
    return max(0.0, *(float(np.max(np.percentile(values, _COMPARED) - usual)) for values in (candidate, left)))


def find_strongest(baselines: dict[str, Paired]) -> str:
    """Name of the baseline with the smallest median."""
    return min(baselines, key=lambda name: baselines[name].baseline_ms)


def spread(samples: Sequence[float]) -> float:
    """Interquartile range over the median: how noisy the card was."""
    low, middle, high = np.percentile(samples, [25, 50, 75])
    return float((high - low) / middle) if middle else 0.0
