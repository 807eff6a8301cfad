"""When is a result right? Error against a float64 oracle, bounded by the reference's own error in the task's precision class.

A result y is accepted iff it is finite where the oracle is, and with e = y - y64 and e_ref = y_ref - y64

    rms(e) <= 4 max(rms(e_ref), eps/4 rms(y64))      and      max|e| <= 8 max(max|e_ref|, eps/4 max|y64|),

eps being the machine epsilon of the output's dtype. The factors separated 69 wrong from 24 legitimate variants over six input
distributions and six shapes. Integer and boolean outputs must be equal.

An average hides what is wrong in one place only: the first steps of a recurrence that forgets, or one small output beside a large one.
So the rule is also applied to parts: each of several outputs, and the first and last positions of an output's two leading axes. A part's
e_ref is at least the reference's relative error over all outputs (for a whole output) or over the same output (for an edge), so that a
place where the reference happens to be exact does not refuse an honest rounding. Nor does an edge whose errors come from a few places on
both sides, as where a ReLU leaves one value of a column: the ratio of two single roundings may be anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tritonsmith.evaluator.schema import Correctness, PrecisionClass

RMS_FACTOR = 4.0
MAX_FACTOR = 8.0
ROW_FACTOR = 3.0
"""For what the errors of a row have in common: honest kernels are within 1.5 times the reference, and a root mean square over 64 rows or
more varies little."""
_ONE_ROUNDING = 0.5 / math.sqrt(3.0)
"""Of a type's machine epsilon: the root mean square of one rounding to the nearest at a mantissa of 1, where it is largest. A row's factor
may be rounded so to the type of the result."""
_NO_FACTOR = 2.0**-13
"""A factor that all elements of a finer result in a task of 16 bits may have in common: a sixteenth of bfloat16's largest rounding."""
_LIKE_THE_REFERENCE = 1.5
"""Times the reference's own factor that a candidate's may be."""
_CERTAIN = 6.0
"""Deviations by which a factor in common is no matter of chance."""
SPLIT_FACTOR = 32.0
"""The `split` class admits this many times the reference's own error, in the root mean square and in the largest error."""
SPLIT_GAIN = 10.0
"""And it must be this many times better than TF32 on the same inputs."""
EDGE_SLACK = 2.0
"""Factor for edges: errors of neighbours can go together (one column of running sums), which leaves few independent ones there."""
FEWEST = 64
"""Elements from which on errors vary little, so that the rule holds as it stands."""
NEAR_FACTOR = 2.0
"""Errors up to so many times what the rule allows are those of a kernel at the edge of its accuracy (assumed). Skipped work, stale results
and products of fewer bits are off by hundreds of times."""
_FEWEST_PLACES = 8.0
"""In a part whose errors come from fewer places two honest errors may differ by more than the factors; of 64 elements with errors alike
these are 20 (normal) to 64 (equal)."""


@dataclass(frozen=True)
class Part:
    """Error within one part of the outputs."""

    tensor: int
    words: str
    """Which part, for the author."""
    whole: bool
    rms: float
    max_abs: float
    oracle_rms: float
    oracle_max: float
    epsilon: float
    places: float
    """How many places the error of an edge comes from: `(sum e^2)^2 / sum e^4`, the participation ratio, n for n equal errors; infinite
    for a whole output, and where the error is a floor and no sample."""
    slack: float = 1.0
    """Factor of the rule where errors are few, or go together."""
    count: int = 0
    """Its elements."""

    def within(self, rms: float, max_abs: float) -> bool:
        """The rule for given errors of the reference, floor and an edge's slack included."""
        floor, slack = self.epsilon / 4, self.slack
        return self.rms <= slack * RMS_FACTOR * max(rms, floor * self.oracle_rms) and self.max_abs <= slack * MAX_FACTOR * max(
            max_abs, floor * self.oracle_max
        )

    def lift_to(self, rms: float, max_abs: float) -> Part:
        """The same with errors that are not below these."""
        places = math.inf if rms > self.rms or max_abs > self.max_abs else self.places
        return replace(self, rms=max(self.rms, rms), max_abs=max(self.max_abs, max_abs), places=places)


