"""Whether a kernel's results are PyTorch's: to the bit where bits have a meaning, else by the evaluator's rule. Imports torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from tritonsmith.evaluator.oracle.checks.correctness import FEWEST, MAX_FACTOR, RMS_FACTOR
from tritonsmith.evaluator.oracle.checks.measure import equal_bits, error_stats

_ALONE = math.sqrt(FEWEST)
"""What the rule gives an output of one element, as `Part.slack` does."""

Tensors = Sequence[torch.Tensor]


def find_difference(
    got: Tensors, own: Tensors, compute_exact: Callable[[], Tensors], pointwise: bool, any_zero: bool = False
) -> str:
    """What a kernel gives otherwise than PyTorch, in a phrase; empty where nothing.

    Args:
        got: the kernel's results.
        own: PyTorch's.
        compute_exact: gives PyTorch's in float64; called where bits differ.
        pointwise: whether each element is judged by itself.
        any_zero: whether a zero may have either sign.
    """
    if len(got) != len(own):
        return f"{len(got)} results for {len(own)}"
    for number, (ours, theirs) in enumerate(zip(got, own, strict=True)):
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return f"result {number} is {ours.dtype}{list(ours.shape)} for {theirs.dtype}{list(theirs.shape)}"
    if all(_equal_values(ours, theirs) for ours, theirs in zip(got, own, strict=True)):
        return ""
    for ours, theirs in zip(got, own, strict=True):
        if phrase := _find_other_bits(ours, theirs, any_zero):
            return phrase
    exact = [
        _take_known(wide, theirs) if theirs.is_floating_point() else theirs
        for wide, theirs in zip(compute_exact(), own, strict=True)
    ]
    if pointwise:
        return next(filter(None, map(_find_far_element, got, own, exact)), "")
    errors, known = error_stats(list(got), exact), error_stats(list(own), exact)
    if any(tensor.dtype == torch.float64 for tensor in got):  # no wider type shows PyTorch's own error: at least one rounding
        known = known.lift_to_share(torch.finfo(torch.float64).eps / 2)
    if errors.within(known):
        return ""
    place = f"result {errors.worst_tensor} at {list(errors.worst_index)}"
    return f"{place} is {errors.worst_actual!r} for {errors.worst_expected!r}: error {errors.rms:.3g} for PyTorch's {known.rms:.3g}"


def choose_nearer(got: Tensors, own: Tensors, again: Tensors) -> list[torch.Tensor]:
    """PyTorch's results, at each element those of its second code where the kernel gives the same bits.

    On a CPU it has one code for vectors, and one for tensors that are not contiguous; cards have the second one alone. They differ at
    corners: `remainder(3e38, 0.5)` is NaN in the first and 0 in the second.
    """
    chosen = []
    for ours, first, second in zip(got, own, again, strict=True):
        if ours.shape != second.shape or ours.dtype != second.dtype or not ours.is_floating_point():
            chosen.append(first)
            continue
        same = (ours == second) & (ours.signbit() == second.signbit()) | (ours.isnan() & second.isnan())
        chosen.append(torch.where(same, second, first))
    return chosen


def _equal_values(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether all bits are equal, but for those that tell one NaN from another."""
    if not ours.is_floating_point():
        return equal_bits(ours, theirs)
    zero = torch.zeros((), dtype=ours.dtype)
    same = torch.equal(ours.isnan(), theirs.isnan())
    return same and equal_bits(torch.where(ours.isnan(), zero, ours), torch.where(theirs.isnan(), zero, theirs))


def _find_other_bits(ours: torch.Tensor, theirs: torch.Tensor, any_zero: bool) -> str:
    """The first element where no rounding explains a difference."""
    if not ours.is_floating_point():
        wrong = ours != theirs
    else:
        alike = (ours == theirs) | (ours.isnan() & theirs.isnan())
        wrong = ~alike & ~(ours.isfinite() & theirs.isfinite())
        if not any_zero:
            wrong |= (ours == 0) & (theirs == 0) & (ours.signbit() != theirs.signbit())
    return _describe(wrong, ours, theirs) if bool(wrong.any()) else ""


def _take_known(exact: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """The float64 result; PyTorch's own where only one of the two is finite, as where its type overflows."""
    exact = exact.to(torch.float64)
    return torch.where(exact.isfinite() & own.isfinite(), exact, own.double())


def _find_far_element(ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> str:
    """The first element beyond the rule for an output that is this element alone."""
    if not ours.is_floating_point():
        return ""
    info = torch.finfo(ours.dtype)
    step = info.smallest_normal * info.eps
    error, own = (ours.double() - exact).abs(), (theirs.double() - exact).abs()
    allowed = torch.maximum(own, exact.abs() * info.eps / 4).clamp(min=step)
    far = exact.isfinite() & (error > _ALONE * min(RMS_FACTOR, MAX_FACTOR) * allowed)
    return _describe(far, ours, theirs) if bool(far.any()) else ""


def _describe(wrong: torch.Tensor, ours: torch.Tensor, theirs: torch.Tensor) -> str:
    place = tuple(wrong.nonzero()[0].tolist())
    where = f" at {list(place)}" if place else ""
    return f"{ours[place].item()!r} for {theirs[place].item()!r}{where}, {int(wrong.sum())} of {wrong.numel()} elements"
