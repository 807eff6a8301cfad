"""Whole numbers that rounding decides: places, masks and codes that honest arithmetic may give in two ways. Imports torch.

Of two equal or nearly equal values either may be the largest, and a value near zero may have either sign. In 16 bits this is common. So a
whole number that differs from the oracle's is right where the task itself cannot tell: where moving inputs and weights by a unit of the
last place of the class's type makes the oracle give that number too, or the reference in its own type. What the reference gives on the
values as they are is right as well: it cannot tell there, and a copy of it must never be refused. Where they give three numbers or
more, another one is right as well, since not all can be seen. Everywhere else it must be equal.
Asked only where something differs.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import nn

from tritonsmith.evaluator.oracle.checks.arithmetic import Arithmetic
from tritonsmith.evaluator.oracle.checks.inputs import move_values
from tritonsmith.evaluator.schema import PrecisionClass

_MOST_DRAWS = 24
"""So many moves at most; a tie falls the other way in half of them."""
_LEAST_DRAWS = 4
"""After so many, ..."""
_EXPLAINED = 0.5
"""... less than this share of the differences explained means that they are errors."""


class Judged(Protocol):
    """What is needed of a loaded task."""

    model64: nn.Module
    arithmetic: Arithmetic

    def oracle(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """The reference in float64."""
        ...

    def reference_outputs(self, tensors: list[torch.Tensor], precision: PrecisionClass) -> list[torch.Tensor]:
        """The reference in a class."""
        ...


def settle_undecided(
    loaded: Judged, tensors: list[torch.Tensor], precision: PrecisionClass, oracle: list[torch.Tensor], got: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The oracle, with the given whole numbers where they are as right as its own."""
    ours = [tensor if tensor.is_floating_point() else tensor.to(right.device) for tensor, right in zip(got, oracle, strict=True)]
    differing = {number: found for number in range(len(got)) if (found := _find_differing(ours[number], oracle[number])) is not None}
    total = sum(int(found.sum()) for found in differing.values())
    if not total:
        return oracle
    step = loaded.arithmetic.find_step(precision)
    seen = {number: _Seen(oracle[number], ours[number]) for number in differing}
    # What the reference itself gives is right in any case: a copy of it must never be refused.
    as_they_are = loaded.reference_outputs(tensors, precision)
    for number, values in seen.items():
        values.note(as_they_are[number])
    for draw in range(_MOST_DRAWS):
        for other in (move_oracle(loaded, tensors, step), loaded.reference_outputs(move_values(tensors, step), precision)):
            for number, values in seen.items():
                values.note(other[number])
        left = sum(int((differing[number] & ~values.admits).sum()) for number, values in seen.items())
        if not left or (draw + 1 >= _LEAST_DRAWS and left > (1.0 - _EXPLAINED) * total):
            break
    return [
        torch.where(differing[number] & seen[number].admits, ours[number].to(values.dtype), values) if number in differing else values
        for number, values in enumerate(oracle)
    ]


class _Seen:
    """Which numbers the task gave at each place of an output while its values were moved.

    Args:
        oracle: the number of the values as they are.
        ours: the candidate's.
    """

    def __init__(self, oracle: torch.Tensor, ours: torch.Tensor) -> None:
        self._oracle, self._ours = oracle.to(ours.dtype), ours
        self._second = self._oracle.clone()
        """Another number than the oracle's, where one was seen."""
        self._many = torch.zeros_like(ours, dtype=torch.bool)
        self._given = torch.zeros_like(self._many)

    def note(self, moved: torch.Tensor) -> None:
        """Add what the task gives for other values."""
        moved = moved.to(self._ours.device, self._ours.dtype)
        self._given |= moved == self._ours
        new = (moved != self._oracle) & (moved != self._second)
        self._many |= new & (self._second != self._oracle)
        self._second = torch.where(self._second == self._oracle, moved, self._second)

    @property
    def admits(self) -> torch.Tensor:
        """Where the candidate's number was given too, or where so many were that not all can have been seen."""
        return self._given | self._many


def _find_differing(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor | None:
    """Where a written, possible whole number is not the oracle's; None for floating values, and where there is no such place."""
    if got.is_floating_point() or not got.numel():
        return None
    possible = got.view(torch.uint8) <= 1 if got.dtype == torch.bool else (got >= want.min()) & (got <= want.max())
    found = possible & (got != want.to(got.dtype))
    return found if bool(found.any()) else None


def move_oracle(loaded: Judged, tensors: list[torch.Tensor], step: float) -> list[torch.Tensor]:
    """The oracle on inputs and weights that are moved by a share of each value."""
    kept, moved = loaded.model64, copy.deepcopy(loaded.model64)
    with torch.no_grad():
        for values in moved.parameters():
            if values.is_floating_point():
                values.mul_(1.0 + step * (2.0 * torch.rand_like(values) - 1.0))
    loaded.model64 = moved
    try:
        return loaded.oracle(move_values([tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors], step))
    finally:
        loaded.model64 = kept
