"""What inputs of a task may be, and the whole numbers of each kind of inputs within it. Imports torch.

| kind | whole numbers whose range is known |
|--|--|
| `own`, `signed` | what get_inputs draws |
| `ints` | three numbers of the range, each many times: what is added up or counted by place meets |
| `tail`, `large` | those of get_inputs, in each line rising or falling: sorted ones show what only works on mixed ones |
| `shifted` | drawn evenly from the range |
| `sided` | from the lowest quarter in half of the slices along the first axis, from the highest in the others |
| `below`, `above` | the first number, or the last one, everywhere |
| `constant` | one number in each line |
| `holes` | a quarter of them is the first number |
| `ends`, `edges` | the first and the last number at the two ends of an axis |

A range is declared (`DOMAINS`), or it is that of the draw (`torch.randint`), or that of the tables that the numbers are places of. Lines
along the last axis whose numbers differ, as those of a permutation do, are put into another order and have no other numbers.

Whole numbers stay those of get_inputs where forward stores at places, of which the order of equal ones decides, and where it goes by
values. Where a result is itself a place, kinds without ties have no more equal numbers than get_inputs gives.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from tritonsmith.evaluator.channel.strides import distinct, with_values
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.oracle.checks.inputs import KINDS, draw_sides, raise_ends, redraw
from tritonsmith.evaluator.reference.draws import Domain, DrawWatch, LookupWatch, keep_distinct
from tritonsmith.evaluator.reference.module import Reference
from tritonsmith.evaluator.reference.watch import WatchedForward, run_watched
from tritonsmith.evaluator.tasks.declarations import read_domains

_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
"""Types whose numbers can be sorted and compared."""
_CLUSTERS = 3
"""Numbers that `ints` takes from a range."""
_HOLES = 0.25
"""Share of first numbers in `holes`."""
_QUARTERS = 4
"""`sided` takes the first and the last of so many parts of a range."""
_RISING, _FALLING = ("tail", "below"), ("large", "above")
"""Kinds that put lines of different numbers into this order; the other ones into any."""
_SEED_BITS = (1 << 62) - 1
"""Of a seed: whole numbers have another one than the floating values beside them."""
_NO_MORE_EQUAL = ("tail", "large", "shifted")
"""Kinds without ties that give no more equal numbers than get_inputs does, but for a small range."""


class Domains:
    """What the inputs of one task may be.

    Args:
        reference: the task's file.
        model: its model, whose forward has the arguments that the file names.
        arguments: what get_inputs gave.
        draws: watched how it drew them.
    Raises:
        TaskError: the file's DOMAINS name no input, or get_inputs leaves them.
    """

    def __init__(self, reference: Reference, model: nn.Module, arguments: Sequence[Any], draws: DrawWatch) -> None:
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        self._declared = _read_declared(reference, model, arguments)
        self._drawn = {number: domain for number, tensor in enumerate(tensors) if (domain := draws.find(tensor)) is not None}
        self._known: dict[int, Domain] = {}
        self._has_places = False

    def look(self, lookups: LookupWatch, tensors: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], *, by_values: bool) -> None:
        """Note what forward does with the inputs, and whether it goes by values."""
        self._has_places = any(not output.is_floating_point() for output in outputs)
        if by_values or lookups.stores_at_places:
            return
        for number, tensor in enumerate(tensors):
            if tensor.dtype not in _WHOLE or not tensor.numel():
                continue
            found = self._drawn.get(number)
            if number in self._declared:
                low, high = self._declared[number]  # of the file's own size; tables may be smaller at another one
                found = Domain(low, min(high, lookups.shortest(number)), distinct=bool(found and found.distinct))
            found = found or keep_distinct(lookups.find(number), tensor)
            if found is not None and found.low <= float(tensor.min()) and float(tensor.max()) < found.high:
                self._known[number] = found

    @property
    def bound_fractions(self) -> bool:
        """Whether the file declares what an input may be: no other value has a meaning then."""
        return bool(self._declared)

    def are_free(self, number: int) -> bool:
        """Whether every whole number of an input may be any other one of them."""
        return number in self._known and not self._known[number].distinct

    def are_distinct(self, number: int) -> bool:
        """Whether the whole numbers in each line of an input differ, and may stand in any order."""
        return number in self._known and self._known[number].distinct

    def redraw(self, kind: str, own: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
        """Inputs of a kind, like those that get_inputs drew and within their domains, drawn under the seed."""
        drawn = redraw(kind, own, seed)
        if kind == "own" or not drawn:
            return drawn
        generator = torch.Generator(device=drawn[0].device).manual_seed(~seed & _SEED_BITS)
        changed = []
        for number, (natural, tensor) in enumerate(zip(own, drawn, strict=True)):
            if tensor.is_floating_point() and number in self._declared:
                changed.append(_bring_into(tensor, *self._declared[number]))
            elif number in self._known and not (self._has_places and not KINDS[kind].ties and kind not in _NO_MORE_EQUAL):
                values = _draw_whole(kind, distinct(natural), self._known[number], generator)
                changed.append(with_values(natural, values.to(natural.dtype).contiguous()))
            else:
                changed.append(tensor)
        return changed


def find_domains(
    reference: Reference, model: nn.Module, arguments: list[Any], draws: DrawWatch
) -> tuple[Domains, WatchedForward]:  # fmt: skip
    """What the inputs may be, and what one forward on these arguments showed besides (`run_watched`). Raises TaskError."""
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    before = [tensor if tensor.is_floating_point() else tensor.clone() for tensor in tensors]
    domains = Domains(reference, model, arguments, draws)
    with LookupWatch(tensors) as lookups:
        shown = run_watched(reference, model, arguments)
    domains.look(lookups, before, shown.outputs, by_values=shown.goes_by_values)
    return domains, shown


def _bring_into(tensor: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """A floating tensor, brought into a span, ends included."""
    once = torch.sigmoid(distinct(tensor).float()).mul_(high - low).add_(low)
    return with_values(tensor, once.to(tensor.dtype).clamp_(low, high).contiguous())


def _draw_whole(kind: str, own: torch.Tensor, domain: Domain, generator: torch.Generator) -> torch.Tensor:
    """Whole numbers of a kind in the shape of `own`."""
    low, high = int(domain.low), int(domain.high)
    if domain.distinct and own.ndim:
        return _order_lines(kind, own, generator)
    if kind in ("below", "above"):
        return torch.full_like(own, low if kind == "below" else high - 1)
    if kind in ("tail", "large"):
        return own.sort(dim=-1, descending=kind == "large").values if own.ndim else own
    if kind in ("ends", "edges"):
        return raise_ends(own.clone(), kind, generator, (low, high - 1))
    if kind == "ints":
        some = _draw_evenly((min(_CLUSTERS, high - low),), low, high, own, generator)
        return some[_draw_evenly(own.shape, 0, len(some), own, generator)]
    if kind == "constant":
        return _draw_evenly((*own.shape[:-1], 1) if own.ndim else (), low, high, own, generator).expand(own.shape)
    if kind == "holes":
        holes = torch.rand(own.shape, generator=generator, device=own.device) < _HOLES
        return own.masked_fill(holes, low)
    if kind == "sided":
        part = max(1, (high - low) // _QUARTERS)
        near = _draw_evenly(own.shape, 0, part, own, generator)
        return torch.where(draw_sides(own, generator) < 0, low + near, high - 1 - near)
    return _draw_evenly(own.shape, low, high, own, generator) if kind == "shifted" else own


def _draw_evenly(shape: Sequence[int], low: int, high: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(low, high, tuple(shape), generator=generator, device=like.device, dtype=torch.int64)


def _order_lines(kind: str, own: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The numbers of each line along the last axis in another order."""
    if kind in (*_RISING, *_FALLING):
        return own.sort(dim=-1, descending=kind in _FALLING).values
    order = torch.rand(own.shape, generator=generator, device=own.device).argsort(dim=-1)
    return own.gather(-1, order)


