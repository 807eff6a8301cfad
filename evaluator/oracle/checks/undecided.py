"""Elements of a result that rounding decides: what they may be. Imports torch.

A threshold, a rounding to whole numbers, a top-k, an argmax, a sort or a mask turns a difference in the last place into a jump. What
depends on it moves visibly, and two honest kernels differ there. So an element is *decided* if the reference gives the same value
whatever its arithmetic rounds (`moves.py`), in float64 and in its own types. Else it is *undecided*, and may have any value that was
shown; where three or more were shown, also one between the least and the greatest of them.

A value that changes smoothly is no jump: what far smaller moves do is scaled up, and a change near that is what every result has. The
rule for errors holds there. A state carries a flip on by itself: the later steps of that lane show it, and other lanes do not.

More runs are asked for only where a result differs from all that was shown. A wrong kernel cannot hide: what it gives at decided places
is compared as ever, and at undecided ones with what the reference itself may give. Places of values are judged by the values (`places.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from tritonsmith.evaluator.oracle.checks.correctness import MAX_FACTOR
from tritonsmith.evaluator.oracle.checks.moves import Moved, draw_seed, move_oracle_arithmetic, move_reference_arithmetic
from tritonsmith.evaluator.oracle.checks.places import Order, PlacesOfValues, find_order, watch_orders
from tritonsmith.evaluator.schema import PrecisionClass, TensorSpec

_PAIRED_RUNS = 4
"""In float64 and in the reference's own types, and the mirror of both: of each tie that moves reach, one of a pair shows the other side."""
_HALVES = (1.0, 0.0, 1.0, 0.5)
"""By turn: the chance that the 16-bit result of an operator is moved; the last holds for all later turns."""
MOST_RUNS = 48
"""So many runs at most on one set of inputs; a place near a tie falls the other way in a fifth of them or more."""
_LEAST_RUNS = 12
"""After so many, ..."""
_EXPLAINED = 0.5
"""... less than this share of the differences explained means that they are errors, ..."""
_FEW = 16
"""... unless so few are left: moves that cancel at a tie leave it to later runs, ..."""
_FEW_SHARE = 2.0**-10
"""... or this share of all elements: one tie may move all codes of a group, or a lane from there on."""
_WIDER = 2.0
"""From then on values are moved by so many times as much."""
_SMALLEST = 2.0**-20
"""Moves that show how smoothly a result changes, as a share of the others; only ties jump there."""
_SMALL = 2.0**-10
"""Equal moves of this share tell a tie: its jump is as large as there."""
_PLACE_RUNS = 8
"""How often values are moved before a place is compared by the value there."""
_LINEAR_RUNS = 2
"""How often small moves are made."""
_TIED = 2.0**-5
"""A change that shrinks by less than this, where moves shrink by 2^10, is a jump."""
_NOTHING = 2.0**-45
"""A change by less than this share of the largest result is float64's own rounding."""
_SMOOTH = 4.0
"""A change by up to so many times what small moves foretell is smooth."""
_LEAST = 0.25
"""A change by less than this share of the type's rounding of the largest result is no jump."""
_CALM = MAX_FACTOR / 4
"""Where no value is further from the oracle's than so many units of its type's rounding of the largest result, nobody asks for jumps. That
is what the rule for errors admits at least, so no jump that it would refuse is below."""
_OF_PLACES = (torch.int64, torch.int32)
"""Types of results that may be places of values."""
_FINEST_EPSILON = 2.0**-40
"""Types with a smaller machine epsilon (float64) are compared by the rule alone: no move of fp32's last place is one of theirs."""


class Judged(Moved, Protocol):
    """What is needed of a loaded task."""

    decides: bool
    """Whether an operator of its forward may turn a move of the last place into a jump, or a result is a whole number."""
    results: tuple[TensorSpec, ...]
    """Shapes and types of its results."""


