"""Sizes of an exported call that may be others: names at the head of the task file. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

_AXES = {
    1: ("count",), 2: ("batch", "width"), 3: ("batch", "length", "width"), 4: ("batch", "channels", "height", "width"),
    5: ("batch", "channels", "depth", "height", "width"),
}  # fmt: skip
"""What the axes of a tensor of so many are called."""


@dataclass
class Sizes:
    """Names for the symbols of an export, with the values that the real inputs have."""

    names: dict[Any, str] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, shape: Sequence[Any], real: torch.Tensor) -> None:
        """Name the symbols among the sizes of one input."""
        words = _AXES.get(len(shape), ())
        for axis, size in enumerate(shape):
            symbol = _symbol_of(size)
            if symbol is None or symbol in self.names:
                continue
            word = words[axis] if axis < len(words) else f"axis{axis}"
            told = next(
                one for one in (word, f"{name}_{word}", f"{name}_axis{axis}") if one not in self.values
            )
            self.names[symbol], self.values[told] = told, real.shape[axis]

    def say(self, size: Any) -> str:
        """A size as the task file writes it: a name, a number, or a product of both."""
        if isinstance(size, int):
            return str(size)
        expression = size.node.expr
        if expression in self.names:
            return self.names[expression]
        told = {
            symbol: type(symbol)(self.names[symbol], integer=True)
            for symbol in expression.free_symbols
            if symbol in self.names
        }
        return str(expression.subs(told))

    def read(self, shapes: Mapping[str, Sequence[Any]], others: Mapping[str, torch.Tensor]) -> dict[str, int]:
        """The values that the names have in other inputs of the same names."""
        found: dict[str, int] = {}
        for name, shape in shapes.items():
            for axis, size in enumerate(shape):
                if (symbol := _symbol_of(size)) is not None and symbol in self.names and name in others:
                    found.setdefault(self.names[symbol], others[name].shape[axis])
        return found


def plain_size(size: Any) -> Any:
    """A size as a number where it can be no other one, else as the symbol that it is."""
    if isinstance(size, int):
        return size
    return int(size.node.expr) if size.node.expr.is_number else size


def _symbol_of(size: Any) -> Any:
    """The symbol that a size is; None for a number or a longer expression."""
    if isinstance(size, int):
        return None
    expression = size.node.expr
    return expression if expression.is_Symbol else None
