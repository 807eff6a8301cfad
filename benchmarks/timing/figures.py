"""The figures of the timing study: rows of verdicts in, required and reached figures out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tritonsmith.evaluator.schema import Comparison, Record, Status, Verdict

CONTROL_LOW = 0.99
"""A baseline over itself may not be less."""
CONTROL_HIGH = 1.01
"""A baseline over itself may not be more."""
CONTROL_SHARE = 0.95
"""Least share of the controls that lie between the two."""
CONTROL_COUNT = 30
"""Fewer controls show nothing."""
FALSE_FASTER = 0.01
"""Largest share of equal kernels that may be called faster."""
EQUAL_COUNT = 120
"""Fewer verdicts about equals, controls included, show nothing."""
FOUND_SHARE = 0.90
"""Least share of true gains of 3 % that must be called faster."""
GAIN_COUNT = 30
"""Fewer verdicts about gains show nothing."""
TRUE_LOW = 1.025
"""The true gain, by the card's clock, may not be less."""
TRUE_HIGH = 1.035
"""The true gain, by the card's clock, may not be more."""
REPEAT_MEDIAN = 0.02
"""Largest change of a speedup between two evaluators, in the middle of the kernels."""
REPEAT_WORST = 0.05
"""Largest change of a speedup between two evaluators, for any kernel."""
REPEAT_COUNT = 10
"""Fewer kernels that are measured twice show nothing."""
COLD_SECONDS = 15.0
"""Most seconds of a verdict together with the evaluator's start."""
WARM_SECONDS = 4.0
"""Most seconds of a verdict of an evaluator that has rested."""
CLOCK_GAP = 0.10
"""Largest difference between the two clocks, as a share of the card's."""
CLOCK_LEAST_MS = 0.05
"""Milliseconds of device time from which on the clocks are compared."""


class StudyRow(Record):
    """One verdict that the study asked for."""

    part: str
    """`pairs` (kernels of known work), `repeat` or `cost`."""
    kernel: str
    kind: str
    """`equal`, `gain` or `loss` in `pairs`; the name of the evaluator in `repeat`; `cold` or `warm` in `cost`."""
    seconds: float
    """From the question to the answer; in `cold` rows with the evaluator's start."""
    status: str = "infrastructure"
    message: str = ""
    comparison: Comparison | None = None
    score: float | None = None
    interval: tuple[float, float] | None = None
    baseline: str = ""
    pairs: int = 0
    median_ms: float | None = None
    device_ms: float | None = None
    wall_ms: float | None = None
    control: float | None = None
    control_interval: tuple[float, float] | None = None
    ratios: tuple[float, ...] = ()
    """Pair by pair, baseline over candidate, against the strongest baseline."""

    @property
    def ok(self) -> bool:
        """Whether the kernel was accepted and timed."""
        return self.status == Status.OK.value