@dataclass(frozen=True)
class ErrorStats:
    """Error of one set of tensors against the float64 oracle, over all of them."""

    rms: float
    max_abs: float
    mean_abs: float
    oracle_rms: float
    oracle_max: float
    epsilon: float
    exact: bool
    """False when an integer output differs or a non-finite value stands where the oracle is finite (or the reverse)."""
    worst_tensor: int = 0
    worst_index: tuple[int, ...] = ()
    worst_expected: float | None = None
    worst_actual: float | None = None
    parts: tuple[Part, ...] = ()
    row_scales: tuple[float, ...] = ()
    """For each output: the error that the elements of a row have in common (`row_scales.py`)."""
    factors: tuple[tuple[float, float], ...] = ()
    """In a task of 16 bits, for each output: the factor less one that all its errors have in common, and the deviation of such a factor
    by chance (`row_scales.CommonFactor`)."""
    unwritten: int = 0
    """Elements of the worst tensor that still hold the poison where something else is expected."""

    def within(self, reference: ErrorStats) -> bool:
        """The acceptance rule of the module's docstring."""
        if not (self.exact and self.within_on_average(reference) and self.wrong_part(reference) is None):
            return False
        return self.wrong_rows(reference) is None and self.wrong_factor(reference) is None

    @property
    def rests_on_few(self) -> bool:
        """Whether few elements make the error: so few of the largest one would. Another honest rounding may give several times as much."""
        count = sum(part.count for part in self.parts if part.whole)
        return self.max_abs > 0 and count * (self.rms / self.max_abs) ** 2 < _FEWEST_PLACES  # squares of large errors overflow

    def wrong_rows(self, reference: ErrorStats) -> int | None:
        """The first output whose rows have more of an error in common than the rule allows."""
        epsilons = {part.tensor: part.epsilon for part in self.parts if part.whole}
        pairs = enumerate(zip(self.row_scales, reference.row_scales, strict=True))
        limits = ((number, own, max(ROW_FACTOR * theirs, _ONE_ROUNDING * epsilons.get(number, 0.0))) for number, (own, theirs) in pairs)
        return next((number for number, own, limit in limits if own > limit), None)

    def wrong_factor(self, reference: ErrorStats) -> int | None:
        """The first output whose errors all have a factor in common that no rounding explains."""
        pairs = enumerate(zip(self.factors, reference.factors, strict=False))
        for number, ((own, noise), (theirs, their_noise)) in pairs:
            if own > max(_LIKE_THE_REFERENCE * theirs, _CERTAIN * max(noise, their_noise), _NO_FACTOR):
                return number
        return None

    def within_on_average(self, reference: ErrorStats) -> bool:
        """The rule over all elements together."""
        floor, slack = self.epsilon / 4, self._slack
        return self.rms <= slack * RMS_FACTOR * max(reference.rms, floor * self.oracle_rms) and (
            self.max_abs <= slack * MAX_FACTOR * max(reference.max_abs, floor * self.oracle_max)
        )

    @property
    def _slack(self) -> float:
        """What all outputs are given together where few elements make their scale, as each of them is by itself.

        How many make it is `(sum y^2)^2 / sum y^4`, with the mean of `y^2` over its output for each element: one large number next to many
        small ones counts as one.
        """
        whole = [part for part in self.parts if part.whole]
        if not whole or max(part.slack for part in whole) <= 1.0:
            return 1.0
        largest = max(part.oracle_rms for part in whole)
        if not 0.0 < largest < math.inf:
            return 1.0
        shares = [(part.count, (part.oracle_rms / largest) ** 2) for part in whole]
        squares, fourths = sum(count * share for count, share in shares), sum(count * share**2 for count, share in shares)
        return max(1.0, math.sqrt(FEWEST * fourths) / squares)

    def wrong_part(self, reference: ErrorStats) -> Part | None:
        """The first part that breaks the rule by itself."""
        around: ErrorStats | Part = reference
        for part, own in zip(self.parts, reference.parts, strict=True):
            around = reference.around(own) if own.whole else around
            if max(part.places, own.places) < _FEWEST_PLACES:
                continue
            share_rms, share_max = _share(around.rms, around.oracle_rms), _share(around.max_abs, around.oracle_max)
            if not part.within(max(own.rms, share_rms * own.oracle_rms), max(own.max_abs, share_max * own.oracle_max)):
                return part
            around = own if own.whole else around
        return None

    def around(self, part: Part) -> ErrorStats | Part:
        """What a whole output's relative error is compared with: all outputs, or the worst one of its type where types differ."""
        alike = [other for other in self.parts if other.whole and other.epsilon == part.epsilon]
        if all(other.epsilon == part.epsilon for other in self.parts):
            return self
        return max(alike, key=lambda other: _share(other.rms, other.oracle_rms))

    def bound_split(self, tf32: ErrorStats) -> ErrorStats:
        """What stands for the reference's error in the class `split`, place by place; self is its `ieee` error."""
        parts = tuple(
            replace(part, rms=rms, max_abs=max_abs)
            for part, coarse in zip(self.parts, tf32.parts, strict=True)
            for rms, max_abs in [_bound_split(part, coarse)]
        )
        rms, max_abs = _bound_split(self, tf32)
        return replace(self, rms=rms, max_abs=max_abs, parts=parts)

    def lift_to_share(self, share: float) -> ErrorStats:
        """At least this share of the result for an error, place by place: for the reference's side of the rule."""
        parts = tuple(part.lift_to(share * part.oracle_rms, share * part.oracle_max) for part in self.parts)
        return replace(
            self, rms=max(self.rms, share * self.oracle_rms), max_abs=max(self.max_abs, share * self.oracle_max), parts=parts,
            row_scales=tuple(max(scale, share) for scale in self.row_scales),
            factors=tuple((max(own, share), noise) for own, noise in self.factors),
        )  # fmt: skip

    def lift_edges_to_share(self, share: float) -> ErrorStats:
        """At least this share of the whole output's scale for the error of its edges, whose own results may be small by chance."""
        parts, rms, largest = [], 0.0, 0.0
        for part in self.parts:
            if part.whole:
                rms, largest = share * part.oracle_rms, share * part.oracle_max
                parts.append(part)
            else:
                parts.append(part.lift_to(rms, largest))
        return replace(self, parts=tuple(parts))

    @property
    def relative_rms(self) -> float:
        """Root mean square error as a share of the oracle's root mean square."""
        return _share(self.rms, self.oracle_rms)

    def scale_errors(self, factor: float, max_factor: float | None = None) -> ErrorStats:
        """The same with every error multiplied; `max_factor` stands for largest errors, where theirs is another one."""
        largest = factor if max_factor is None else max_factor
        parts = tuple(replace(part, rms=part.rms * factor, max_abs=part.max_abs * largest) for part in self.parts)
        scales = tuple(scale * factor for scale in self.row_scales)
        common = tuple((own * factor, noise * factor) for own, noise in self.factors)
        return replace(self, rms=self.rms * factor, max_abs=self.max_abs * largest, parts=parts, row_scales=scales, factors=common)

    def widen(self, other: ErrorStats) -> ErrorStats:
        """The larger of two errors, place by place: for the reference's side of the rule."""
        parts = tuple(
            replace(a, rms=max(a.rms, b.rms), max_abs=max(a.max_abs, b.max_abs), places=max(a.places, b.places))
            for a, b in zip(self.parts, other.parts, strict=True)
        )
        exact = self.exact and other.exact
        return replace(
            self, rms=max(self.rms, other.rms), max_abs=max(self.max_abs, other.max_abs), exact=exact, parts=parts,
            row_scales=tuple(map(max, self.row_scales, other.row_scales)),
        )  # fmt: skip


