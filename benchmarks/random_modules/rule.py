"""Whether results of a kernel are PyTorch's, element by element, also where rounding decides them. Imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from tritonsmith.evaluator.oracle.checks.measure import error_stats

_ROOM = 16.0
"""Times PyTorch's own error at an element, or a quarter of the type's machine epsilon, that an error may be."""
_SPREAD = 3.0
"""Times what moves of last places do to an element, besides."""
_ROUGH = 2.0**-6
"""Share of an element that moves change where rounding decides it."""

Tensors = Sequence[torch.Tensor]


@dataclass
class Range:
    """What PyTorch was seen to give at each element of a result.

    Args:
        own: its result.
        exact: the same in float64.
    """

    own: torch.Tensor
    exact: torch.Tensor

    def __post_init__(self) -> None:
        self.wide = torch.float64 if self.own.is_floating_point() else torch.int64
        self._least, self._greatest = self._ends()
        shape = self.own.shape
        self._nan, self._positive, self._negative = (torch.zeros(shape, dtype=torch.bool) for _ in range(3))
        self._low, self._high = (
            torch.full(shape, self._greatest, dtype=self.wide),
            torch.full(shape, self._least, dtype=self.wide),
        )
        self._signs = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
        self.note(self.own)
        self._noted = self._low.clone(), self._high.clone()
        self.note(self.exact)

    def _ends(self) -> tuple[float, float]:
        if self.wide == torch.int64:
            return torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
        return -float("inf"), float("inf")

    def note(self, seen: torch.Tensor) -> None:
        """Add what another run gave; one of another shape tells nothing."""
        if seen.shape != self.own.shape:
            return
        if self.wide == torch.int64:
            whole = seen.to(torch.int64)
            self._low, self._high = torch.minimum(self._low, whole), torch.maximum(self._high, whole)
            return
        rounded = seen.double()
        largest = torch.finfo(self.own.dtype).max
        self._nan |= rounded.isnan()
        self._positive |= seen.to(self.own.dtype) == float("inf")
        self._negative |= seen.to(self.own.dtype) == -float("inf")
        finite = rounded.isfinite() & (rounded.abs() <= largest * 1.0001)
        self._low = torch.where(finite, torch.minimum(self._low, rounded), self._low)
        self._high = torch.where(finite, torch.maximum(self._high, rounded), self._high)
        plus, minus = self._signs
        self._signs = plus | (finite & ~rounded.signbit()), minus | (finite & rounded.signbit())

    def find_away(self, ours: torch.Tensor) -> torch.Tensor:
        """Where a result lies away from all that was seen."""
        if self.wide == torch.int64:
            whole = ours.to(torch.int64)
            return (whole < self._low) | (whole > self._high)
        values = ours.double()
        room, spread = self._find_room(), self._high - self._low
        near = values.isfinite() & (values >= self._low - room) & (values <= self._high + room)
        plus, minus = self._signs
        zero = near & (values == 0) & (self._low == 0) & (self._high == 0)
        wrong_zero = zero & torch.where(ours.signbit(), ~minus, ~plus)
        same = (
            (values.isnan() & self._nan)
            | ((values == float("inf")) & self._positive)
            | ((values == -float("inf")) & self._negative)
        )
        blurred = (self._low < 0) & (self._high > 0) & (spread > _ROUGH * torch.maximum(-self._low, self._high))
        return ~((near & ~wrong_zero) | same | blurred)  # of what may have either sign no digit is known

    def is_rough(self) -> torch.Tensor:
        """Where rounding decides an element: other runs gave visibly other values."""
        if self.wide == torch.int64:
            return self._low != self._high
        kinds = (
            self._nan.int() + self._positive.int() + self._negative.int() + (self._low <= self._high).int()
        )
        spread = self._high - self._low
        plus, minus = self._signs
        largest = torch.maximum(self._low.abs(), self._high.abs())
        return (kinds > 1) | (spread > _ROUGH * largest) | ((largest == 0) & plus & minus)

    def _find_room(self) -> torch.Tensor:
        info = torch.finfo(self.own.dtype)
        own, exact = self.own.double(), self.exact.double()
        known = own.isfinite() & exact.isfinite()
        error = torch.where(known, (own - exact).abs(), 0.0)
        largest = torch.maximum(self._low.abs(), self._high.abs())
        seen = self._low <= self._high
        base = torch.maximum(error, largest.where(seen, torch.zeros_like(largest)) * (info.eps / 4))
        spread = torch.where(seen, self._high - self._low, 0.0)
        return _ROOM * base.clamp(min=info.smallest_normal * info.eps) + _SPREAD * spread


def find_other_form(got: Tensors, own: Tensors) -> str:
    """What is wrong with the number, the shapes or the types of results; empty where nothing."""
    if len(got) != len(own):
        return f"{len(got)} results for {len(own)}"
    for number, (ours, theirs) in enumerate(zip(got, own, strict=True)):
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return f"result {number} is {ours.dtype}{list(ours.shape)} for {theirs.dtype}{list(theirs.shape)}"
    return ""


@dataclass(frozen=True)
class Comparison:
    """What a kernel gives otherwise than PyTorch.

    Args:
        phrase: the first place; empty where all is right.
        number: of the result.
        rough: whether rounding, an order of zeros or an order of equal values decides some element.
        away: where each result is wrong; empty where all is right.
    """

    phrase: str
    number: int = 0
    rough: bool = False
    away: tuple[torch.Tensor, ...] = ()

    def join(self, other: Comparison) -> Comparison:
        """That with either of two expectations, element by element: what PyTorch gives with equal elements in other orders."""
        if not self.phrase or not other.phrase:
            return Comparison("", rough=self.rough or bool(self.phrase))
        if any(bool((mine & theirs).any()) for mine, theirs in zip(self.away, other.away, strict=True)):
            return self
        return Comparison("", rough=True)


def compare(
    got: Tensors, own: Tensors, exact: Tensors, others: Iterable[Tensors], together: bool = False
) -> Comparison:
    """Compare results of the same shapes.

    Args:
        got: the kernel's.
        own: PyTorch's.
        exact: PyTorch's in float64.
        others: what else it may give; asked for where results differ.
        together: whether a floating result that the evaluator's rule accepts as a whole is right. The error of a product of matrices goes
            by the largest operands of its lines, so small elements have larger errors.
    """
    ranges = [Range(theirs, wide) for theirs, wide in zip(own, exact, strict=True)]
    first = [one.find_away(ours) for one, ours in zip(ranges, got, strict=True)]
    if not any(bool(away.any()) for away in first):
        return Comparison("")
    for outputs in others:
        for one, seen in zip(ranges, outputs, strict=True):
            one.note(seen)
        if not any(bool(one.find_away(ours).any()) for one, ours in zip(ranges, got, strict=True)):
            rough = any(bool((one.is_rough() & away).any()) for one, away in zip(ranges, first, strict=True))
            return Comparison("", rough=rough)
    places = [one.find_away(ours) for one, ours in zip(ranges, got, strict=True)]
    for away, one, ours in zip(places, ranges, got, strict=True):
        if bool(away.any()) and together and _is_accepted(ours, one.own, one.exact):
            away.zero_()
    for number, (away, ours, theirs) in enumerate(zip(places, got, own, strict=True)):
        if bool(away.any()):
            return Comparison(f"result {number}: {_describe(away, ours, theirs)}", number, away=tuple(places))
    return Comparison("", rough=True)


def _is_accepted(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether the evaluator's rule accepts a floating result."""
    if not ours.is_floating_point():
        return False
    floor = torch.finfo(ours.dtype).eps / 2
    return error_stats([ours], [exact]).within(error_stats([theirs], [exact]).lift_to_share(floor))


def _describe(wrong: torch.Tensor, ours: torch.Tensor, theirs: torch.Tensor) -> str:
    place = tuple(wrong.nonzero()[0].tolist())
    return f"{ours[place].item()!r} for {theirs[place].item()!r} at {list(place)}, {int(wrong.sum())} of {wrong.numel()} elements"
