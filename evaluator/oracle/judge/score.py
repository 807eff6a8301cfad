"""The score of a candidate from its sessions of timing, and the line that says it. Imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tritonsmith.evaluator.oracle.judge.suspicion import Clocks
from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess
from tritonsmith.evaluator.oracle.timing.paired import Paired, compare, spread
from tritonsmith.evaluator.oracle.timing.session import TimingSession
from tritonsmith.evaluator.schema import LaunchFacts, Timing, TimingKind


@dataclass(frozen=True)
class Timed:
    """What the first sessions of a verdict show."""

    first: TimingSession
    """The one against the strongest baseline."""
    paired: dict[str, Paired]
    """By baseline."""
    clocks: Clocks
    facts: LaunchFacts
    others: Sequence[TimingSession] = ()
    """Those against other baselines, where each has its own."""


def make_timing(
    sessions: Sequence[TimingSession], timed: Timed, baselines: BaselineProcess, floor_ms: float, raw: Path, notes: Sequence[str] = ()
) -> Timing:
    """The score against the strongest baseline over all sessions with it, and the ratio to every other one.

    Args:
        sessions: those against the strongest baseline.
        timed: what the first sessions showed.
        baselines: their settings and notes.
        floor_ms: no right kernel takes less.
        raw: where the samples are.
        notes: what else there is to note.
    """
    paired, best, clocks = timed.paired, timed.first.strongest, timed.clocks
    measurements = sorted((session.measurement for session in sessions), key=lambda measurement: measurement.ratio)
    intervals = [measurement.interval for measurement in measurements]
    middle = measurements[len(measurements) // 2]
    worst = max((session.control for session in sessions), key=lambda pair: abs(pair.ratio - 1.0))
    measured = f"baselines measured: {', '.join(paired)}"
    notes = [measured, *baselines.notes, *notes, *(note for session in sessions for note in session.notes)]
    notes.append(f"spread of the candidate's samples (IQR/median) {spread(paired[best].candidate):.1%}")
    if baselines.session.arithmetic.tf32:
        tf32 = [name for name, mode in baselines.modes.items() if mode % 2]
        notes.append(f"baselines with TF32 on: {', '.join(tf32) or 'none (off was faster)'}")
    forms_ms = {form: median(samples) for form, samples in timed.first.forms_ms.items()}
    return Timing(
        kind=TimingKind.MEASURED, median_ms=paired[best].candidate_ms,
        baselines_ms={name: pair.baseline_ms for name, pair in paired.items()}, baseline=best, score=middle.ratio,
        score_eager=paired["eager"].ratio if "eager" in paired else middle.ratio,
        interval=(min(low for low, _ in intervals), max(high for _, high in intervals)),
        ratios={name: pair.ratio for name, pair in paired.items()} | {best: middle.ratio},
        pairs=sum(measurement.pairs for measurement in measurements), raw=str(raw), notes=tuple(notes), control=worst.measurement,
        comparison=compare(intervals, paired[best].candidate_ms, worst.ratio),
        sessions=tuple(session.measurement for session in sessions), device_ms=clocks[1], wall_ms=clocks[0], floor_ms=floor_ms,
        form=timed.first.forms.chosen, forms_ms=forms_ms, host_ms=timed.first.host_ms,
    )  # fmt: skip


def describe_score(timing: Timing) -> str:
    """The score in one line."""
    words = timing.comparison.value if timing.comparison else "not compared"
    against = f"{timing.score:.2f}x the {timing.bar} ({timing.baseline}; {words})"
    form = f"; {timing.form_words}" if timing.form_words else ""
    return f"{timing.median_ms:.3f} ms, {against}, {timing.score_eager:.2f}x eager{form}"
