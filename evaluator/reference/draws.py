"""What whole-number inputs of a task may be: how get_inputs draws them, and which tables forward looks them up in. Imports torch.

Nothing is known of a number that get_inputs computes any further, or that forward uses otherwise: it may be an offset, a length or a code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_SAME_VALUES = frozenset(
    "to type long int short cuda cpu view reshape unsqueeze squeeze contiguous clone detach flatten expand expand_as repeat "
    "resolve_conj resolve_neg requires_grad_ share_memory_ pin_memory __getitem__".split()
)
"""Functions of tensors whose result has no values but those of their first argument, in the same lines."""
_OTHER_LINES = frozenset("permute transpose t movedim swapaxes T.__get__ mT.__get__".split())
"""Those after which other values stand in a line along the last axis."""
_LOOKUPS = {"aten::embedding": (0, 1, 0), "aten::index_select": (0, 2, None), "aten::gather": (0, 2, None)}
"""Operators that take places: arguments with the table and the places, and the table's axis where it is always the same."""
_COPIES = ("aten::_to_copy", "aten::clone", "aten::copy")
_WRITES_AT_PLACES = ("index_put", "index_put_", "_unsafe_index_put", "_index_put_impl_", "put", "put_", "scatter", "scatter_", "index_copy",
                     "index_copy_")  # fmt: skip
"""Operators that store at places: of two values for one place either may stay."""
_STORED = ("values", "value", "src", "source")
"""Names of what they store."""
_ADDING = ("accumulate", "reduce")
"""Arguments that have them combine values for one place."""


@dataclass(frozen=True)
class Domain:
    """What the numbers of an input may be."""

    low: float
    high: float
    """Whole numbers lie below it; others may reach it."""
    distinct: bool = False
    """Whether the numbers in a line along the last axis differ, as those of a permutation do."""


