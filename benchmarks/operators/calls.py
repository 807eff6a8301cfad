"""One call of one operator, as a module whose forward is that call. Imports torch."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

_REFLECTED = {
    "__radd__": "+", "__rsub__": "-", "__rmul__": "*", "__rdiv__": "/", "__rmod__": "%", "__rpow__": "**", "__rand__": "&",
    "__ror__": "|", "__rxor__": "^", "__rmatmul__": "@",
}  # fmt: skip
"""Methods of the right operand, as Python writes them."""
_PROPERTIES = ("T", "H", "mT", "mH")
_LEFT_OUT = ("device", "generator", "out", "requires_grad")
"""Named arguments that say nothing about values."""
_SOURCE = """import torch
from math import inf, nan
from torch import nn


class Model(nn.Module):
    def forward(self{arguments}):
        return {text}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


class CannotWrite(Exception):
    """An argument that Python text does not hold, such as a function or a generator of random numbers."""


@dataclass(frozen=True)
class OperatorCall:
    """A call as Python writes it, with the tensors that it takes.

    Args:
        text: the call; tensors stand in it as `x0`, `x1` and so on.
        tensors: their values, in that order.
    """

    text: str
    tensors: tuple[torch.Tensor, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """What a kernel is made for: the call, and shapes and types of its tensors."""
        return (self.text, *((tuple(tensor.shape), tensor.dtype) for tensor in self.tensors))

    @property
    def words(self) -> str:
        """The call and its tensors in a line."""
        held = (
            f"x{number} {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            for number, tensor in enumerate(self.tensors)
        )
        return f"{self.text} with {', '.join(held)}" if self.tensors else self.text

    @property
    def source(self) -> str:
        """A task file whose forward is the call, with these values as inputs."""
        names = "".join(f", x{number}" for number in range(len(self.tensors)))
        return _SOURCE.format(arguments=names, text=self.text, inputs=", ".join(map(write_tensor, self.tensors)))


def write_tensor(tensor: torch.Tensor) -> str:
    """A tensor as Python makes it again, for a file that has `inf` and `nan`."""
    if not tensor.numel():
        return f"torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype})"
    return f"torch.tensor({tensor.tolist()}, dtype={tensor.dtype})"


def write_call(name: str, first: Any, args: Sequence[Any], named: dict[str, Any]) -> OperatorCall:
    """The call of an operator of PyTorch.

    Args:
        name: its name under `torch`, or that of a method of tensors.
        first: its first argument.
        args: the others.
        named: arguments by name; a device and a generator are left out.

    Raises:
        CannotWrite: for arguments that are no plain values.
    """
    tensors: list[torch.Tensor] = []
    texts = [_write(value, tensors) for value in (first, *args)]
    keywords = [f"{key}={_write(value, tensors)}" for key, value in named.items() if key not in _LEFT_OUT]
    return OperatorCall(_join(name, texts, keywords), tuple(tensors))


def _join(name: str, texts: list[str], keywords: list[str]) -> str:
    if name in _REFLECTED and len(texts) == 2:
        return f"{texts[1]} {_REFLECTED[name]} {texts[0]}"
    if name == "__getitem__" and len(texts) == 2:
        return f"{texts[0]}[{texts[1]}]"
    if name in _PROPERTIES and texts[0].startswith("x"):
        return f"{texts[0]}.{name}"
    try:
        function = operator.attrgetter(name)(torch)
    except AttributeError:
        function = None
    if not callable(function):  # torch.bool is a type
        if not hasattr(torch.Tensor, name) or not texts[0].startswith("x"):
            raise CannotWrite(f"no function or method {name}") 
        return f"{texts[0]}.{name}({', '.join([*texts[1:], *keywords])})"
    return f"torch.{name}({', '.join([*texts, *keywords])})"


def _write(value: Any, tensors: list[torch.Tensor]) -> str:
    """An argument as Python writes it; a tensor is added to `tensors`."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            raise CannotWrite(str(value.layout))
        number = next((number for number, tensor in enumerate(tensors) if tensor is value), len(tensors))
        if number == len(tensors):
            tensors.append(value)
        return f"x{number}"
    if isinstance(value, list | tuple):
        texts = [_write(part, tensors) for part in value]
        return f"[{', '.join(texts)}]" if isinstance(value, list) else f"({', '.join(texts)}{',' * (len(texts) == 1)})"
    if type(value) in (float, complex):
        return repr(value) if value == value and abs(value) != float("inf") else f'{type(value).__name__}("{value}")'
    if value is Ellipsis:
        return "..."
    if isinstance(value, slice):
        return f"slice({', '.join(_write(part, tensors) for part in (value.start, value.stop, value.step))})"
    if value is None or type(value) in (bool, int, str) or isinstance(value, torch.dtype | torch.memory_format):
        return repr(value)
    raise CannotWrite(type(value).__name__)
