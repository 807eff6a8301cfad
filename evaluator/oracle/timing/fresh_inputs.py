"""Inputs of timed calls, none of which a process has seen before. Imports torch."""

from __future__ import annotations

import secrets

import torch

from tritonsmith.evaluator.channel.strides import distinct
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask

_INPUT_SETS = 3
"""Sets of inputs that take turns."""
_FRESH_PART = 256
"""One floating-point value in so many is exchanged for another before each timed call: no content comes twice."""


class Inputs:
    """An endless stream of inputs, none of them seen before, at the price of a copy."""

    def __init__(self, session: LoadedTask) -> None:
        self._session = session
        self._sets = [session.draw("own") for _ in range(_INPUT_SETS)]
        self._floating = any(tensor.is_floating_point() for tensor in self._sets[0])
        self._turn = 0

    def next(self) -> list[torch.Tensor]:
        """Tensors for the slots; where no input is floating they are drawn anew."""
        if not self._floating:
            return self._session.draw("own")
        self._turn = (self._turn + 1) % _INPUT_SETS
        self._sets[self._turn] = [_exchange_values(tensor) for tensor in self._sets[self._turn]]
        return self._sets[self._turn]


def _exchange_values(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in which one value in 256 is replaced by that of another random place, so that sums and hashes move as well."""
    elements = distinct(tensor)
    if not tensor.is_floating_point() or elements.numel() < 2:
        return tensor.clone()
    old = elements.reshape(-1)
    flat, count = old.clone(), old.numel()
    places = torch.arange(secrets.randbelow(min(_FRESH_PART, count)), count, _FRESH_PART, device=flat.device)
    flat[places] = old[(places + 1 + secrets.randbelow(count - 1)) % count]
    return flat.view(elements.shape).expand(tensor.shape)
