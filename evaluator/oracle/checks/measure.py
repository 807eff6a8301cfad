"""Errors of tensors against the float64 oracle, measured piece by piece: no temporary is larger than 256 MB. Imports torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from tritonsmith.evaluator.oracle.checks.correctness import EDGE_SLACK, FEWEST, ErrorStats, Part
from tritonsmith.evaluator.oracle.checks.row_scales import CommonFactor, RowScale

PIECE = 1 << 25
"""Elements that are looked at together: 256 MB of float64."""
_EDGE_SHARE = 16
"""An edge is one position, and the length of the axis divided by this."""
_SHORT_AXIS = 4
"""An axis up to this length has no edges."""
_TINY = torch.finfo(torch.float64).tiny

Box = tuple[slice, ...]
"""Ranges of a tensor's leading axes; the other axes are whole."""


def cut_boxes(shape: Sequence[int], most: int = PIECE) -> Iterator[Box]:
    """Boxes of up to `most` elements that cover a tensor, in the order of its elements."""
    if math.prod(shape) <= most:
        yield ()
        return
    inner = math.prod(shape[1:])
    if inner <= most:
        rows = most // inner
        yield from ((slice(first, min(first + rows, shape[0])),) for first in range(0, shape[0], rows))
    else:
        yield from ((slice(row, row + 1), *rest) for row in range(shape[0]) for rest in cut_boxes(shape[1:], most))


def error_stats(actual: Sequence[torch.Tensor], oracle: Sequence[torch.Tensor]) -> ErrorStats:
    """Compare tensors with the oracle's, pairwise; shapes are equal by construction of the slots."""
    meter = ErrorMeter(actual)
    meter.add(actual, oracle)
    return meter.finish()


@dataclass
class _Sums:
    """What the pieces of one part add up to."""

    words: str
    axis: int | None
    """The axis at whose end the part lies; None for a whole output."""
    start: int
    length: int
    count: int
    """Elements of the part."""
    errors: list[float] = field(default_factory=list)
    """Euclidean norm of the error in each piece."""
    scales: list[float] = field(default_factory=list)
    """The same of the oracle."""
    max_abs: float = 0.0
    oracle_max: float = 0.0
    places: list[tuple[float, float, float]] = field(default_factory=list)
    """For each piece of an edge: its largest error, and the sums of squares and of fourth powers in units of it."""

    def cut(self, tensor: torch.Tensor, first: Sequence[int]) -> torch.Tensor | None:
        """What of a piece that begins at `first` belongs to the part; None where nothing does."""
        if self.axis is None:
            return tensor
        begin = max(self.start - first[self.axis], 0)
        end = min(self.start + self.length - first[self.axis], tensor.shape[self.axis])
        return tensor.narrow(self.axis, begin, end - begin) if begin < end else None

    def note(self, figures: Sequence[float]) -> None:
        """Add one piece's figures (`_compute_figures`)."""
        error, largest, scale, scale_largest, squares, fourths = figures[:6]
        self.errors.append(error)
        self.scales.append(scale)
        self.max_abs, self.oracle_max = max(self.max_abs, largest), max(self.oracle_max, scale_largest)
        if self.axis is not None:
            self.places.append((largest, squares, fourths))

    def finish(self, number: int, epsilon: float) -> Part:
        """The part's error over all pieces."""
        root = math.sqrt(self.count)
        return Part(
            number, self.words, self.axis is None, math.hypot(*self.errors) / root, self.max_abs, math.hypot(*self.scales) / root,
            self.oracle_max, epsilon, self._count_places(), self._slack(), self.count,
        )  # fmt: skip

    def _slack(self) -> float:
        """An edge has its tolerance; of a small output few errors are seen, whose sizes may differ more."""
        return EDGE_SLACK if self.axis is not None else max(1.0, math.sqrt(FEWEST / self.count))

    def _count_places(self) -> float:
        """`Part.places`; 0 where an edge has no error."""
        if self.axis is None:
            return math.inf
        unit = max(self.max_abs, _TINY)
        squares = sum((largest / unit) ** 2 * part for largest, part, _ in self.places)
        fourths = sum((largest / unit) ** 4 * part for largest, _, part in self.places)
        return squares * squares / max(fourths, 1e-300)


