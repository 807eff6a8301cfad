"""The drop-in: an object of a subclass of the original's class that shares everything with the original."""

from __future__ import annotations

import copy
import functools
from typing import Any, cast

import torch
from torch import nn

from tritonsmith.modules.dropin.runtime.engine import Engine
from tritonsmith.modules.dropin.runtime.graphs import call_in_graph
from tritonsmith.modules.dropin.runtime.kernel import Kernel

ENGINE = "_tritonsmith"
"""Attribute of a drop-in that holds its engine."""


def replace_module(original: nn.Module, kernel: Kernel) -> nn.Module:
    """A drop-in for a module. Both hold the same parameters, buffers, modules and hooks.

    Args:
        original: stays as it is. It must be none that has a forward of its own as an attribute.
        kernel: the kernel that runs in its place.

    Raises:
        ValueError: one sentence, where the module cannot be replaced.

    Example:
        >>> faster = replace_module(block, kernel)
        >>> isinstance(faster, type(block)), faster.weight is block.weight
        (True, True)
    """
    if ENGINE in vars(original):
        original = restore_module(original)
    if "forward" in vars(original):
        raise ValueError(
            f"this {type(original).__name__} has a forward of its own as an attribute; take it off first"
        )
    made: nn.Module = object.__new__(_derive_class(cast(Any, type(original))))
    made.__dict__.update(vars(original))
    made.__dict__[ENGINE] = Engine(made, kernel, type(original).forward, original)
    return made


def restore_module(module: nn.Module) -> nn.Module:
    """The original of a drop-in, with the same parameters, buffers, modules, hooks and mode."""
    if ENGINE not in vars(module):
        return module
    kind = cast(Any, type(module))._tritonsmith_original
    plain: nn.Module = object.__new__(kind)
    plain.__dict__.update({name: value for name, value in vars(module).items() if name != ENGINE})
    return plain


def engine_of(module: nn.Module) -> Engine:
    """The engine of a drop-in. Raises ValueError for another module."""
    engine: Engine | None = vars(module).get(ENGINE)
    if engine is None:
        raise ValueError(f"this {type(module).__name__} is no drop-in")
    return engine


@functools.cache
def _derive_class(original: Any) -> type[nn.Module]:
    """The class of drop-ins for a class; it has its name, so that rules that go by names hold."""
    kind = type(original)

    @functools.wraps(original.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        engine: Engine = self.__dict__[ENGINE]
        if torch.compiler.is_compiling():
            return call_in_graph(self, engine, args, kwargs)
        if engine.owner is not self:  # a replica that somebody made of the dict alone
            return original.forward(self, *args, **kwargs)
        return engine.call(args, kwargs)

    members = {
        "__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__, "forward": forward,
        "_tritonsmith_original": original, "__reduce_ex__": _reduce, "__deepcopy__": _copy_deep, "__copy__": _copy, "_get_name": _name,
    }  # fmt: skip
    made: type[nn.Module] = kind(original.__name__, (original,), members)
    return made


def _name(self: nn.Module) -> str:
    return f"{type(self).__name__}[tritonsmith]"


def _reduce(self: nn.Module, protocol: Any) -> Any:
    return replace_module, (restore_module(self), engine_of(self).kernel)


def _copy_deep(self: nn.Module, memo: dict[int, Any]) -> nn.Module:
    made = replace_module(copy.deepcopy(restore_module(self), memo), engine_of(self).kernel)
    memo[id(self)] = made
    return made


def _copy(self: nn.Module) -> nn.Module:
    return replace_module(copy.copy(restore_module(self)), engine_of(self).kernel)
