"""Inputs of timed calls, none of which a process has seen before. Imports torch."""

from __future__ import annotations

import secrets

import torch

from tritonsmith.evaluator.channel.strides import distinct, with_values
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask

_FRESH_PART = 256
"""One value in so many is exchanged for another before each timed call: no content comes twice."""


class Inputs:
    """An endless stream of inputs, none of them seen before, at the price of a few changed values.

    As many sets as the task's memory plan says take turns. Tensors are changed in place when the turn of their set comes again: floating
    ones, and whole numbers that may stand anywhere. Else a candidate could keep what it makes of ids, such as their order.
    """

    def __init__(self, session: LoadedTask) -> None:
        self._session = session
        self._sets = [[_copy(tensor) for tensor in session.draw("own")] for _ in range(session.plan.input_sets)]
        self._floating = any(tensor.is_floating_point() for tensor in self._sets[0])
        self._turn = 0

    def next(self) -> list[torch.Tensor]:
        """Tensors for the slots, which may change with the next call; where no input is floating they are drawn anew."""
        if not self._floating:
            return self._session.draw("own")
        self._turn = (self._turn + 1) % len(self._sets)
        self._sets[self._turn] = [self._change(number, tensor) for number, tensor in enumerate(self._sets[self._turn])]
        return self._sets[self._turn]


    def _change(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point() or self._session.domains.are_free(number):
            return _exchange_values(tensor)
        return _swap_in_lines(tensor) if self._session.domains.are_distinct(number) else tensor


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of its own, since the task may give the same one again; what is expanded stays so."""
    return with_values(tensor, distinct(tensor).clone())


def _exchange_values(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with one value in 256 replaced by that of another random place, so that sums and hashes move as well."""
    elements = distinct(tensor)
    if elements.numel() < 2:  # noqa: PLR2004 - nothing to exchange
        return tensor
    flat, count = elements.reshape(-1), elements.numel()  # a copy where the elements do not lie one after the other
    places = torch.arange(secrets.randbelow(min(_FRESH_PART, count)), count, _FRESH_PART, device=flat.device)
    flat[places] = flat[(places + 1 + secrets.randbelow(count - 1)) % count]
    return flat.view(elements.shape).expand(tensor.shape)


def _swap_in_lines(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with two places of each line along the last axis swapped, so that numbers that differ still do."""
    elements = distinct(tensor)
    extent = elements.shape[-1] if elements.ndim else 0
    if extent > 1:
        first = secrets.randbelow(extent)
        second = (first + 1 + secrets.randbelow(extent - 1)) % extent
        elements[..., [first, second]] = elements[..., [second, first]]
    return tensor