def _read_declared(reference: Reference, model: nn.Module, arguments: Sequence[Any]) -> dict[int, tuple[float, float]]:
    """The ends that the file declares, by numbers of the tensors. Raises TaskError."""
    value = getattr(reference.module, "DOMAINS", None)
    declared = {} if value is None else read_domains(reference.task.path, value)
    names = [*inspect.signature(model.forward).parameters] if declared else []
    places = [place for place, argument in enumerate(arguments) if isinstance(argument, torch.Tensor)]
    found: dict[int, tuple[float, float]] = {}
    for name, (low, high) in declared.items():
        where = f"{reference.task.path}: DOMAINS"
        place = names.index(name) if isinstance(name, str) and name in names else name
        if place not in places:
            known = ", ".join(names[at] if at < len(names) else str(at) for at in places) or "none"
            raise TaskError(f"{where} names {name!r}, which is no tensor among forward's arguments; choose among: {known}")
        tensor = arguments[int(place)]
        whole = not tensor.is_floating_point()
        if tensor.is_complex() or tensor.dtype is torch.bool or (whole and not (float(low).is_integer() and float(high).is_integer())):
            kind = str(tensor.dtype).removeprefix("torch.")
            raise TaskError(f"{where} gives {name!r} the ends {low} and {high}, but it is {kind}; give whole ends, or leave it out")
        if tensor.numel() and not (low <= float(tensor.min()) and float(tensor.max()) <= (high - 1 if whole else high)):
            drawn = f"{float(tensor.min()):.6g} to {float(tensor.max()):.6g}"
            ends = f"{low} to {high}" + (", the last one excluded" if whole else "")
            raise TaskError(f"{where} says that {name!r} has numbers from {ends}, and get_inputs() draws {drawn}; mend one of them")
        found[places.index(int(place))] = low, high
    return found
