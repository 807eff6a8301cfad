"""Which type a tensor of a forward in float64 stands for, and numbers rounded to that type where PyTorch rounds them. Imports torch.

`x > 0.3` compares a tensor of 16 bits with 0.3 rounded to 16 bits. In float64 it would be another comparison: an element that equals the
number in 16 bits would fall on the other side. Where a number is compared or selected, PyTorch (2.13, tried on the CPU) does this:

| operators | the number is rounded to |
|--|--|
| `==`, `<` and their kin, `isin`, hardshrink, remainder, fmod; what fill, masked_fill, where, clamp, pad select | the type of the tensor |
| threshold | the type of the tensor on a card, at least float32 on the CPU |
| floor_divide, div with a rounding mode | at least float32, the type of the arithmetic |
| `+`, `*`, lerp, celu, softshrink and other smooth functions | nothing here: the number as written is the mathematical answer |

A tensor without dimensions is a number where the other operand has some. So are tensors that the code makes of numbers. A value that was
only moved and cast, and is then compared, is what the casts made of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64, torch.complex64: torch.complex128}
"""What is computed in place of a narrower type."""
_MARK = "_tritonsmith_stands_for"
_COMPARED = frozenset("eq ne lt le gt ge isin bucketize searchsorted".split())
_SELECTED = frozenset(
    "masked_fill fill full full_like new_full scalar_tensor where clamp clamp_min clamp_max clip hardtanh hardshrink index_fill "
    "constant_pad_nd maximum minimum fmax fmin scatter nan_to_num index_put copy remainder fmod".split()
)
_OF_TYPES = _SELECTED - {"clamp", "clamp_min", "clamp_max", "hardtanh", "clip"}
_MOVED = frozenset(
    "clone _to_copy index index_select gather cat stack repeat alias detach lift_fresh flip roll neg abs relu amax amin max min sort topk "
    "take tril triu masked_select _unsafe_view".split()
)
"""Operators whose results are values that they got, or those with another sign."""
_LIKE_FIRST = ("norm", "convolution", "scaled_dot_product")
"""Parts of names of operators whose result has the type of their first operand."""
_SMALL = 256
"""Whole numbers up to this are themselves in every floating type."""


@dataclass(frozen=True)
class OriginalType:
    """What a tensor in float64 stands for."""

    dtype: torch.dtype
    """Its type in the module as it was written."""
    casts: tuple[torch.dtype, ...] | None = None
    """Types that its values, which nothing was computed from, went through; None for values that were computed."""
    literal: bool = False
    """Whether the code made it of numbers."""


def mark(tensor: torch.Tensor, original: OriginalType) -> torch.Tensor:
    """Note what a tensor stands for; of complex numbers where it has such."""
    if tensor.is_complex() != original.dtype.is_complex:
        dtype = original.dtype.to_complex() if tensor.is_complex() else original.dtype.to_real()
        original = replace(original, dtype=dtype)
    setattr(tensor, _MARK, original)
    return tensor


def stand_for(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Note that a tensor holds given values of a type."""
    return mark(tensor, OriginalType(dtype, ()))


def read_original(tensor: torch.Tensor) -> OriginalType:
    """What a tensor stands for: itself where nothing was noted."""
    found = getattr(tensor, _MARK, None)
    return found if isinstance(found, OriginalType) else OriginalType(tensor.dtype, ())


def is_inexact(value: object) -> bool:
    """Whether a value is a tensor of floating or complex numbers."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def round_number(number: Any, dtype: torch.dtype) -> Any:
    """A number as a tensor of the type holds it; itself where the type has no room for it."""
    if isinstance(number, complex):
        return complex(round_number(number.real, dtype), round_number(number.imag, dtype))
    dtype = dtype.to_real()
    if isinstance(number, bool) or not isinstance(number, int | float) or not dtype.is_floating_point:
        return number
    if (isinstance(number, int) and abs(number) <= _SMALL) or not math.isfinite(number):
        return number
    rounded = _round_float(float(number), dtype)
    return number if math.isinf(rounded) or rounded == number else rounded


@functools.lru_cache(maxsize=4096)
def _round_float(number: float, dtype: torch.dtype) -> float:
    return float(torch.tensor(number, dtype=torch.float64).to(dtype))


def round_tensor(tensor: torch.Tensor, dtypes: Iterable[torch.dtype]) -> torch.Tensor:
    """The values as tensors of these types hold them, one type after the other; themselves where a type has no room for them."""
    for dtype in dtypes:
        if dtype in WIDE and dtype.is_complex == tensor.is_complex():
            rounded = tensor.to(dtype).to(tensor.dtype)
            tensor = torch.where(rounded.isinf() & ~tensor.isinf(), tensor, rounded)
    return tensor


def promote(tensors: Sequence[torch.Tensor], default: torch.dtype) -> torch.dtype:
    """The type of arithmetic on these operands, by PyTorch's rules: tensors without dimensions count only among themselves."""
    known = [(read_original(tensor).dtype, tensor.ndim > 0) for tensor in tensors]
    counted = [dtype for dtype, sized in known if sized] or [dtype for dtype, _ in known]
    return functools.reduce(torch.promote_types, counted) if counted else default


