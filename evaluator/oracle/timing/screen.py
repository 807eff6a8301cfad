"""Every timed output is compared with the baseline's output on the same inputs, and by the oracle where that is unusual. Imports torch.

An oracle in float64 for each of some hundred timed calls would take longer than the calls. The baseline computes the same inputs in the
same pair anyway, in a process in which nothing of the candidate runs. How far apart two right results lie is learnt from calls that the
oracle accepted. A call further apart is judged by the oracle, which alone refuses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from tritonsmith.evaluator.oracle.checks.measure import cut_boxes, equal_bits

_TOO_SMALL = 2e-14
"""Squares below 1e-38 vanish in float32. Of 2e9 values that vanish beside one of this size, 5 % of the sum of squares are missing."""
_USUAL_FACTOR = 1.5
"""A distance up to so many times the largest that the oracle accepted needs no oracle."""


class Distance(NamedTuple):
    """How far two results lie apart, in units of the second one's root mean square; infinite where non-finite values differ."""

    worst: float
    mean: float
    """Root mean square of the differences; for whole numbers `_measure_numbers`."""


Pieces = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Two tensors, piece by piece."""
_NONE = Distance(0.0, 0.0)
"""Between equal results."""
_FAR = Distance(math.inf, math.inf)
"""Between results of which some non-finite values differ."""


def measure_distances(outputs: Sequence[torch.Tensor], baseline: Sequence[torch.Tensor]) -> list[Distance]:
    """How far outputs lie from the baseline's, one by one: an output that is all rounding noise hides no other."""
    return [_measure_distance(first, second) for first, second in zip(outputs, baseline, strict=True)]


def _measure_distance(first: torch.Tensor, second: torch.Tensor) -> Distance:
    if not first.numel():
        return _NONE
    if not first.is_floating_point():
        return _NONE if equal_bits(first, second) else _measure_numbers(first, second)
    pieces = [(first[box], second[box]) for box in cut_boxes(first.shape)]
    near = _measure_fast(pieces, math.sqrt(first.numel()))
    return _measure_anywhere(pieces, math.sqrt(first.numel())) if near is None else near


def _measure_numbers(first: torch.Tensor, second: torch.Tensor) -> Distance:
    """Of whole numbers, booleans as their bytes: the largest difference, and the root of the share that differs."""
    worst, count = 0.0, 0
    for box in cut_boxes(first.shape):
        one, other = (tensor[box].view(torch.uint8) if tensor.dtype == torch.bool else tensor[box] for tensor in (first, second))
        gap = (one.double() - other.double()).abs()
        worst, count = max(worst, float(gap.max())), count + int((gap > 0).sum())
    return Distance(worst, math.sqrt(count / first.numel()))


def _measure_fast(pieces: Pieces, root: float) -> Distance | None:
    """In five passes over the values, without doubles; None where a value is not finite, or too large or too small for squares."""
    norm, rows = torch.linalg.vector_norm, []
    for one, other in pieces:
        mine, theirs = (tensor if tensor.dtype is torch.float64 else tensor.float() for tensor in (one, other))
        gap = mine - theirs
        rows.append(torch.stack([norm(gap, math.inf), norm(gap) / root, norm(theirs) / root]))
    figures = torch.stack(rows).tolist()
    largest = max(row[0] for row in figures)
    average, unit = (math.hypot(*(row[place] for row in figures)) for place in (1, 2))
    if not all(math.isfinite(figure) for row in figures for figure in row) or 0.0 < largest < _TOO_SMALL or unit < _TOO_SMALL:
        return None
    return Distance(largest / unit, average / unit)


def _measure_anywhere(pieces: Pieces, root: float) -> Distance:
    norm, rows = torch.linalg.vector_norm, []
    for one, other in pieces:
        first, second = one.double(), other.double()
        known = torch.isfinite(second)
        odd = (torch.isfinite(first) != known) | (~known & (first != second) & ~(first.isnan() & second.isnan()))
        gap = torch.where(known, first - second, 0.0).abs()
        rows.append(torch.stack([odd.any().double(), gap.max(), norm(gap) / root, norm(torch.where(known, second, 0.0)) / root]))
    figures = torch.stack(rows).tolist()
    if any(row[0] or not all(map(math.isfinite, row)) for row in figures):
        return _FAR
    largest = max(row[1] for row in figures)
    average, unit = (math.hypot(*(row[place] for row in figures)) for place in (2, 3))
    return Distance(largest / (unit or 1.0), average / (unit or 1.0))


class Screen:
    """What is usual between a candidate and one baseline; nothing is before the oracle has accepted a call."""

    def __init__(self) -> None:
        self._accepted: list[Distance] = []

    def is_usual(self, distances: Sequence[Distance]) -> bool:
        """Whether a call needs no oracle: each output lies no further from the baseline's than accepted ones did."""
        return bool(self._accepted) and all(
            new.worst <= _USUAL_FACTOR * known.worst and new.mean <= _USUAL_FACTOR * known.mean
            for new, known in zip(distances, self._accepted, strict=True)
        )

    def accept(self, distances: Sequence[Distance]) -> None:
        """Learn from a call that the oracle accepted; an output that is infinitely far off (equal maxima, say) says nothing of the next."""
        accepted = self._accepted or [_NONE] * len(distances)
        self._accepted = [
            known if math.isinf(new.worst) else Distance(max(known.worst, new.worst), max(known.mean, new.mean))
            for new, known in zip(distances, accepted, strict=True)
        ]