class DrawWatch(TorchFunctionMode):
    """Context manager around get_inputs that notes which of its tensors hold what torch drew as whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[torch.Tensor, Domain]] = {}

    def find(self, tensor: torch.Tensor) -> Domain | None:
        """What a tensor's numbers may be; None where nothing is known."""
        return self._known[id(tensor)][1] if id(tensor) in self._known else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = f"{getattr(getattr(func, '__self__', None), '__name__', '')}.__get__"
        if not isinstance(result, torch.Tensor):
            if name == "__setitem__" and isinstance(args[0], torch.Tensor):
                self._forget(args[0])
            return result
        domain = _read_draw(name, args, kwargs) or self._follow(name, args, kwargs)
        if domain is None and name.endswith("_") and not name.endswith("__"):
            self._forget(result)
        elif domain is not None and not result.is_floating_point() and result.dtype is not torch.bool:
            self._known[id(result)] = result, domain
        return result

    def _follow(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Domain | None:
        """What the result of a function of known tensors may be."""
        first = args[0] if args else kwargs.get("input", kwargs.get("tensors"))
        if isinstance(first, torch.Tensor):
            known = self.find(first)
            if known is None or name not in _SAME_VALUES | _OTHER_LINES:
                return None
            return None if name in _OTHER_LINES and known.distinct else known
        if name not in ("stack", "cat", "concat") or not isinstance(first, list | tuple):
            return None
        parts = [self.find(part) for part in first if isinstance(part, torch.Tensor)]
        found = [part for part in parts if part is not None]
        along = [*args[1:2], *kwargs.values()] or [0]
        in_lines = along == [0] and (name == "stack" or first[0].ndim > 1)
        if not found or len(found) != len(parts) or (any(part.distinct for part in found) and not in_lines):
            return None
        return Domain(min(part.low for part in found), max(part.high for part in found), found[0].distinct)

    def _forget(self, written: torch.Tensor) -> None:
        """Nothing is known any more of tensors in memory that is written to."""
        at = written.untyped_storage().data_ptr()
        self._known = {key: pair for key, pair in self._known.items() if pair[0].untyped_storage().data_ptr() != at}


def _read_draw(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Domain | None:
    """What a function that draws may give; None for any other."""
    if name == "randperm":
        return Domain(0, int(args[0] if args else kwargs["n"]), distinct=True)
    if name not in ("randint", "randint_like", "random_"):
        return None
    given = [value for value in args if isinstance(value, int) and not isinstance(value, bool)]
    ends = [*given, *(kwargs[key] for key in ("low", "high", "from", "to") if isinstance(kwargs.get(key), int))]
    if not ends or (name == "random_" and "from" in kwargs and "to" not in kwargs):
        return None
    low, high = (ends[0], ends[1]) if len(ends) > 1 else (0, ends[0])
    return Domain(low, high)


class LookupWatch(TorchDispatchMode):
    """Context manager around forwards that notes how whole-number inputs are used.

    Args:
        tensors: the inputs.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._kept: list[torch.Tensor] = []
        """Copies of inputs, so that no other tensor gets their memory."""
        self._numbers: dict[int, int] = {}
        for number, tensor in enumerate(tensors):
            if not tensor.is_floating_point() and tensor.numel():
                self._numbers[tensor.untyped_storage().data_ptr()] = number
        self._sizes: dict[int, int] = {}
        """Of the shortest table, by input."""
        self._other: set[int] = set()
        """Inputs that are used otherwise."""
        self.stores_at_places = False
        """Whether forward stores at places: of two values for one place either may stay."""

    def find(self, number: int) -> Domain | None:
        """What an input's numbers may be, as far as tables tell."""
        return Domain(0, self._sizes[number]) if number in self._sizes and number not in self._other else None

    def shortest(self, number: int) -> float:
        """Length of the shortest table that an input's numbers are places of; infinite where they are none."""
        return self._sizes.get(number, math.inf)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        name, tensors = func._schema.name, [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        self.stores_at_places |= _stores_at_places(func, args, kwargs)
        used = {number for tensor in tensors if (number := self._number_of(tensor)) is not None}
        result = func(*args, **kwargs)
        if used:
            self._note(name, args, used, result)
        return result

    def _number_of(self, tensor: Any) -> int | None:
        return self._numbers.get(tensor.untyped_storage().data_ptr()) if isinstance(tensor, torch.Tensor) else None

    def _note(self, name: str, args: tuple[Any, ...], used: set[int], result: Any) -> None:
        if isinstance(result, torch.Tensor) and self._number_of(result) in used:
            return  # a view
        if name in _COPIES and isinstance(result, torch.Tensor) and not result.is_floating_point() and result.dtype is not torch.bool:
            self._kept.append(result)
            self._numbers[result.untyped_storage().data_ptr()] = self._number_of(args[0]) or 0
            return
        for number, size in _list_lookups(name, args, self._number_of):
            self._sizes[number] = min(size, self._sizes.get(number, size))
            used.discard(number)
        self._other |= used


def _list_lookups(name: str, args: tuple[Any, ...], number_of: Callable[[Any], int | None]) -> list[tuple[int, int]]:
    """Numbers of the inputs that an operator takes for places, each with the length of the axis."""
    if name == "aten::index":
        pairs = [(number_of(places), args[0].shape[axis]) for axis, places in enumerate(args[1]) if places is not None]
    elif name in _LOOKUPS:
        table, places, axis = _LOOKUPS[name]
        pairs = [(number_of(args[places]), args[table].shape[args[1] if axis is None else axis])]
    else:
        pairs = []
    return [(number, size) for number, size in pairs if number is not None]


def _stores_at_places(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    if func._schema.name.removeprefix("aten::") not in _WRITES_AT_PLACES:
        return False
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | dict(kwargs)
    stored = next((given[name] for name in _STORED if given.get(name) is not None), None)
    if not isinstance(stored, torch.Tensor) or stored.numel() == 1:
        return False  # one value for every place
    places = given.get("indices", given.get("index"))
    whole = any(isinstance(leaf, torch.Tensor) and leaf.dtype not in (torch.bool, torch.uint8) for leaf in tree_leaves(places))
    return whole and not any(given.get(name) for name in _ADDING)


def keep_distinct(domain: Domain | None, tensor: torch.Tensor) -> Domain | None:
    """The domain, with the numbers of a line kept different where those of a tensor are, as those of `arange`."""
    if domain is None or not tensor.ndim or tensor.shape[-1] < 2:  # noqa: PLR2004 - a line of one number is any
        return domain
    rising = tensor.sort(dim=-1).values
    return replace(domain, distinct=bool((rising[..., 1:] != rising[..., :-1]).all()))
