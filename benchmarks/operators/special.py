"""Values at which operators have corners, in the shapes of a sample's tensors. Imports torch."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import torch

_FLOATS = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 1e-8, -1e-8, 20.5, -20.0, 88.0, -104.0)
"""Zeros, halves, whole numbers, and places at which exponentials vanish."""
_NOT_FINITE = (math.nan, math.inf, -math.inf)
_TIES = (0.0, -0.0, 1.0, 1.0, -2.0, 0.5, -0.5, 3.0)
_WHOLE = (0, 1, -1, 2, 3, -3, 5, 7, -7, 64)


def list_specials(dtype: torch.dtype) -> list[float | int | bool]:
    """All special values of a type, the ends of its range among them."""
    if dtype == torch.bool:
        return [False, True]
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        ends = (info.max, info.min, info.smallest_normal, -info.smallest_normal, info.smallest_normal * info.eps)
        return [*_FLOATS, *ends, 1.0 + info.eps, 1.0 / info.eps + 1.0, *_NOT_FINITE]
    whole = torch.iinfo(dtype)
    ends_of_whole = (whole.max, whole.min, whole.max - 1, whole.min + 1, whole.max // 2)
    return [*ends_of_whole, *(value for value in _WHOLE if value >= whole.min)]


def draw_specials(
    tensors: Sequence[torch.Tensor], pointwise: bool, seed: int, left_out: tuple[int, ...] = ()
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Sets of values for a sample's tensors, each with a name.

    Floating tensors get them where a sample has such; else whole ones do. The others, such as indices, keep their values.

    Args:
        tensors: of the sample.
        pointwise: whether every element has a result of its own; else a set has few values that take over a sum.
        seed: of what stands where.
        left_out: whole numbers that the operator does not take.
    """
    floats = any(tensor.is_floating_point() for tensor in tensors)
    chance = random.Random(seed)
    wide = any(tensor.dtype == torch.float64 for tensor in tensors)
    for name, values in _list_sets(pointwise):
        if wide and values is None and not pointwise:
            continue  # no wider type tells whether the order of a sum decides what overflows
        yield name, [_fill(tensor, values, floats, chance, left_out) for tensor in tensors]


def _list_sets(pointwise: bool) -> Iterator[tuple[str, tuple[float, ...] | None]]:
    """Names, and the values of floating tensors; None for all of the type."""
    if pointwise:
        yield "special values", None
        yield "other special values", None
        return
    yield "ties and zeros", _TIES
    yield "zeros below zero", (-0.0,)
    yield "an infinity", (*_TIES * 2, math.inf)
    yield "infinities and NaN", (*_TIES * 2, -math.inf, math.inf, math.nan)
    yield "ends of the range", None


def _fill(
    tensor: torch.Tensor, values: Sequence[float] | None, floats: bool, chance: random.Random, left_out: tuple[int, ...]
) -> torch.Tensor:
    whole = not floats and not tensor.is_complex() and tensor.dtype != torch.bool
    if not tensor.numel() or not (tensor.is_floating_point() or whole):
        return tensor.clone()
    known: Sequence[float] = list_specials(tensor.dtype)
    if values is not None:
        known = values if floats else [int(value) for value in values if math.isfinite(value) and (value >= 0 or tensor.dtype.is_signed)]
    order = [value for value in known if floats or value not in left_out] or [1]
    chance.shuffle(order)
    count = tensor.numel()
    drawn = order[:count] + [chance.choice(order) for _ in range(count - len(order))]
    return torch.tensor(drawn, dtype=torch.float64 if floats else torch.int64).to(tensor.dtype).reshape(tensor.shape)


def pair_values(values: Sequence[float], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors of one axis that hold every pair of the values."""
    lefts = [value for value in values for _ in values]
    return torch.tensor(lefts, dtype=dtype), torch.tensor(list(values) * len(values), dtype=dtype)


def stride(tensor: torch.Tensor) -> torch.Tensor:
    """Equal values that do not lie behind each other."""
    if tensor.ndim == 0 or tensor.numel() < 2:
        return tensor
    return torch.stack([tensor, tensor], -1)[..., 0]