class ErrorMeter:
    """Errors of one set of outputs against the oracle, whose values may come in parts.

    Args:
        like: tensors of the outputs' shapes and types, on any device; their values are not read.
    """

    def __init__(self, like: Sequence[torch.Tensor]) -> None:
        self._like = like
        self._parts = [_list_parts(number, tensor) if tensor.is_floating_point() else [] for number, tensor in enumerate(like)]
        self._rows = [RowScale(tensor) for tensor in like]
        self._factors: list[CommonFactor] = []
        self._absolute = self._worst = 0.0
        self._exact, self._unwritten = True, 0
        self._where: tuple[int, tuple[int, ...], float | None, float | None] = (0, (), None, None)

    def add(self, actual: Sequence[torch.Tensor], oracle: Sequence[torch.Tensor], first_row: int = 0) -> None:
        """Compare outputs with the oracle's, or those rows of each, along its first axis, that begin at `first_row`."""
        for number, (got, want) in enumerate(zip(actual, oracle, strict=True)):
            if not want.numel():
                continue
            for box in cut_boxes(want.shape):
                first = [piece.start for piece in box] + [0] * (want.ndim - len(box))
                if want.ndim:
                    first[0] += first_row
                self._compare(number, first, got[box], want[box].to(got.device))

    def add_factors(self, actual: Sequence[torch.Tensor], oracle: Sequence[torch.Tensor]) -> None:
        """Look for a factor that errors have in common; the oracle's values are its own, undecided ones too."""
        self._factors = self._factors or [CommonFactor(tensor) for tensor in self._like]
        for factor, got, want in zip(self._factors, actual, oracle, strict=True):
            factor.note(got, want.to(got.device))

    def _compare(self, number: int, first: list[int], got: torch.Tensor, want: torch.Tensor) -> None:
        if not got.is_floating_point():
            wrong = _expose_booleans(got) != _expose_booleans(want.to(got.dtype))
            if self._exact and bool(wrong.any()):
                self._note_mismatch(number, first, wrong, got, want)
            return
        got64, scale = got.to(torch.float64), want.to(torch.float64)
        error = (got64 - scale).abs()
        figures = self._compute(number, first, error, scale)
        if not math.isfinite(figures[0][1][1]):  # as it is where a value of either is not
            same = _find_alike(got64, scale)
            if self._exact and not bool(same.all()):
                self._note_mismatch(number, first, ~same, got, want)
            if not self._exact and self._where[0] == number:
                self._unwritten += int((_find_poisoned(got) & ~same).sum())
            known = torch.isfinite(scale)
            error = torch.where(known, torch.where(same, got64, 0.0) - scale, 0.0).abs()
            scale = torch.where(known, scale, 0.0)
            figures = self._compute(number, first, error, scale)
        self._rows[number].note(got, want)
        for sums, row in figures:
            sums.note(row)
        _, (_, largest, *_, total) = figures[0]
        self._absolute += total
        if largest > self._worst:
            self._worst = largest
            if self._exact:
                self._where = (number, *_locate_worst(error, first, got, want))

    def _note_mismatch(self, number: int, first: list[int], wrong: torch.Tensor, got: torch.Tensor, want: torch.Tensor) -> None:
        self._exact = False
        self._where = (number, *_locate_worst(wrong.to(torch.uint8), first, got, want))

    def _compute(self, number: int, first: list[int], error: torch.Tensor, scale: torch.Tensor) -> list[tuple[_Sums, list[float]]]:
        """Figures of the output and of its edges in this piece; one wait for the card in all."""
        found = []
        for sums in self._parts[number]:
            part = sums.cut(error, first)
            if part is not None:
                of_scale = sums.cut(scale, first)
                assert of_scale is not None
                found.append((sums, _compute_figures(part, of_scale, sums.axis is None)))
        rows = torch.stack([figures for _, figures in found]).tolist()
        return [(sums, row) for (sums, _), row in zip(found, rows, strict=True)]

    def finish(self) -> ErrorStats:
        """The errors over everything that was compared."""
        squares = oracle_squares = oracle_max = epsilon = 0.0
        count, parts = 0, []
        for number, (tensor, sums) in enumerate(zip(self._like, self._parts, strict=True)):
            if not sums or not sums[0].errors:
                continue
            own_epsilon = torch.finfo(tensor.dtype).eps
            whole, *edges = [part.finish(number, own_epsilon) for part in sums]
            squares += whole.rms * whole.rms * tensor.numel()  # infinite where it is too large; `**` would raise
            oracle_squares += whole.oracle_rms * whole.oracle_rms * tensor.numel()
            oracle_max, epsilon = max(oracle_max, whole.oracle_max), max(epsilon, own_epsilon)
            count += tensor.numel()
            parts += [whole, *edges]
        count = max(count, 1)
        return ErrorStats(
            rms=(squares / count) ** 0.5, max_abs=self._worst, mean_abs=self._absolute / count, oracle_rms=(oracle_squares / count) ** 0.5,
            oracle_max=oracle_max, epsilon=epsilon, exact=self._exact, worst_tensor=self._where[0], worst_index=self._where[1],
            worst_expected=self._where[2], worst_actual=self._where[3], parts=tuple(parts), unwritten=self._unwritten,
            row_scales=tuple(rows.finish() for rows in self._rows), factors=tuple(factor.finish() for factor in self._factors),
        )  # fmt: skip


