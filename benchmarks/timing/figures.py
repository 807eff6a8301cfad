"""The figures of the timing study: rows of verdicts in, required and reached figures out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tritonsmith.evaluator.schema import Comparison, Record, Status, Verdict

CONTROL_LOW, CONTROL_HIGH, CONTROL_SHARE, CONTROL_COUNT = 0.99, 1.01, 0.95, 30
FALSE_FASTER, EQUAL_COUNT = 0.01, 120
FOUND_SHARE, GAIN_COUNT = 0.90, 30
TRUE_LOW, TRUE_HIGH = 1.025, 1.035
REPEAT_MEDIAN, REPEAT_WORST, REPEAT_COUNT = 0.02, 0.05, 10
COLD_SECONDS, WARM_SECONDS = 15.0, 4.0
CLOCK_GAP, CLOCK_LEAST_MS = 0.10, 0.05


class Row(Record):
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


def row_of(verdict: Verdict, part: str, kernel: str, kind: str, seconds: float, ratios: Sequence[float] = ()) -> Row:
    """The row of a verdict."""
    timing, control = verdict.timing, verdict.timing.control if verdict.timing else None
    row = Row(part=part, kernel=kernel, kind=kind, seconds=seconds, status=verdict.status.value, message=verdict.message[:300])
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


def summarize(rows: Sequence[Row], truths: dict[str, float], parts: Iterable[str]) -> list[Figure]:
    """The figures of the parts that ran, in the order of the issue; refused kernels and failures count against them.

    Args:
        rows: every verdict.
        truths: true gain by kernel, by the card's clock.
        parts: of `equal`, `gain`, `repeat`, `cost`.
    """
    pairs = [row for row in rows if row.part == "pairs"]
    asked = set(parts)
    figures = [accepted(rows)]
    if asked & {"equal", "gain"}:
        figures.append(controls(rows))
    if "equal" in asked:
        figures += false_faster(rows)
    if "gain" in asked:
        figures += [true_gain(truths), found([row for row in pairs if row.kind == "gain"]), losses(pairs)]
    if "repeat" in asked:
        figures += repeated([row for row in rows if row.part == "repeat"])
    if "cost" in asked:
        figures += cost([row for row in rows if row.part == "cost"])
    return figures + ([clocks(pairs)] if asked & {"equal", "gain"} else [])


def accepted(rows: Sequence[Row]) -> Figure:
    """Every kernel of the study is right."""
    bad = [f"{row.kernel} ({row.kind}): {row.status}" for row in rows if not row.ok]
    return Figure("kernels accepted", "all", f"{len(rows) - len(bad)} of {len(rows)} {'; '.join(bad[:3])}".strip(), bool(rows) and not bad)


def controls(rows: Sequence[Row]) -> Figure:
    """The strongest baseline against itself, in every verdict that has such a control."""
    ratios = [row.control for row in rows if row.control is not None]
    inside = sum(CONTROL_LOW <= ratio <= CONTROL_HIGH for ratio in ratios)
    reached = _share(inside, len(ratios)) + (f", {min(ratios):.4f} to {max(ratios):.4f}" if ratios else "")
    required = f">= {CONTROL_SHARE:.0%} of >= {CONTROL_COUNT} within {CONTROL_LOW} to {CONTROL_HIGH}"
    return Figure("A/A control", required, reached, len(ratios) >= CONTROL_COUNT and inside >= CONTROL_SHARE * len(ratios))


def false_faster(rows: Sequence[Row]) -> list[Figure]:
    """`faster` said of equals: of candidates with the reference's own kernel, and together with the controls, equal by construction."""
    equal = [row for row in rows if row.part == "pairs" and row.kind == "equal"]
    said = [row.kernel for row in equal if row.comparison is Comparison.FASTER]
    controls = [row.control_interval for row in rows if row.control_interval is not None]
    wrong = len(said) + sum(low > CONTROL_HIGH for low, _ in controls)
    count = len(equal) + len(controls)
    words = ", ".join(f"{sum(row.comparison is word for row in equal)} {word.value}" for word in Comparison)
    limit = f"<= {FALSE_FASTER:.0%}"
    return [
        Figure("faster said of equal candidates", limit, f"{_share(len(said), len(equal))} ({words}) {'; '.join(said)}".strip(),
               bool(equal) and len(said) <= FALSE_FASTER * len(equal)),
        Figure("faster said of equals, controls included", f"{limit} of >= {EQUAL_COUNT}", _share(wrong, count),
               count >= EQUAL_COUNT and wrong <= FALSE_FASTER * count),
    ]  # fmt: skip


def true_gain(truths: dict[str, float]) -> Figure:
    """The gain that is to be found, by another clock than the evaluator's."""
    reached = ", ".join(f"{name} {ratio:.4f}" for name, ratio in truths.items()) or "not measured"
    required = f"{TRUE_LOW} to {TRUE_HIGH} by the card's clock"
    return Figure("true gain", required, reached, bool(truths) and all(TRUE_LOW <= one <= TRUE_HIGH for one in truths.values()))


def found(gains: Sequence[Row]) -> Figure:
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
    return Figure("true 3 % gain found", required, f"{_share(hits, len(gains))} ({parts})",
                  len(gains) >= GAIN_COUNT and hits >= FOUND_SHARE * len(gains))  # fmt: skip


def losses(pairs: Sequence[Row]) -> Figure:
    """A loss of 3 % is never called faster."""
    lost = [row for row in pairs if row.kind == "loss"]
    wrong = sum(row.comparison is Comparison.FASTER for row in lost)
    slower = sum(row.comparison is Comparison.SLOWER for row in lost)
    return Figure("true 3 % loss called faster", "never", f"{_share(wrong, len(lost))}; slower: {slower}", bool(lost) and not wrong)


def repeated(rows: Sequence[Row]) -> list[Figure]:
    """A reported speedup against that of another evaluator: other processes, seeds and inputs on both sides."""
    scores: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.score is not None and row.ok:
            scores[row.kernel].append(row.score)
    changes = {name: abs(two / one - 1) for name, (one, two) in ((name, some) for name, some in scores.items() if len(some) == 2)}
    enough = len(changes) >= REPEAT_COUNT
    middle = _median(list(changes.values()))
    worst = max(changes, key=lambda name: changes[name], default="none")
    return [
        Figure("speedup again in fresh processes, median", f"<= {REPEAT_MEDIAN:.0%} over >= {REPEAT_COUNT} kernels",
               f"{middle:.2%} over {len(changes)}", enough and middle <= REPEAT_MEDIAN),
        Figure("speedup again in fresh processes, worst", f"<= {REPEAT_WORST:.0%}", f"{changes.get(worst, float('nan')):.2%} ({worst})",
               enough and changes[worst] <= REPEAT_WORST),
    ]  # fmt: skip


def cost(rows: Sequence[Row]) -> list[Figure]:
    """Seconds per verdict about a kernel under 1 ms."""
    short = [row for row in rows if row.median_ms is not None and row.median_ms < 1.0 and row.ok]
    figures = []
    for kind, limit in (("cold", COLD_SECONDS), ("warm", WARM_SECONDS)):
        taken = {row.kernel: row.seconds for row in short if row.kind == kind}
        reached = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in taken.items()) or "not measured"
        figures.append(Figure(f"one verdict, {kind}", f"<= {limit:.0f} s", reached, bool(taken) and max(taken.values()) <= limit))
    return figures


def clocks(pairs: Sequence[Row]) -> Figure:
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


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({part / whole:.1%})" if whole else "")
