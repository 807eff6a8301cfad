"""Errors that many elements have in common, hidden below the rounding of each. Imports torch.

Where a row is divided by a sum (a norm, a softmax) and the sum is rounded to 16 bits, every element is off by one factor. It is as large
as the rounding of each element by itself, so an average over elements says little. But roundings of elements cancel along a row, and a
common factor does not. So for each row the error's part along the result is taken, `sum(e y) / sum(y y)`. Its root mean square over the
rows is compared with the reference's, and may be as large as one rounding of the factor to the result's type.

A result that is finer than 16 bits may be made of values of 16 bits: a scale of a row, or whole numbers that it rounds to. Roundings of
these have no sign in common over a whole result, and a wrong factor has. So the same share is taken over all elements together.
"""

from __future__ import annotations

import math

import torch

_LEAST_EPSILON = 2.0**-10
"""Machine epsilon of float16: outputs of finer types show such an error on average."""
_SHORTEST = 32
"""A row with fewer elements hides nothing."""
_FEWEST_ROWS = 16
"""Of fewer rows, elements are the samples of a common factor."""
_FEWEST = 64
"""Of fewer rows the root mean square is no measure."""
_CHUNK = 1 << 23
"""Elements that are looked at together; their float64 copies take 64 MB each."""


class RowScale:
    """What the errors of an output's rows (its last axis) have in common, from pieces of it.

    Args:
        like: a tensor of the output's shape and type; its values are not read.
    """

    def __init__(self, like: torch.Tensor) -> None:
        self._length = like.shape[-1] if like.ndim else 0
        self._epsilon = torch.finfo(like.dtype).eps if like.is_floating_point() else 0.0
        self._judged = self._epsilon >= _LEAST_EPSILON and self._length >= _SHORTEST and like.numel() >= _FEWEST * self._length
        self._squares, self._count = 0.0, 0

    def note(self, got: torch.Tensor, want: torch.Tensor) -> None:
        """Add a piece of some rows."""
        if not self._judged or got.shape[-1] != self._length:
            return
        rows, expected = got.reshape(-1, self._length), want.reshape(-1, self._length)
        count = max(1, _CHUNK // self._length)
        for ours, theirs in zip(rows.split(count), expected.split(count), strict=True):
            result = torch.nan_to_num(theirs.double(), nan=0.0, posinf=0.0, neginf=0.0)
            error = torch.nan_to_num(ours.double(), nan=0.0, posinf=0.0, neginf=0.0) - result
            share = (error * result).sum(-1) / (result * result).sum(-1).clamp(min=torch.finfo(torch.float64).tiny)
            self._squares += float((share * share).sum())
        self._count += len(rows)

    def finish(self) -> float:
        """Root mean square over the rows of the error along the result, and at least what one rounding of each element leaves.

        0 where it would say nothing.
        """
        if self._count < _FEWEST:
            return 0.0
        own = self._epsilon / 4 / math.sqrt(self._length)  # independent roundings of the elements
        return max(own, math.sqrt(self._squares / self._count))


class CommonFactor:
    """The factor that all errors of a result have in common, from whole results; of results that are finer than 16 bits.

    Errors of one row may go together, as those of codes whose scale was rounded. So rows are the samples that show what chance makes.

    Args:
        like: a tensor of the result's shape and type; its values are not read.
    """

    def __init__(self, like: torch.Tensor) -> None:
        codes = (torch.int8, torch.uint8, torch.int16, torch.int32)  # int64 numbers are places
        fine = like.is_floating_point() and torch.finfo(like.dtype).eps < _LEAST_EPSILON
        self._length = like.shape[-1] if like.ndim and like.numel() >= _FEWEST_ROWS * like.shape[-1] else 1
        self._judged = like.numel() >= _FEWEST and (fine or like.dtype in codes)
        self._sums = [0.0] * 5
        """Over rows, of p and s, the sums of error times result and of squares of the result: of p, s, p^2, p s and s^2."""

    def note(self, got: torch.Tensor, want: torch.Tensor) -> None:
        """Add a piece of some rows."""
        if not self._judged:
            return
        rows, count = got.reshape(-1, self._length), max(1, _CHUNK // self._length)
        for ours, theirs in zip(rows.split(count), want.reshape(-1, self._length).split(count), strict=True):
            result = torch.nan_to_num(theirs.double(), nan=0.0, posinf=0.0, neginf=0.0)
            error = torch.nan_to_num(ours.double(), nan=0.0, posinf=0.0, neginf=0.0) - result
            p, s = (error * result).sum(-1), result.square().sum(-1)
            found = torch.stack([p.sum(), s.sum(), p.square().sum(), (p * s).sum(), s.square().sum()]).tolist()
            self._sums = [old + new for old, new in zip(self._sums, found, strict=True)]

    def finish(self) -> tuple[float, float]:
        """The factor less one, and the deviation that it has by chance; zeros where it would say nothing."""
        p, s, pp, ps, ss = self._sums
        if not self._judged or not 0.0 < s < math.inf:
            return 0.0, 0.0
        factor = p / s
        return abs(factor), math.sqrt(max(0.0, pp - 2.0 * factor * ps + factor * factor * ss)) / s