def row_of(verdict: Verdict, part: str, kernel: str, kind: str, seconds: float, ratios: Sequence[float] = ()) -> StudyRow:
    """The row of a verdict."""
    timing, control = verdict.timing, verdict.timing.control if verdict.timing else None
    row = StudyRow(part=part, kernel=kernel, kind=kind, seconds=seconds, status=verdict.status.value, message=verdict.message[:300])
    if timing is None:
        return row
    return row.model_copy(update={
        "comparison": timing.comparison, "score": timing.score, "interval": timing.interval, "baseline": timing.baseline,
        "pairs": timing.pairs, "median_ms": timing.median_ms, "device_ms": timing.device_ms, "wall_ms": timing.wall_ms,
        "ratios": tuple(ratios),
        "control": control.ratio if control else None, "control_interval": control.interval if control else None,
    })  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One line of the summary."""

    name: str
    required: str
    reached: str
    passed: bool


def summarize(rows: Sequence[StudyRow], truths: dict[str, float], parts: Iterable[str]) -> list[Figure]:
    """The figures of the parts that ran, in the order of the issue; refused kernels and failures count against them.

    Args:
        rows: every verdict.
        truths: true gain by kernel, by the card's clock.
        parts: of `equal`, `gain`, `repeat`, `cost`.
    """
    pairs = [row for row in rows if row.part == "pairs"]
    asked = set(parts)
    figures = [check_accepted(rows)]
    if asked & {"equal", "gain"}:
        figures.append(check_controls(rows))
    if "equal" in asked:
        figures += check_false_faster(rows)
    if "gain" in asked:
        figures += [check_true_gain(truths), check_found([row for row in pairs if row.kind == "gain"]), check_losses(pairs)]
    if "repeat" in asked:
        figures += check_repeats([row for row in rows if row.part == "repeat"])
    if "cost" in asked:
        figures += check_cost([row for row in rows if row.part == "cost"])
    return figures + ([check_clocks(pairs)] if asked & {"equal", "gain"} else [])


def check_accepted(rows: Sequence[StudyRow]) -> Figure:
    """Every kernel of the study is right."""
    bad = [f"{row.kernel} ({row.kind}): {row.status}" for row in rows if not row.ok]
    return Figure("kernels accepted", "all", f"{len(rows) - len(bad)} of {len(rows)} {'; '.join(bad[:3])}".strip(), bool(rows) and not bad)


def check_controls(rows: Sequence[StudyRow]) -> Figure:
    """The strongest baseline against itself, in every verdict that has such a control."""
    ratios = [row.control for row in rows if row.control is not None]
    inside = sum(CONTROL_LOW <= ratio <= CONTROL_HIGH for ratio in ratios)
    reached = _count_and_share(inside, len(ratios)) + (f", {min(ratios):.4f} to {max(ratios):.4f}" if ratios else "")
    required = f">= {CONTROL_SHARE:.0%} of >= {CONTROL_COUNT} within {CONTROL_LOW} to {CONTROL_HIGH}"
    return Figure("A/A control", required, reached, len(ratios) >= CONTROL_COUNT and inside >= CONTROL_SHARE * len(ratios))


def check_false_faster(rows: Sequence[StudyRow]) -> list[Figure]:
    """`faster` said of equals: of candidates with the reference's own kernel, and together with the controls, equal by construction."""
    equal = [row for row in rows if row.part == "pairs" and row.kind == "equal"]
    said = [row.kernel for row in equal if row.comparison is Comparison.FASTER]
    controls = [row.control_interval for row in rows if row.control_interval is not None]
    wrong = len(said) + sum(low > CONTROL_HIGH for low, _ in controls)
    count = len(equal) + len(controls)
    words = ", ".join(f"{sum(row.comparison is word for row in equal)} {word.value}" for word in Comparison)
    limit = f"<= {FALSE_FASTER:.0%}"
    return [
        Figure("faster said of equal candidates", limit, f"{_count_and_share(len(said), len(equal))} ({words}) {'; '.join(said)}".strip(),
               bool(equal) and len(said) <= FALSE_FASTER * len(equal)),
        Figure("faster said of equals, controls included", f"{limit} of >= {EQUAL_COUNT}", _count_and_share(wrong, count),
               count >= EQUAL_COUNT and wrong <= FALSE_FASTER * count),
    ]  # fmt: skip


def check_true_gain(truths: dict[str, float]) -> Figure:
    """The gain that is to be found, by another clock than the evaluator's."""
    reached = ", ".join(f"{name} {ratio:.4f}" for name, ratio in truths.items()) or "not measured"
    required = f"{TRUE_LOW} to {TRUE_HIGH} by the card's clock"
    return Figure("true gain", required, reached, bool(truths) and all(TRUE_LOW <= gain <= TRUE_HIGH for gain in truths.values()))


def check_found(gains: Sequence[StudyRow]) -> Figure:
    """A gain of 3 % is called faster."""
    hits = sum(row.comparison is Comparison.FASTER for row in gains)
    by_kernel = defaultdict(list)
    for row in gains:
        by_kernel[row.kernel].append(row)
    parts = ", ".join(
        f"{name} {sum(row.comparison is Comparison.FASTER for row in some)}/{len(some)} at {_median([row.score for row in some]):.4f}"
        for name, some in by_kernel.items()
    )
    required = f">= {FOUND_SHARE:.0%} of >= {GAIN_COUNT}"
    return Figure("true 3 % gain found", required, f"{_count_and_share(hits, len(gains))} ({parts})",
                  len(gains) >= GAIN_COUNT and hits >= FOUND_SHARE * len(gains))  # fmt: skip


