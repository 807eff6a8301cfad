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

_USUAL = 1.5
"""A distance up to so many times the largest that the oracle accepted needs no oracle."""


class Distance(NamedTuple):
    """How far two results lie apart, in units of the second one's root mean square; infinite where whole or non-finite values differ."""

    worst: float
    mean: float
    """Root mean square of the differences."""


def distance(mine: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> Distance:
    """The largest distance over the outputs, tensor by tensor."""
    worst = mean = 0.0
    for one, two in zip(mine, theirs, strict=True):
        if not one.numel():
            continue
        if not one.is_floating_point():
            if not torch.equal(one, two):
                return Distance(math.inf, math.inf)
            continue
        one, two = one.float(), two.float()
        known = torch.isfinite(two)
        odd = (torch.isfinite(one) != known) | (~known & (one != two) & ~(one.isnan() & two.isnan()))
        gap = torch.where(known, one - two, 0.0).abs()
        scale = torch.where(known, two, 0.0).square().mean().sqrt()
        some, largest, average, unit = torch.stack([odd.any().float(), gap.max(), gap.square().mean().sqrt(), scale]).tolist()
        if some:
            return Distance(math.inf, math.inf)
        unit = unit or 1.0
        worst, mean = max(worst, largest / unit), max(mean, average / unit)
    return Distance(worst, mean)


class Screen:
    """What is usual between a candidate and one baseline; nothing is before the oracle has accepted a call."""

    def __init__(self) -> None:
        self._accepted: Distance | None = None

    def usual(self, found: Distance) -> bool:
        """Whether a call needs no oracle: its result lies no further from the baseline's than accepted ones did."""
        known = self._accepted
        return known is not None and found.worst <= _USUAL * known.worst and found.mean <= _USUAL * known.mean

    def accept(self, found: Distance) -> None:
        """The oracle accepted this call; one that is infinitely far off (other whole numbers, both right) says nothing of the next."""
        if math.isinf(found.worst):
            return
        known = self._accepted or found
        self._accepted = Distance(max(known.worst, found.worst), max(known.mean, found.mean))
