"""What a drop-in is made of: the text of the kernels, for what it is proven, and how it stands for the original."""

from __future__ import annotations

import hashlib
import linecache
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from tritonsmith.modules.dropin.runtime.form import Form
from tritonsmith.modules.dropin.runtime.launches import hold_launches
from tritonsmith.modules.dropin.runtime.proof import Proof

_PLAIN = (bool, int, float, str, type(None), torch.dtype)
"""Kinds of attributes that say how a module is made."""


@dataclass(frozen=True)
class Kernel:
    """The winner of a run as it is used in place of a module."""

    name: str
    """Of the module's class."""
    text: str
    """All of `best.py`."""
    arguments: tuple[Any, ...]
    """Of ModelNew's constructor."""
    form: Form
    proof: Proof
    state: Mapping[str, str]
    """For each name of the task's state the path of that tensor in the original."""
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """By name of the task's state: tensors that the original does not hold."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Plain attributes of the original and the modules in it, by path. The kernel is made for these."""

    def __getstate__(self) -> dict[str, Any]:
        """What files and copies hold: the fields, and nothing that is made of them."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @cached_property
    def digest(self) -> str:
        """Eight signs that tell this kernel from others."""
        parts = (
            self.text,
            repr(self.arguments),
            repr(self.form),
            repr(self.proof),
            sorted(self.state.items()),
            sorted(self.config.items()),
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]

    @cached_property
    def code(self) -> types.ModuleType:
        """The text as a module, whose kernels keep what they compiled. Raises what it raises when it is imported."""
        module = import_text(self.text, f"tritonsmith_kernel_{self.digest}")
        hold_launches(module)
        return module

    @cached_property
    def is_interpreted(self) -> bool:
        """Whether Triton's interpreter runs the kernels, as it does under TRITON_INTERPRET=1; then they take tensors of the CPU."""
        from triton.runtime.interpreter import InterpretedFunction  # noqa: PLC0415 - Triton is there where kernels run

        return any(isinstance(value, InterpretedFunction) for value in vars(self.code).values())

    @cached_property
    def forward(self) -> Callable[..., Any]:
        """ModelNew's forward as it was judged, without what `best.py` puts around it."""
        names = vars(self.code)
        found: Callable[..., Any] = (
            names.get("kernels_forward_in_use") or names.get("kernels_forward") or self.code.ModelNew.forward
        )
        return found

    @cached_property
    def keeps(self) -> bool:
        """Whether the kernel keeps something that it makes of weights, until these are written."""
        return "_version" in self.text.partition("# ---- For use in larger programs")[0]

    @cached_property
    def has_own_backward(self) -> bool:
        """Whether the kernel brings gradients of its own that were judged; those of the built-in author run the original again."""
        return self.proof.backward and "class KernelsForward(" not in self.text

    def build(self) -> nn.Module:
        """A ModelNew without values."""
        with torch.inference_mode(False), torch.no_grad():
            model: nn.Module = self.code.ModelNew(*self.arguments)
        return model.train(self.proof.training)

    def see_writes(self, module: nn.Module) -> None:
        """Have writes through `.data` of the module's parameters and buffers seen, where the kernel keeps what it makes of them."""
        names = vars(self.code)
        see = names.get("see_writes_in_use") or names.get("see_writes")
        if self.keeps and see is not None:
            see(module)


def import_text(text: str, name: str) -> types.ModuleType:
    """A text as a module under a name, whose lines Triton and tracebacks can read. It is imported once."""
    if name in sys.modules:
        return sys.modules[name]
    path = f"<{name}>"
    module = types.ModuleType(name)
    module.__file__ = path
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    sys.modules[name] = module
    try:
        exec(compile(text, path, "exec"), vars(module))  # noqa: S102 - the user's own kernel
    except BaseException:
        del sys.modules[name]
        raise
    return module


def describe_config(module: nn.Module) -> dict[str, str]:
    """Classes and plain attributes of a module and of those in it, by path, as text."""
    found: dict[str, str] = {}
    for path, part in module.named_modules():
        if "parametrizations" in path.split("."):
            continue  # they make a weight, which is a tensor like another
        kind = type_before_parametrizations(part)
        kind = getattr(kind, "_tritonsmith_original", kind)
        found[path] = f"{kind.__module__}.{kind.__qualname__}"
        for name, value in vars(part).items():
            if name.startswith("_") or name in ("training", "forward"):
                continue
            place = f"{path}.{name}" if path else name
            if isinstance(value, _PLAIN) or (
                isinstance(value, tuple | list) and all(isinstance(item, _PLAIN) for item in value)
            ):
                found[place] = repr(value)
            elif callable(value) and not isinstance(value, nn.Module) and hasattr(value, "__qualname__"):
                found[place] = f"{value.__module__}.{value.__qualname__}"
    return found


def find_difference(known: Mapping[str, str], found: Mapping[str, str]) -> str:
    """What a module has otherwise than the one that a kernel is made for, in words; empty where nothing differs."""
    for path, value in known.items():
        if path not in found:
            return f"it has no {path}"
        if found[path] != value:
            return f"its {path or 'class'} is {found[path][:80]} and not {value[:80]}"
    extra = next((path for path in found if path not in known), "")
    return f"it has {extra} besides" if extra else ""


def reach(module: nn.Module, path: str) -> torch.Tensor:
    """The tensor at a dotted path of a module; a parametrised one is computed."""
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name)
    return value  # type: ignore[no-any-return]