def _list_parts(number: int, tensor: torch.Tensor) -> list[_Sums]:
    """The output by itself, then its edges."""
    parts = [_Sums(f"output {number}", None, 0, 0, tensor.numel())]
    for axis in range(min(2, tensor.ndim)):
        extent = tensor.shape[axis]
        if extent <= _SHORT_AXIS:
            continue
        for length in sorted({1, max(1, extent // _EDGE_SHARE)}):
            count = tensor.numel() // extent * length
            if count < FEWEST:
                continue
            for start, name in ((0, "first"), (extent - length, "last")):
                words = f"output {number}, the {name} {length} of {extent} positions along axis {axis}"
                parts.append(_Sums(words, axis, start, length, count))
    return parts


def _compute_figures(error: torch.Tensor, scale: torch.Tensor, whole: bool) -> torch.Tensor:
    """Norm and maximum of the error and of the oracle, then sums of an edge's powers, then the sum of a whole output's errors.

    Each norm is one pass over the values, where squares to be summed take three.
    """
    norm, zero, largest = torch.linalg.vector_norm, error.new_zeros(()), error.max()
    figures = (norm(error), largest, norm(scale), norm(scale, math.inf))
    if whole:
        return torch.stack((*figures, zero, zero, error.sum()))
    squares = (error / largest.clamp(min=_TINY)).square()  # its fourth power must not vanish
    return torch.stack((*figures, squares.sum(), squares.square().sum(), zero))


def _find_alike(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Where both are finite, or the same infinity, or both no number."""
    same = torch.isfinite(got) == torch.isfinite(want)
    return same & (torch.isfinite(want) | (got == want) | (torch.isnan(got) & torch.isnan(want)))


def _expose_booleans(tensor: torch.Tensor) -> torch.Tensor:
    """A boolean tensor's bytes, any other as it is: to torch a poisoned byte is as true as 1."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def _find_poisoned(tensor: torch.Tensor) -> torch.Tensor:
    """Where every bit of a floating value is set, as no arithmetic leaves it."""
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.view(bits) == -1


def _locate_worst(
    error: torch.Tensor, first: Sequence[int], got: torch.Tensor, want: torch.Tensor
) -> tuple[tuple[int, ...], float, float]:
    """Where the largest error of a piece that begins at `first` lies in its output; the value that is right, and the one that is there."""
    flat = int(error.argmax())
    inside = tuple(int(part) for part in np.unravel_index(flat, error.shape)) if error.ndim else ()  # torch's imports SymPy: seconds
    index = tuple(start + part for start, part in zip(first, inside, strict=True))
    return index, float(want[inside]), float(got[inside])


def equal_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Bitwise equality of two tensors of one shape and type, piece by piece."""
    one, other = (tensor.contiguous().view(-1).view(torch.uint8) for tensor in (first, second))
    step = 8 * PIECE
    return all(torch.equal(one[start : start + step], other[start : start + step]) for start in range(0, one.numel(), step))
