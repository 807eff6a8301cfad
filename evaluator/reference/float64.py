"""A forward in float64 from end to end, also where its code casts to another type or makes tensors of one. Imports torch.

A module in float64 need not compute in float64: `x.float()`, `.to(torch.bfloat16)`, autocast and `torch.zeros(n)` leave it. The oracle
is no oracle then, and its error would count as the reference's. So every operator gets and gives float64 in place of narrower types. Each
tensor is known by the type that it stands for: numbers that are compared or selected are rounded to it (`number_types.py`).
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from tritonsmith.evaluator.reference.number_types import (
    WIDE,
    OriginalType,
    Rounder,
    drop_casts,
    is_inexact,
    mark,
    read_original,
    round_tensor,
    stand_for,
)

_TYPES = "_tritonsmith_types"
"""Attribute of a widened module: types that its parameters and buffers had, by name."""
_MAKERS = ("tensor", "as_tensor", "asarray", "new_tensor")
"""Functions that make a tensor of Python's numbers."""
_CASTS = ("to", "type", "type_as", "double")
"""Methods that do nothing to a tensor of the type that is asked for, and would do something to what it stands for."""


def widen_module(model: nn.Module) -> nn.Module:
    """A copy of a module in float64; complex weights too, which `double` leaves as they are. It knows the types that it had."""
    copied: nn.Module = copy.deepcopy(model).double()
    copied._apply(lambda value: value.to(torch.complex128) if value.dtype is torch.complex64 else value)
    copied.__dict__[_TYPES] = {name: value.dtype for name, value in _list_held(model)}
    return copied


def _list_held(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


class InFloat64:
    """Makes forwards of a module in float64 stay there.

    What the first forward shows about the code holds for later ones: where it never leaves float64, compares no number that its type
    rounds and asks for no type, they run without the detour. Numbers of Python become float64 in any case.

    Args:
        on_card: whether the module itself runs on a card.
    """

    def __init__(self, *, on_card: bool = False) -> None:
        self._needed: bool | None = None
        self._on_card = on_card

    @contextlib.contextmanager
    def __call__(self, model: nn.Module | None = None) -> Iterator[None]:
        """Around one forward, of a module that `widen_module` made."""
        kept = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        widen = _Widen(Rounder(kept, on_card=self._on_card))
        code = _Code(widen)
        try:
            if self._needed is False:
                yield
            else:
                _mark_held(model)
                with code, widen:
                    yield
        finally:
            torch.set_default_dtype(kept)
        self._needed = bool(self._needed) or widen.used or widen.rounder.used or code.asked


def _mark_held(model: nn.Module | None) -> None:
    types = getattr(model, _TYPES, {})
    for name, value in _list_held(model) if model is not None else ():
        if name in types and is_inexact(value):
            stand_for(value, types[name])


class _Widen(TorchDispatchMode):
    def __init__(self, rounder: Rounder) -> None:
        super().__init__()
        self.used = False
        """Whether anything had to be widened."""
        self.rounder = rounder

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        with torch._C.DisableTorchFunction():
            return self._run(func, args, dict(kwargs or {}))

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fresh = func is torch.ops.aten.lift_fresh.default  # `torch.tensor(...)`: a view to PyTorch, but of a tensor that nobody else has
        name = func.overloadpacket.__name__
        if func.is_view and not fresh:
            original = read_original(args[0])
            result = func(*args, **kwargs)
            return tree_map(lambda part: mark(part, original) if is_inexact(part) else part, result)
        args, kwargs = self.rounder.round_arguments(name, args, kwargs)
        if func._schema.is_mutable:
            result = func(*args, **kwargs)
            if args and is_inexact(args[0]):
                drop_casts(args[0])
            return result
        original = OriginalType(self._read_type(args[0]), (), literal=True) if fresh else self.rounder.find_result(name, args, kwargs)
        literal = original.literal and name == "_to_copy"
        wide_args, wide_kwargs = tree_map(self._widen, (args, kwargs))
        return tree_map(lambda part: self._finish(part, original, literal), func(*wide_args, **wide_kwargs))

    def _read_type(self, made: torch.Tensor) -> torch.dtype:
        """The type of a tensor of numbers: float64 is what it has where the code names none."""
        return self.rounder.default if made.dtype is torch.float64 else made.dtype

    def _finish(self, value: Any, original: OriginalType, literal: bool) -> Any:
        """A result in float64, with what it stands for; a cast tensor of numbers is rounded."""
        value = self._widen(value)
        if not is_inexact(value):
            return value
        return mark(round_tensor(value, [original.dtype]) if literal else value, original)

    def _widen(self, value: Any) -> Any:
        """float64 in place of a narrower floating type, or of a tensor of one."""
        if isinstance(value, torch.dtype) and value in WIDE:
            self.used = True
            return WIDE[value]
        if isinstance(value, torch.Tensor) and value.dtype in WIDE:
            self.used = True
            return mark(value.to(WIDE[value.dtype]), read_original(value))
        return value


class _Code(TorchFunctionMode):
    """What the code sees: tensors have the types that they stand for, and numbers become tensors of these."""

    def __init__(self, widen: _Widen) -> None:
        super().__init__()
        self.asked = False
        """Whether the code asked a tensor for its type."""
        self._widen = widen

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "__get__" and func.__self__.__name__ == "dtype":
            return self._tell_type(func(*args, **kwargs), args[0])
        result = func(*args, **kwargs)
        if name not in _MAKERS + _CASTS or not is_inexact(result):
            return result
        with _disable_current_modes():
            if name in _CASTS:
                return self._finish_cast(name, result, args, kwargs)
            self._finish_made(name, result, args, kwargs)
        return result

    def _tell_type(self, dtype: torch.dtype, tensor: torch.Tensor) -> torch.dtype:
        known = read_original(tensor).dtype
        within = str(sys._getframe(2).f_globals.get("__name__"))
        if WIDE.get(known) is not dtype or within.startswith("torch.nn."):  # whose states and masks may have the type at hand
            return dtype
        self.asked = True
        return known

    def _finish_made(self, name: str, made: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Round a tensor of numbers in place, and note what it stands for."""
        given = kwargs.get("dtype")
        data = args[1:] if name == "new_tensor" else args
        plain = bool(data) and isinstance(data[0], int | float | complex | list | tuple) and type(data[0]).__module__ != "numpy"
        if not plain:
            return
        if given is None and name == "new_tensor":
            given = read_original(args[0]).dtype
        dtype = self._widen.rounder.default if given is None else given
        if made.dtype is not torch.float64 or not dtype.is_floating_point:
            return
        rounded = round_tensor(made, [dtype])
        self._widen.rounder.used |= not torch.equal(rounded, made)
        with torch.no_grad():
            made.copy_(rounded)
        mark(made, OriginalType(dtype, (), literal=True))

    def _finish_cast(self, name: str, result: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        """Note what a cast tensor stands for; one of its own where the cast did nothing."""
        given = next((value for value in (*args[1:], *kwargs.values()) if isinstance(value, torch.dtype)), None)
        other = next((value for value in (*args[1:], *kwargs.values()) if isinstance(value, torch.Tensor)), None)
        known, target = read_original(args[0]), torch.float64 if name == "double" else given
        if target is None and other is not None:
            target = read_original(other).dtype
        if target is None or not target.is_floating_point or read_original(result).dtype is target:
            return result
        casts = None if known.casts is None else (*known.casts, known.dtype, target)
        result = result.clone() if result is args[0] else result
        if known.literal:
            result = round_tensor(result, [target])
        return mark(result, OriginalType(target, casts, known.literal))