def check_losses(pairs: Sequence[StudyRow]) -> Figure:
    """A loss of 3 % is never called faster."""
    lost = [row for row in pairs if row.kind == "loss"]
    wrong = sum(row.comparison is Comparison.FASTER for row in lost)
    slower = sum(row.comparison is Comparison.SLOWER for row in lost)
    reached = f"{_count_and_share(wrong, len(lost))}; slower: {slower}"
    return Figure("true 3 % loss called faster", "never", reached, bool(lost) and not wrong)


def check_repeats(rows: Sequence[StudyRow]) -> list[Figure]:
    """A reported speedup against that of another evaluator: other processes, seeds and inputs on both sides."""
    scores: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.score is not None and row.ok:
            scores[row.kernel].append(row.score)
    twice = {name: some for name, some in scores.items() if len(some) == 2}
    changes = {name: abs(second / first - 1) for name, (first, second) in twice.items()}
    enough = len(changes) >= REPEAT_COUNT
    middle = _median(list(changes.values()))
    worst = max(changes, key=lambda name: changes[name], default="none")
    return [
        Figure("speedup again in fresh processes, median", f"<= {REPEAT_MEDIAN:.0%} over >= {REPEAT_COUNT} kernels",
               f"{middle:.2%} over {len(changes)}", enough and middle <= REPEAT_MEDIAN),
        Figure("speedup again in fresh processes, worst", f"<= {REPEAT_WORST:.0%}", f"{changes.get(worst, float('nan')):.2%} ({worst})",
               enough and changes[worst] <= REPEAT_WORST),
    ]  # fmt: skip


def check_cost(rows: Sequence[StudyRow]) -> list[Figure]:
    """Seconds per verdict about a kernel under 1 ms."""
    short = [row for row in rows if row.median_ms is not None and row.median_ms < 1.0 and row.ok]
    figures = []
    for kind, limit in (("cold", COLD_SECONDS), ("warm", WARM_SECONDS)):
        taken = {row.kernel: row.seconds for row in short if row.kind == kind}
        reached = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in taken.items()) or "not measured"
        figures.append(Figure(f"one verdict, {kind}", f"<= {limit:.0f} s", reached, bool(taken) and max(taken.values()) <= limit))
    return figures


def check_clocks(pairs: Sequence[StudyRow]) -> Figure:
    """Oracle's clock, less what the same calls cost without forward, against the card's events.

    The fixed cost and the slope are a Theil-Sen line (median of slopes, median intercept; Sen 1968) through (device, wall).
    """
    points = [(row.device_ms, row.wall_ms) for row in pairs if row.device_ms and row.wall_ms]
    required = f"<= {CLOCK_GAP:.0%} from {CLOCK_LEAST_MS * 1e3:.0f} us on, beyond a call's fixed cost"
    if len({round(device, 3) for device, _ in points}) < 3:
        return Figure("the two clocks", required, f"{len(points)} verdicts with both clocks, too few", False)
    device, wall = (np.array(side) for side in zip(*points, strict=True))
    run, rise = device[:, None] - device[None, :], wall[:, None] - wall[None, :]
    far = np.abs(run) > 0.01
    slope = float(np.median(rise[far] / run[far]))
    fixed = float(np.median(wall - slope * device))
    long = device >= CLOCK_LEAST_MS
    gaps = np.abs(wall[long] - fixed - device[long]) / device[long]
    middle, worst = (float(np.median(gaps)), float(gaps.max())) if gaps.size else (np.inf, np.inf)
    reached = f"median {middle:.1%}, worst {worst:.1%}; wall = {fixed * 1e3:.0f} us + {slope:.4f} x device"
    return Figure("the two clocks", required, reached, worst <= CLOCK_GAP)


def _median(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else float("nan")


def _count_and_share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({part / whole:.1%})" if whole else "")
