"""What a timed race says: many texts against the one that is best so far, checked and timed just long enough to drop the slower ones."""

from __future__ import annotations

from enum import StrEnum

from tritonsmith.evaluator.schema import Record, TimingKind

GAIN = 1.005
"""A ratio that is worth having; races tell smaller differences apart by luck only."""


class Fate(StrEnum):
    """What became of one text."""

    PRUNED = "pruned"
    """It does not compile or cannot be launched, or spills far more than the incumbent: found by compiling, without the card."""
    FAILED = "failed"
    """It does not run, or its first checked call is wrong."""
    SLOWER = "slower"
    """It was timed, or estimated, and dropped."""
    ALIKE = "alike"
    """Its estimate cannot be told from the incumbent's."""
    KEPT = "kept"
    """It was among the best to the end."""
    UNTIMED = "untimed"
    """The seconds of the race were spent before its turn."""


class RaceFigures(Record):
    """What a race found about one text."""

    reason: str = ""
    """Why it was pruned or failed, in one sentence."""
    ratio: float | None = None
    """The incumbent's time over its own: above 1 it is faster. By a race alone nothing is called fast."""
    interval: tuple[float, float] | None = None
    """About 95 % of the ratio; None for an estimate."""
    pairs: int = 0
    """Pairs of calls."""
    registers: int | None = None
    """The most registers per thread of its kernels."""
    spills: int | None = None
    """The most bytes of local memory per thread of its kernels."""
    shared_memory: int | None = None
    """The most bytes of shared memory per program of its kernels."""


class RaceRow(RaceFigures):
    """One text of a race."""

    sha: str
    fate: Fate


class RaceReport(Record):
    """The answer to one race."""

    incumbent: str
    """Sha of the text that all others ran against."""
    kind: TimingKind
    rows: tuple[RaceRow, ...] = ()
    """In the order in which the texts were given."""
    seconds: float = 0.0
    note: str = ""
    """Why nothing was timed, where nothing was."""