def _bound_split(own: ErrorStats | Part, tf32: ErrorStats | Part) -> tuple[float, float]:
    """Root mean square and largest error that, times the factors of the rule, give the limits of `split`.

    Where TF32 is no worse than the reference, as in a task without products, these are the reference's own errors.
    """
    floor = own.epsilon / 4
    rms = min(SPLIT_FACTOR * max(own.rms, floor * own.oracle_rms), tf32.rms / SPLIT_GAIN) / RMS_FACTOR
    largest = min(SPLIT_FACTOR * max(own.max_abs, floor * own.oracle_max), tf32.max_abs / SPLIT_GAIN) / MAX_FACTOR
    return max(own.rms, rms), max(own.max_abs, largest)


def _share(error: float, scale: float) -> float:
    return error / scale if scale else 0.0


@dataclass(frozen=True)
class Trial:
    """One checked call: the candidate's error and the reference's own in every arithmetic that was computed."""

    candidate: ErrorStats
    reference: dict[PrecisionClass, ErrorStats]
    finite: bool = True
    """Whether the oracle itself is finite everywhere on these inputs."""
    hidden: bool = False
    """Whether the author may not learn what these inputs were like."""
    blurred: bool = False
    """Whether the reference's own rounding hides what is right on these inputs."""
    inputs: str = ""
    """What its inputs were like, in words."""
    left: frozenset[int] = frozenset()
    """Numbers of the results that are inputs which the reference writes to and the candidate left as they were."""

    def own(self, asked: PrecisionClass) -> ErrorStats:
        """The reference's error in the arithmetic that it has in a class."""
        return self.reference[asked.arithmetic]

    def bound(self, precision: PrecisionClass) -> ErrorStats | None:
        """What the candidate's error is compared with for a class; None where the reference was not run for it."""
        if precision is not PrecisionClass.SPLIT:
            return self.reference.get(precision)
        ieee, tf32 = self.reference.get(PrecisionClass.IEEE), self.reference.get(PrecisionClass.TF32)
        return ieee.bound_split(tf32) if ieee and tf32 else None

    def reaches(self, precision: PrecisionClass) -> bool:
        """Whether the candidate meets the rule of just this class."""
        bound = self.bound(precision)
        return bound is not None and self.candidate.within(bound)

    def is_near(self, asked: PrecisionClass) -> bool:
        """Whether it would meet the class asked for with errors `NEAR_FACTOR` times smaller."""
        bound = self.bound(asked)
        return bound is not None and self.candidate.scale_errors(1.0 / NEAR_FACTOR).within(bound)

    def meets(self, asked: PrecisionClass) -> bool:
        """Whether this trial reaches the class asked for (or a stricter one)."""
        return accepted(reached_class([self]), asked)


