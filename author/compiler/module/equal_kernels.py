"""Kernels that several regions share: those that differ in names alone are written once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tritonsmith.author.compiler.ir.code import Function
from tritonsmith.author.compiler.ir.walk import canonical, names_in, rename


class SharedKernels:
    """The kernels that a module has already, by what they do."""

    def __init__(self) -> None:
        self._names: dict[tuple[Function, ...], str] = {}

    def find(self, functions: Sequence[Function], name: str) -> str:
        """The name of the first kernel that does the same, whatever its variables are called; `name` for one that is new.

        Args:
            functions: what the kernel calls, and the kernel.
            name: of the kernel. Functions beside it begin with its name.
        """
        return self._names.setdefault(strip_names(functions, name), name)


def strip_names(functions: Sequence[Function], name: str) -> tuple[Function, ...]:
    """The functions as all that do the same have them. Constexpr arguments keep their names, because launches name them."""
    return tuple(_strip_names(function, name) for function in functions)


@lru_cache(maxsize=4096)
def _strip_names(function: Function, name: str) -> Function:
    constants = [one.name for one in function.parameters if one.annotation is not None]
    own = {known: f"kernel{known.removeprefix(name)}" for known in names_in(function) if known.startswith(f"{name}_")}
    return canonical(rename(function, own) if own else function, constants)