class Undecided:
    """What the elements of a task's results may be on one set of inputs.

    Args:
        loaded: the task.
        tensors: the inputs.
        precision: the class whose last place counts.
        oracle: the results in float64.
    """

    def __init__(self, loaded: Judged, tensors: list[torch.Tensor], precision: PrecisionClass, oracle: list[torch.Tensor]) -> None:
        self._loaded, self._tensors, self._precision = loaded, tensors, precision
        self._oracle = oracle
        self._types: list[torch.dtype] = [getattr(torch, spec.dtype) for spec in loaded.results]
        self._results: list[_Result] = []
        self._knows_smooth = False
        """Whether it is known how smoothly floating results change."""
        self._few = max(_FEW, _FEW_SHARE * sum(right.numel() for right in oracle))
        self._runs = self._seed = 0

    def settle(self, got: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The oracle, at undecided places with what was shown there and is nearest to the given results."""
        if not self._loaded.decides or self._are_calm(got):
            return self._oracle
        results = self._prepare(got)
        ours = [tensor.to(right.device) for tensor, right in zip(got, self._oracle, strict=True)]
        total = sum(result.count_away(own) for result, own in zip(results, ours, strict=True))
        left = self._count_unexplained(results, ours)
        while left and self._runs < MOST_RUNS:  # of all results on these inputs together: what was shown holds for each
            if self._runs >= _LEAST_RUNS and left > max(self._few, (1.0 - _EXPLAINED) * total):
                break
            self._move(_WIDER if self._runs >= _LEAST_RUNS else 1.0)
            left = self._count_unexplained(results, ours)
        return [result.find_nearest(own) for result, own in zip(results, ours, strict=True)]

    def drop_jumps(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the task gives in another run, with the oracle's values in place of jumps."""
        if not self._loaded.decides or self._are_calm(outputs):
            return list(outputs)
        return [result.drop_jumps(output) for result, output in zip(self._prepare(outputs), outputs, strict=True)]

    def _are_calm(self, outputs: Sequence[torch.Tensor]) -> bool:
        """Whether results are so near the oracle that none holds a jump worth a look."""
        return all(map(_is_calm, outputs, self._oracle, self._types))

    def _prepare(self, outputs: Sequence[torch.Tensor]) -> list[_Result]:
        """The results with what is known of them; how smoothly floating ones change is learnt when one of these outputs asks for it."""
        first = not self._results
        if first:
            self._results = self._describe_results()
        pairs = zip(outputs, self._oracle, self._types, strict=True)
        rough = any(kind.is_floating_point and not _is_calm(output, right, kind) for output, right, kind in pairs)
        if rough and not self._knows_smooth:
            self._learn_smooth_changes()
        if first or (rough and not self._knows_smooth):  # a copy of the reference must never be refused
            self._note(*self._watch(lambda: self._loaded.reference_outputs(self._tensors, self._precision)))
        self._knows_smooth |= rough
        for _ in range(_PLACE_RUNS if first and self._has_places else 0):
            self._move(1.0)
        return self._results

    def _learn_smooth_changes(self) -> None:
        for seed in (draw_seed() for _ in range(_LINEAR_RUNS)):
            least, small = (
                move_oracle_arithmetic(self._loaded, self._tensors, self._precision, seed=seed, share=share, coarse=True)
                for share in (_SMALLEST, _SMALL)
            )
            for result, one, other in zip(self._results, least, small, strict=True):
                result.note_small(one, other)

    @property
    def _has_places(self) -> bool:
        return any(isinstance(result, PlacesOfValues) for result in self._results)

    def _describe_results(self) -> list[_Result]:
        """What is known of each result at first: places of values are such where an order of the oracle's forward gave just these."""
        orders: list[Order] = []
        if any(kind in _OF_PLACES for kind in self._types):
            _, orders = watch_orders(lambda: self._loaded.oracle(self._tensors))
        results: list[_Result] = []
        for right, kind in zip(self._oracle, self._types, strict=True):
            number = find_order(right, orders) if kind in _OF_PLACES else None
            if number is not None:
                results.append(PlacesOfValues(right, number, orders[number]))
            else:
                results.append(_Floating(right, torch.finfo(kind).eps) if kind.is_floating_point else _Whole(right, kind))
        return results

    def _watch(self, run: Callable[[], list[torch.Tensor]]) -> tuple[list[torch.Tensor], list[Order]]:
        """What a run gives, and its orders where some result has places."""
        return watch_orders(run) if self._has_places else (run(), [])

    def _note(self, outputs: Sequence[torch.Tensor], orders: Sequence[Order]) -> None:
        for result, output in zip(self._results, outputs, strict=True):
            if isinstance(result, PlacesOfValues):
                result.note_orders(orders)
            else:
                result.note(output)

    def _count_unexplained(self, results: Sequence[_Result], ours: Sequence[torch.Tensor]) -> int:
        return sum(result.count_unexplained(own) for result, own in zip(results, ours, strict=True))

    def _move(self, share: float) -> None:
        """One more run, in float64 and in the reference's own types in turn, then both mirrored.

        In every other turn all elements of a result are moved alike. Results of 16 bits move, or stay as PyTorch rounds them, as in most
        kernels: ties of what is computed from these in float32 show only then.
        """
        turn, place = divmod(self._runs, _PAIRED_RUNS)
        self._runs += 1
        if place == 0:
            self._seed = draw_seed()
        seed, alike, mirrored = self._seed + place % 2, turn > 0 and turn % 2 == 0, place >= _PAIRED_RUNS // 2
        halves = _HALVES[min(turn, len(_HALVES) - 1)]
        move = functools.partial(move_reference_arithmetic, halves=halves) if place % 2 else move_oracle_arithmetic
        run = functools.partial(move, self._loaded, self._tensors, self._precision, seed=seed, share=share, alike=alike, mirrored=mirrored)
        self._note(*self._watch(run))


def _is_calm(output: torch.Tensor, right: torch.Tensor, kind: torch.dtype) -> bool:
    """Whether an output equals the oracle's, or is near it where it is floating, by the rounding of its own type."""
    if not output.numel():
        return True
    if not output.is_floating_point():
        seen = output.view(torch.uint8) if output.dtype == torch.bool else output
        return torch.equal(seen, right.to(output.device, seen.dtype))
    values, expected = output.to(right), right
    known = torch.isfinite(expected)
    if not bool(((values == expected) | (known & torch.isfinite(values)) | (torch.isnan(values) & torch.isnan(expected))).all()):
        return False
    largest = torch.where(known, expected, 0.0).abs().max()
    return bool((torch.where(known, values - expected, 0.0).abs() <= _CALM * torch.finfo(kind).eps * largest).all())


class _Floating:
    """A floating result.

    Args:
        oracle: its values in float64.
        epsilon: machine epsilon of its own type.
    """

    def __init__(self, oracle: torch.Tensor, epsilon: float) -> None:
        self._right = oracle
        self._judged = epsilon > _FINEST_EPSILON and oracle.numel() > 0
        self._epsilon = epsilon
        self._room: torch.Tensor | None = None
        """What smooth changes and rounding may make of each value; None until that is known, and no jump either."""
        self._second = self._low = self._high = oracle
        """Another value than the oracle's, where one was shown; the least and the greatest of all."""
        self._many: torch.Tensor | None = None
        """Where three or more were shown."""

    def note_small(self, least: torch.Tensor, small: torch.Tensor) -> None:
        """Learn how smoothly the values change, from equal moves of two sizes: `_SMALLEST` and `_SMALL` of the others.

        A smooth change shrinks with the moves. One that does not stands at a tie. A jump that only the larger moves make says nothing.
        """
        if not self._judged:
            return
        finite = torch.where(torch.isfinite(self._right), self._right, 0.0).abs()
        largest = float(finite.max())
        change, larger = ((moved.to(self._right) - self._right).abs().nan_to_num_(0.0, 0.0) for moved in (least, small))
        tied = (change > _TIED * larger) & (change > _NOTHING * largest)
        room = torch.where(tied, 0.0, change * (_SMOOTH / _SMALLEST))
        room.add_(finite.mul_(self._epsilon)).add_(_LEAST * self._epsilon * largest)
        self._room = room if self._room is None else torch.maximum(room, self._room)
        self._admit(least.to(self._right), tied)

    def note(self, moved: torch.Tensor) -> None:
        """Add what the task gave in a run."""
        if self._room is not None:
            values = moved.to(self._right)
            self._admit(values, self._find_away(values, self._right))

    def drop_jumps(self, moved: torch.Tensor) -> torch.Tensor:
        """What the task gave in a run, with the oracle's values in place of jumps."""
        if self._room is None:
            return moved
        values = moved.to(self._right)
        return torch.where(self._find_away(values, self._right), self._right, values)

    def count_away(self, ours: torch.Tensor) -> int:
        """Elements of a result that lie away from the oracle's."""
        return 0 if self._room is None else int(self._find_away(ours.to(self._right), self._right).sum())

    def count_unexplained(self, ours: torch.Tensor) -> int:
        """Elements of a result that lie away from all that was shown."""
        if self._room is None:
            return 0
        values = ours.to(self._right)
        return int(self._find_away(values, self.find_nearest(ours)).sum())

    def find_nearest(self, ours: torch.Tensor) -> torch.Tensor:
        """The oracle's values, or what else was shown where that is nearer to this result."""
        if self._room is None or self._second is self._right:
            return self._right
        values = ours.to(self._right)
        jumped = torch.where(values == self._second, values, values.clamp(self._second - self._room, self._second + self._room))
        nearest = torch.where((self._second != self._right) & ((values - jumped).abs() < (values - self._right).abs()), jumped, self._right)
        nearest = torch.where((values == self._second) | (values == self._right), values, nearest)  # infinities, whose distance is none
        if self._many is None:
            return nearest
        between = torch.where(self._many, values.clamp(self._low - self._room, self._high + self._room), nearest)
        return torch.where(torch.isnan(between), nearest, between)

    def _find_away(self, values: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        assert self._room is not None
        alike = (values == other) | (torch.isnan(values) & torch.isnan(other))
        return ~(((values - other).abs() <= self._room) | alike)

    def _admit(self, values: torch.Tensor, jumps: torch.Tensor) -> None:
        jumps = jumps & ~torch.isnan(values)
        if not bool(jumps.any()):
            return
        if self._many is None:
            self._many = torch.zeros_like(jumps)
            self._second, self._low, self._high = self._right.clone(), self._right.clone(), self._right.clone()
        has_second = self._second != self._right
        self._many |= jumps & has_second & self._find_away(values, self._second)
        self._second = torch.where(jumps & ~has_second, values, self._second)
        self._low = torch.where(jumps, torch.minimum(values, self._low), self._low)
        self._high = torch.where(jumps, torch.maximum(values, self._high), self._high)


class _Whole:
    """A result of whole numbers or booleans.

    Args:
        oracle: its numbers.
        dtype: its own type.
    """

    def __init__(self, oracle: torch.Tensor, dtype: torch.dtype) -> None:
        self._right = oracle.to(torch.uint8 if dtype == torch.bool else dtype)
        self._boolean = dtype == torch.bool
        self._second = self._low = self._high = self._right
        self._many = torch.zeros_like(self._right, dtype=torch.bool)

    def note_small(self, least: torch.Tensor, small: torch.Tensor) -> None:
        """Small moves flip ties as others do."""
        for moved in (least, small):
            self.note(moved)

    def note(self, moved: torch.Tensor) -> None:
        """Add what the task gave in a run."""
        values = moved.to(self._right)
        has_second = self._second != self._right
        self._many |= (values != self._right) & has_second & (values != self._second)
        self._second = torch.where(has_second, self._second, values)
        self._low, self._high = torch.minimum(self._low, values), torch.maximum(self._high, values)

    def drop_jumps(self, moved: torch.Tensor) -> torch.Tensor:
        """The oracle's numbers: each is settled by itself."""
        return self._right.bool() if self._boolean else self._right

    def count_away(self, ours: torch.Tensor) -> int:
        """Numbers that are not the oracle's."""
        return int((self._expose(ours) != self._right).sum())

    def count_unexplained(self, ours: torch.Tensor) -> int:
        """Numbers that were not shown."""
        return int((self._expose(ours) != self._choose(ours)).sum())

    def find_nearest(self, ours: torch.Tensor) -> torch.Tensor:
        """The oracle's numbers, or those of this result where they were shown too."""
        chosen = self._choose(ours)
        return chosen.bool() if self._boolean else chosen

    def _choose(self, ours: torch.Tensor) -> torch.Tensor:
        values = self._expose(ours)
        shown = (values == self._second) | (self._many & (values >= self._low) & (values <= self._high))
        return torch.where(shown, values, self._right)

    def _expose(self, ours: torch.Tensor) -> torch.Tensor:
        """A boolean as its byte: of what was never written none is right."""
        return ours.view(torch.uint8) if self._boolean else ours.to(self._right.dtype)


_Result = _Floating | _Whole | PlacesOfValues