def list_arithmetic(asked: PrecisionClass) -> list[PrecisionClass]:
    """What the reference computes in for every class up to the one asked for; `split` is compared with TF32 too."""
    classes = list(PrecisionClass)
    last = PrecisionClass.TF32 if asked is PrecisionClass.SPLIT else asked
    return list(dict.fromkeys(precision.arithmetic for precision in classes[: classes.index(last) + 1]))


def reached_class(trials: list[Trial]) -> PrecisionClass | None:
    """The strictest class whose rule every trial meets."""
    for precision in PrecisionClass:
        if all(trial.reaches(precision) for trial in trials):
            return precision
    return None


def accepted(reached: PrecisionClass | None, asked: PrecisionClass) -> bool:
    """Whether a candidate of the reached class may stand for a task of the asked one."""
    order = list(PrecisionClass)
    return reached is not None and order.index(reached) <= order.index(asked)


def worst_trial(trials: list[Trial], asked: PrecisionClass) -> Trial:
    """A refused trial before an accepted one, then the one with the largest error over the reference's error."""
    return max(trials, key=lambda trial: (not trial.candidate.exact, not trial.meets(asked), _relative_error(trial, asked)))


def summarize(trials: list[Trial], asked: PrecisionClass) -> Correctness:
    """Figures of the worst trial and the class reached over all; values of hidden inputs are left out."""
    worst = worst_trial(trials, asked)
    candidate, own = worst.candidate, worst.own(asked)
    scale = candidate.oracle_rms or 1.0
    return Correctness(
        max_abs_err=candidate.max_abs, mean_abs_err=candidate.mean_abs, err_vs_oracle=candidate.rms / scale,
        reference_err_vs_oracle=own.rms / scale, reference_max_abs_err=own.max_abs, precision_class=reached_class(trials),
        trials=len(trials), worst_index=candidate.worst_index,
        worst_expected=None if worst.hidden else _drop_non_finite(candidate.worst_expected),
        worst_actual=None if worst.hidden else _drop_non_finite(candidate.worst_actual), fell_on="" if worst.meets(asked) else worst.inputs,
    )  # fmt: skip


def _relative_error(trial: Trial, asked: PrecisionClass) -> float:
    own = trial.own(asked)
    return trial.candidate.rms / max(own.rms, own.epsilon / 4 * own.oracle_rms, 1e-300)


def _drop_non_finite(value: float | None) -> float | None:
    """JSON has no NaN or infinity: a non-finite value is left out, the message says so in words."""
    return value if value is not None and abs(value) < float("inf") else None