class Rounder:
    """Rounds the numbers of one operator, and says what its results stand for.

    Args:
        default: the type of tensors for which the code names none.
        on_card: whether the module runs on a card.
    """

    def __init__(self, default: torch.dtype, *, on_card: bool) -> None:
        self.default = default
        self.used = False
        """Whether a number was rounded, or compared with one that was."""
        self._on_card = on_card

    def round_arguments(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of an operator, before they are widened, with numbers rounded as PyTorch rounds them."""
        in_place, name = name.endswith("_"), name.removesuffix("_")
        if not _is_of_floats([*arguments, *named.values()]):
            return arguments, named
        if name in _COMPARED or name in _SELECTED:
            target = self._find_target(name, arguments, named)
            if name == "nan_to_num":
                self.used |= target in WIDE
                arguments, named = _fill_ends(target, arguments, named)
            first = arguments[:1] if in_place else ()  # what is written to stays the same tensor
            rest = tuple(self._round(name, value, target) for value in arguments[len(first) :])
            return (*first, *rest), {key: value if key == "out" else self._round(name, value, target) for key, value in named.items()}
        rounded = "rounding_mode" in named and named["rounding_mode"] is not None
        if name in ("floor_divide", "threshold") or (name == "div" and rounded):
            target = self._find_target(name, arguments, named)
            coarse = torch.float32 if target in WIDE and not (name == "threshold" and self._on_card) else target
            kinds = (coarse, coarse, target) if name == "threshold" else (coarse,) * len(arguments)
            arguments = tuple(self._round_scalar(value, kind, counts=True) for value, kind in zip(arguments, kinds, strict=False))
        return arguments, named

    def find_result(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> OriginalType:
        """What the floating results of an operator stand for."""
        plain, operands = name.removesuffix("_"), list(_list_inexact((arguments, named)))
        target = self._find_target(plain, arguments, named)
        if plain in ("scalar_tensor", "full") and not operands:
            return OriginalType(target, (), literal=True)
        if plain not in _MOVED or not operands:
            return OriginalType(target)
        known = [read_original(operand) for operand in operands]
        casts = {original.casts for original in known} - {()} or {()}
        if len(casts) > 1 or None in casts:
            return OriginalType(target)
        (taken,) = casts
        assert taken is not None
        changed = target != known[0].dtype and plain == "_to_copy"
        return OriginalType(target, (*taken, known[0].dtype, target) if changed else taken, all(one.literal for one in known))

    def _find_target(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> torch.dtype:
        asked = next((value for value in (*arguments, *named.values()) if isinstance(value, torch.dtype)), None)
        if asked is not None:
            return asked
        operands = list(_list_inexact((arguments, named)))
        first = name in ("fill", "copy", "index_put", "masked_fill", "index_fill", "scatter") or any(part in name for part in _LIKE_FIRST)
        return promote(operands[:1] if first else operands, self.default)

    def _round(self, name: str, value: Any, target: torch.dtype) -> Any:
        """An argument of an operator that compares or selects."""
        compared = name in _COMPARED
        if not isinstance(value, torch.Tensor):
            return self._round_scalar(value, target, counts=name in _OF_TYPES or compared or target is not torch.float32)
        if not is_inexact(value):
            return value
        original = read_original(value)
        self.used |= compared and original.literal
        if compared and (original.casts or original.casts is None):  # what was computed is compared as its type holds it
            value = mark(round_tensor(value, original.casts or [original.dtype]), original)
            self.used |= original.casts is not None or original.dtype.itemsize < torch.float32.itemsize
        moved = original.casts is not None
        if value.ndim == 0 and target in WIDE and (moved if name in ("copy", "index_put") else moved or original.dtype != target):
            self.used |= compared or target is not torch.float32
            value = mark(round_tensor(value, [target]), original)
        return value

    def _round_scalar(self, value: Any, target: torch.dtype, *, counts: bool) -> Any:
        rounded = round_number(value, target)
        self.used |= counts and rounded is not value
        return rounded


def _is_of_floats(values: Iterable[Any]) -> bool:
    """Whether an operator works on floating values: whole numbers of whole tensors stay as they are."""
    return any(isinstance(value, float | complex) or (isinstance(value, torch.dtype) and value in WIDE) for value in values) or any(
        True for _ in _list_inexact(tuple(values))
    )


def _fill_ends(target: torch.dtype, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`nan_to_num` with the largest numbers of the type, where the code names no others."""
    if target not in WIDE or not target.is_floating_point:
        return arguments, named
    info = torch.finfo(target)
    given = [*arguments, *[None] * (4 - len(arguments))]
    for place, (key, end) in enumerate((("posinf", info.max), ("neginf", info.min)), start=2):
        named = {key: end if given[place] is None and named.get(key) is None else named.get(key, given[place]), **_without(named, key)}
    return tuple(given[:2]) if "nan" not in named else tuple(given[:1]), named


def _without(named: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in named.items() if name != key}


def _list_inexact(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if is_inexact(value):
            yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _list_inexact(part)
    elif isinstance(value, dict):
        yield from _list_inexact(list(value.values()))


def drop_casts(tensor: torch.Tensor) -> None:
    """Note that a tensor was computed, in place."""
    original = read_original(tensor)
    if original.casts or original.literal:
        mark(tensor, replace(original, casts=None, literal=False))
