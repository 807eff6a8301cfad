"""Statistics of runs that come in tasks and repeats. Pure numpy; every function says its formula.

The unit is a *run*; runs of one task are alike, so they are not independent, and an interval must resample whole tasks.
Sources: A. C. Davison and D. V. Hinkley, *Bootstrap Methods and their Application* (1997), section 3.8, on data in groups; C. A. Field and
A. H. Welsh, *Bootstrapping clustered data* (J. R. Statist. Soc. B 69, 2007); T. C. Hesterberg, *What Teachers Should Know About the
Bootstrap* (The American Statistician 69, 2015) on the expanded percentile interval; P. J. Fleming and J. J. Wallace, *How not to lie with
statistics* (Comm. ACM 29, 1986) on geometric means of ratios; A. Ouyang and others, *KernelBench* (2025) on fast_p.
"""

from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""From sums over the runs of each task, `[draws, tasks, columns]`, to one figure per draw."""

DRAWS = 4000
LEVEL = 0.95
_CHUNK = 2_000_000
"""Numbers that one step of the resampling holds at most."""


def mean_of_tasks(sums: Array) -> Array:
    """`mean over tasks t of (sum over runs of column 0) / (sum over runs of column 1)`: each task weighs the same.

    With ones in column 1 it is a mean of task means; a task whose column 1 sums to zero is left out.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(sums[..., 1] > 0, sums[..., 0] / sums[..., 1], np.nan)
    known = ~np.isnan(each)
    count = known.sum(axis=1)
    total = np.where(known, each, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def geometric(sums: Array) -> Array:
    """`exp(mean_of_tasks)`, for logarithms in column 0: the geometric mean over tasks of the geometric means over runs."""
    return np.exp(mean_of_tasks(sums))


def ratio_of_totals(sums: Array) -> Array:
    """`(sum over all runs of column 0) / (sum over all runs of column 1)`, such as tokens over solved runs; undefined for none."""
    above, below = sums[..., 0].sum(axis=1), sums[..., 1].sum(axis=1)
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)


def point(groups: Sequence[Array], statistic: Statistic) -> float | None:
    """The statistic of the runs as they are, `[runs, columns]` per task; None where it is undefined."""
    filled = [group for group in groups if len(group)]
    if not filled:
        return None
    value = float(statistic(np.stack([group.sum(axis=0) for group in filled])[None])[0])
    return None if np.isnan(value) else value


def interval(groups: Sequence[Array], statistic: Statistic, draws: int = DRAWS, seed: int = 0) -> tuple[float, float] | None:
    """The 95 % interval of a statistic by the bootstrap: tasks are drawn with replacement, then runs within each drawn task.

    Of T tasks the expanded percentile interval is taken: quantiles `Phi(-/+ sqrt(T / (T - 1)) * t(0.975, T - 1))`, which makes up for
    the T - 1 in the bootstrap's variance and for the few tasks, as Student's t does for the mean. With one task, T is its number of
    runs, and the interval says nothing about other tasks. None for fewer than two runs, or where half of the draws are undefined.
    Drawing runs within tasks counts the noise within a task once more than needed, so the interval errs on the wide side.
    """
    filled = [np.asarray(group, dtype=np.float64) for group in groups if len(group)]
    if sum(map(len, filled)) < 2:
        return None
    found = np.concatenate([statistic(part) for part in _resample(filled, draws, np.random.default_rng(seed))])
    found = found[~np.isnan(found)]
    if len(found) < draws / 2:
        return None
    units = len(filled) if len(filled) > 1 else len(filled[0])
    tail = NormalDist().cdf(-np.sqrt(units / (units - 1)) * student_t((1 + LEVEL) / 2, units - 1))
    low, high = np.quantile(found, [tail, 1 - tail])
    return float(low), float(high)


def _resample(groups: list[Array], draws: int, random: np.random.Generator) -> list[Array]:
    """Sums over resampled runs, `[draws, tasks, columns]`, in parts."""
    tasks, longest, columns = len(groups), max(map(len, groups)), groups[0].shape[1]
    values = np.zeros((tasks, longest, columns))
    lengths = np.array([len(group) for group in groups])
    for number, group in enumerate(groups):
        values[number, : len(group)] = group
    step = max(1, _CHUNK // (tasks * longest * columns))
    parts = []
    for start in range(0, draws, step):
        count = min(step, draws - start)
        task = random.integers(tasks, size=(count, tasks))
        length = lengths[task][..., None]
        run = np.minimum((random.random((count, tasks, longest)) * length).astype(np.int64), length - 1)
        drawn = values[task[..., None], run]
        parts.append(np.where((np.arange(longest) < length)[..., None], drawn, 0.0).sum(axis=2))
    return parts


def student_t(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution for a probability above one half, by bisection on the integral of its density."""
    if freedom > 400:
        return NormalDist().inv_cdf(probability)

    def above_half(at: float) -> float:
        # with x = sqrt(freedom) * tan(angle) the density becomes cos(angle) ** (freedom - 1), up to a constant
        angles = np.linspace(0.0, np.arctan(at / np.sqrt(freedom)), 2001)
        half = np.linspace(0.0, np.pi / 2, 4001)
        return 0.5 * float(_simpson(np.cos(angles) ** (freedom - 1), angles) / _simpson(np.cos(half) ** (freedom - 1), half))

    low, high = 0.0, 1000.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if above_half(middle) < probability - 0.5 else (low, middle)
    return (low + high) / 2


def _simpson(values: Array, at: Array) -> float:
    """Simpson's rule over an odd number of points at equal distances."""
    weights = np.ones(len(values))
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    return float((at[1] - at[0]) / 3 * (weights * values).sum())


def wilson(successes: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of independent tries: E. B. Wilson, *Probable inference* (J. Am. Stat. Assoc. 22, 1927).

    `(p + z^2 / 2n -/+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)`. It says something where all tries agree, which the bootstrap
    cannot: drawing from equal values gives equal values.
    """
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    share, square = successes / count, z * z / count
    half = z * float(np.sqrt(share * (1 - share) / count + square / (4 * count)))
    middle = share + square / 2
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def histogram(values: Sequence[float], edges: Sequence[float]) -> tuple[int, ...]:
    """How many values lie below the first edge, from each edge (included) to the next (excluded), and from the last on."""
    places = np.searchsorted(np.asarray(edges, dtype=np.float64), np.asarray(values, dtype=np.float64), side="right")
    return tuple(int(count) for count in np.bincount(places, minlength=len(edges) + 1))
