"""Results that are places of values: a place is right if the value there is. Imports torch.

What a top-k, a sort or a maximum takes its places from is noted, in the oracle and in runs whose arithmetic is moved. Then a place is
right where its value differs from the one at the oracle's place by no more than the moves of both. Values that moves leave alone must be
equal. Of equal ones PyTorch promises the first for a maximum, and their order for a stable sort; for others it promises nothing. No two
results of one row may name the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tritonsmith.evaluator.oracle.checks.moves import read_name

_FIRST = ("argmax", "argmin", "max", "min")
"""Of equal values these give the first."""
_ANY = ("topk", "sort", "kthvalue", "median", "mode")
"""Of equal values these give any, an unstable sort too."""
_MOST = 64
"""A forward with more such operators is not followed."""
_TOGETHER = 2.0
"""Moves of two values, of which few were seen, may add up to so many times as much."""


class Order(NamedTuple):
    """What one operator gave: places of values along an axis."""

    values: torch.Tensor
    places: torch.Tensor
    axis: int
    promised: bool
    """Whether the order of equal values is."""


class OrderWatch(TorchDispatchMode):
    """Context manager around a forward whose operators that give places are to be noted, in `orders`."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[Order] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        name = read_name(func)
        if name in _FIRST + _ANY and len(self.orders) <= _MOST:
            places = result if isinstance(result, torch.Tensor) else result[-1]
            if not places.is_floating_point() and places.dtype == torch.int64 and (len(args) == 1 or not isinstance(args[1], torch.Tensor)):
                self._note(func, args, kwargs, places, promised=name in _FIRST or bool(kwargs.get("stable")))
        return result

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], places: torch.Tensor, *, promised: bool) -> None:
        names = [(argument.name, argument.default_value) for argument in func._schema.arguments]
        given = {**dict(names), **dict(zip([name for name, _ in names], args, strict=False)), **kwargs}
        values, axis = given["self"], given.get("dim")
        if not values.ndim or ("dim" not in given and func._schema.name.endswith(_FIRST)):
            return
        if axis is None:
            values, axis = values.reshape(-1), 0
        self.orders.append(Order(values, places, axis % values.ndim, promised))


def watch_orders(run: Callable[[], list[torch.Tensor]]) -> tuple[list[torch.Tensor], list[Order]]:
    """What a forward gives, and the orders that it made on its way; none of very many."""
    with OrderWatch() as watch:
        outputs = run()
    return outputs, watch.orders if len(watch.orders) <= _MOST else []


def find_order(output: torch.Tensor, orders: Sequence[Order]) -> int | None:
    """Number of the order whose places a result is; None for none."""
    if output.is_floating_point() or output.dtype == torch.bool or not output.numel():
        return None
    flat = output.reshape(-1)
    for number, order in enumerate(orders):
        long = order.values.shape[order.axis] > 1 and order.values.is_floating_point()
        if long and order.places.numel() == flat.numel() and torch.equal(order.places.reshape(-1).to(flat), flat):
            return number
    return None


class PlacesOfValues:
    """A result that has places of values.

    Args:
        oracle: the right places.
        number: of the order that made them.
        order: that order in float64.
    """

    def __init__(self, oracle: torch.Tensor, number: int, order: Order) -> None:
        self._oracle, self._number, self._axis, self._promised = oracle, number, order.axis, order.promised
        self._values = order.values.double()
        self._shape = order.places.unsqueeze(order.axis).shape if order.places.ndim < order.values.ndim else order.places.shape
        self._moved = torch.zeros_like(self._values)
        """The most that a value was moved."""

    def note_small(self, least: torch.Tensor, small: torch.Tensor) -> None:
        """Small moves say nothing about places."""

    def note_orders(self, orders: Sequence[Order]) -> None:
        """Add how far values were moved in a run; one of another course shows nothing."""
        if self._number < len(orders) and orders[self._number].values.shape == self._values.shape:
            change = (orders[self._number].values.to(self._values) - self._values).abs().nan_to_num_(0.0, 0.0)
            self._moved = torch.maximum(self._moved, change)

    def drop_jumps(self, moved: torch.Tensor) -> torch.Tensor:
        """The oracle's places: each result is settled by itself."""
        return self._oracle

    def count_away(self, ours: torch.Tensor) -> int:
        """Places that are not the oracle's."""
        return int((ours.to(self._oracle.dtype) != self._oracle).sum())

    def count_unexplained(self, ours: torch.Tensor) -> int:
        """Places whose values are others."""
        return int((ours.to(self._oracle.dtype) != self.find_nearest(ours)).sum())

    def find_nearest(self, ours: torch.Tensor) -> torch.Tensor:
        """The oracle's places, or those of this result where they are as right."""
        right, got = self._oracle.reshape(self._shape).long(), ours.reshape(self._shape).long()
        inside = (got >= 0) & (got < self._values.shape[self._axis])
        got = torch.where(inside, got, right)
        room = _TOGETHER * (self._moved.gather(self._axis, got) + self._moved.gather(self._axis, right))
        ours_there, right_there = self._values.gather(self._axis, got), self._values.gather(self._axis, right)
        alike = (ours_there == right_there) | ((ours_there - right_there).abs() <= room) | (ours_there.isnan() & right_there.isnan())
        if self._promised:
            alike &= room > 0.0
        alike &= ~_find_repeated(got, self._axis)
        chosen = torch.where(inside & alike, got, right)
        return chosen.reshape(self._oracle.shape).to(self._oracle.dtype)


def _find_repeated(places: torch.Tensor, axis: int) -> torch.Tensor:
    """Places that another one of the same row equals."""
    ordered, where = places.sort(axis)
    count = places.shape[axis]
    same = ordered.narrow(axis, 1, count - 1) == ordered.narrow(axis, 0, count - 1)
    none = torch.zeros_like(ordered.narrow(axis, 0, 1), dtype=torch.bool)
    repeated = torch.cat((none, same), axis) | torch.cat((same, none), axis)
    return torch.zeros_like(repeated).scatter(axis, where, repeated)
