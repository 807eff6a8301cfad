"""Every timed output is looked at: beside the baseline's output on the same inputs, and where that is unusual by the oracle. Imports torch.

An oracle in float64 for each of some hundred timed calls would take longer than the calls. The baseline computes the same inputs in the
same pair anyway, in a process in which nothing of the candidate runs, so each timed output is held against the baseline's. How far apart
two right results lie is learnt from calls that the oracle accepted; a call further apart is judged by the oracle, which alone refuses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

_SMALL = 1e-12
"""Squares of less may vanish in float32 (its least is 1e-45), and many of them be missing in a sum."""
_USUAL = 1.5
"""A distance up to so many times the largest that the oracle accepted needs no oracle."""


class Distance(NamedTuple):
    """How far two results lie apart, in units of the second one's root mean square; infinite where whole or non-finite values differ."""

    worst: float
    mean: float
    """Root mean square of the differences."""


_NONE, _FAR = Distance(0.0, 0.0), Distance(math.inf, math.inf)


def distances(mine: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> list[Distance]:
    """Output by output: one that is all rounding noise hides no other."""
    return [_distance(one, two) for one, two in zip(mine, theirs, strict=True)]


def _distance(one: torch.Tensor, two: torch.Tensor) -> Distance:
    if not one.numel():
        return _NONE
    if not one.is_floating_point():
        return _NONE if torch.equal(one, two) else _FAR
    near = _near(one, two)
    return _anywhere(one.double(), two.double()) if near is None else near


def _near(one: torch.Tensor, two: torch.Tensor) -> Distance | None:
    """In five passes over the values, without doubles; None where a value is not finite, or too large or too small for squares."""
    one, two = (side if side.dtype is torch.float64 else side.float() for side in (one, two))
    norm, root = torch.linalg.vector_norm, math.sqrt(one.numel())
    gap = one - two
    largest, average, unit = torch.stack([norm(gap, math.inf), norm(gap) / root, norm(two) / root]).tolist()
    if not math.isfinite(largest + average + unit) or 0.0 < largest < _SMALL or unit < _SMALL:
        return None
    return Distance(largest / unit, average / unit)


def _anywhere(one: torch.Tensor, two: torch.Tensor) -> Distance:
    known = torch.isfinite(two)
    odd = (torch.isfinite(one) != known) | (~known & (one != two) & ~(one.isnan() & two.isnan()))
    gap = torch.where(known, one - two, 0.0).abs()
    scale = torch.where(known, two, 0.0).square().mean().sqrt()
    some, largest, average, unit = torch.stack([odd.any().double(), gap.max(), gap.square().mean().sqrt(), scale]).tolist()
    if some or not math.isfinite(largest + average + unit):
        return _FAR
    return Distance(largest / (unit or 1.0), average / (unit or 1.0))


class Screen:
    """What is usual between a candidate and one baseline; nothing is before the oracle has accepted a call."""

    def __init__(self) -> None:
        self._accepted: list[Distance] = []

    def usual(self, found: Sequence[Distance]) -> bool:
        """Whether a call needs no oracle: each output lies no further from the baseline's than accepted ones did."""
        return bool(self._accepted) and all(
            one.worst <= _USUAL * known.worst and one.mean <= _USUAL * known.mean for one, known in zip(found, self._accepted, strict=True)
        )

    def accept(self, found: Sequence[Distance]) -> None:
        """The oracle accepted this call; an output that is infinitely far off (equal maxima, say) tells nothing of the next."""
        known = self._accepted or [_NONE] * len(found)
        self._accepted = [
            before if math.isinf(one.worst) else Distance(max(before.worst, one.worst), max(before.mean, one.mean))
            for one, before in zip(found, known, strict=True)
        ]
