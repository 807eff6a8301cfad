"""A forward in float64 from end to end, also where its code casts to another type or makes tensors of one. Imports torch.

A module in float64 need not compute in float64: `x.float()`, `.to(torch.bfloat16)`, autocast and `torch.zeros(n)` leave it. The oracle
is no oracle then, and its error would count as the reference's. So every operator gets and gives float64 in place of narrower types.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

_WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64, torch.complex64: torch.complex128}


def widen_module(model: nn.Module) -> nn.Module:
    """A copy of a module in float64; complex weights too, which `double` leaves as they are."""
    copied: nn.Module = copy.deepcopy(model).double()
    copied._apply(lambda value: value.to(torch.complex128) if value.dtype is torch.complex64 else value)
    return copied


class InFloat64:
    """Makes forwards of a module in float64 stay there.

    What the first forward shows about the code holds for later ones: where it never leaves float64 they run without the detour.
    Numbers of Python become float64 in any case: `torch.full(n, torch.finfo(x.dtype).min)` fits no other type.
    """

    def __init__(self) -> None:
        self._needed: bool | None = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Around one forward."""
        kept = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        widen = _Widen()
        try:
            with widen if self._needed is not False else contextlib.nullcontext():
                yield
        finally:
            torch.set_default_dtype(kept)
        self._needed = bool(self._needed) or widen.used


class _Widen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.used = False
        """Whether anything had to be widened."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        fresh = func is torch.ops.aten.lift_fresh.default  # `torch.tensor(...)`: a view to PyTorch, but of a tensor that nobody else has
        if (func.is_view and not fresh) or func._schema.is_mutable:
            return func(*args, **kwargs)
        args, kwargs = tree_map(self._widen, (args, kwargs))
        return tree_map(self._widen, func(*args, **kwargs))

    def _widen(self, value: Any) -> Any:
        """float64 in place of a narrower floating type, or of a tensor of one."""
        if isinstance(value, torch.dtype) and value in _WIDE:
            self.used = True
            return _WIDE[value]
        if isinstance(value, torch.Tensor) and value.dtype in _WIDE:
            self.used = True
            return value.to(_WIDE[value.dtype])
        return value
