"""Inputs that are moved by a unit of the last place, and the values that were given: comparisons of these stay as they are. Imports torch.

The oracle moves inputs to see what rounding may do to a result. But nothing rounds an input that is compared as it was given: `x > 0.5` has
one answer where x is 0.5. So a moved input knows the given values, and so does what views, copies and casts make of it. Operators that
jump (comparisons, rounding to whole numbers) take the given values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

_MARK = "_tritonsmith_given"
JUMPING = frozenset(
    "eq ne lt le gt ge isin bucketize searchsorted hardshrink threshold floor ceil round trunc frac sign sgn signbit heaviside".split()
)
"""Operators whose results jump between neighbouring values of an operand, and which every right kernel computes exactly. Remainders and
floor divisions are none: a kernel may divide first."""
MOVING = frozenset(
    "clone _to_copy index index_select gather cat stack repeat alias detach flip roll neg abs take tril triu masked_select "
    "_unsafe_view".split()
)
"""Operators whose only result has values that they got, or those with another sign."""


@dataclass(frozen=True)
class _Given:
    values: torch.Tensor
    version: int
    """Of the moved tensor."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Given:
        return self


def keep_given(moved: torch.Tensor, given: torch.Tensor | None) -> torch.Tensor:
    """Note the given values of a moved tensor; nothing where there are none."""
    if given is not None:
        setattr(moved, _MARK, _Given(given, moved._version))
    return moved


def read_given(value: Any) -> torch.Tensor | None:
    """The given values of a moved tensor; None for any other, and for one that was written to."""
    found = getattr(value, _MARK, None) if isinstance(value, torch.Tensor) else None
    return found.values if isinstance(found, _Given) and found.version == value._version else None


def take_given(value: Any) -> Any:
    """The arguments of an operator with given values in place of moved ones."""
    return tree_map(lambda part: part if (given := read_given(part)) is None else given, value)


def hand_on(func: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
    """Note the given values of what an operator made, where it made them of such."""
    if func._schema.is_mutable or not (func.is_view or name in MOVING) or all(read_given(part) is None for part in _list_parts(arguments)):
        return
    given = func(*take_given(arguments), **take_given(named))
    pairs = zip(result, given, strict=True) if isinstance(result, tuple | list) else ((result, given),)
    for made, values in pairs:
        keep_given(made, values)


def _list_parts(arguments: tuple[Any, ...]) -> list[Any]:
    return [part for value in arguments for part in (value if isinstance(value, tuple | list) else (value,))]


class KeepDecided(TorchDispatchMode):
    """Makes a forward on moved inputs, in its own types, decide by the given values what these decide alone."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        named = dict(kwargs or {})
        name = func.overloadpacket.__name__
        if name in JUMPING:
            return func(*take_given(args), **named)
        result = func(*args, **named)
        hand_on(func, name, args, named, result)
        return result
