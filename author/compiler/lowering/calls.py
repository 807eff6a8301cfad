"""One node of the traced forward, as the files of this folder read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.ir.indices import Shape
from tritonsmith.author.compiler.ir.values import Held, Tensor
from tritonsmith.author.members import attribute
from tritonsmith.evaluator.schema import OpNode, TaskFacts, TensorSpec

_REQUIRED = object()


class NotCovered(Exception):
    """No file of this folder writes such a call; it stays a PyTorch call."""


@dataclass(frozen=True)
class NodeCall:
    """A node with its arguments resolved: tensors are values, sizes are numbers."""

    node: OpNode
    facts: TaskFacts
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    training: bool
    member: Callable[[str], Held]
    """The parameter or buffer of a name."""
    card: CardModel
    """The card that it is planned for."""
    called: Collection[str] = ()
    """Products that shall be PyTorch calls."""
    parts: bool = True
    """Whether products of fp32 values are those of their fp16 parts."""
    last: bool = False
    """Whether a convolution reads an image whose channels are neighbours in memory, and which lies so."""
    updates: dict[str, Tensor] = field(default_factory=dict)
    """By buffer that forward has written so far: its value."""
    constants: dict[str, Held] = field(default_factory=dict)
    """Tensors of numbers that forward writes out, by the call that makes them."""
    images: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Values by their identity, each with the same elements in an order of memory that the call gave them."""

    @property
    def name(self) -> str:
        """What a kernel calls the result: its operation."""
        name = self.node.module_type.replace("LU", "lu") or self.node.target.rpartition(".")[2].rstrip("_")
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()

    @property
    def shape(self) -> Shape:
        """Of the first result."""
        return self.node.outputs[0].shape

    @property
    def dtype(self) -> str:
        """Of the first result."""
        return self.node.outputs[0].dtype

    def get(self, position: int, *names: str, default: Any = _REQUIRED) -> Any:
        """An argument by its place or one of its names; for a module also an attribute. Raises NotCovered where it is missing."""
        for name in names:
            if name in self.kwargs:
                return self.kwargs[name]
        if 0 <= position < len(self.args):
            return self.args[position]
        if self.node.op == "call_module":
            for name in names:
                if name in self.node.attributes:
                    return self.node.attributes[name]
        if default is _REQUIRED:
            raise NotCovered(f"without {names[0]}")
        return default

    def option(self, position: int, name: str, default: Any) -> Any:
        """An argument behind the tensors of a function; for a module its attribute. None where torch's default is meant."""
        return self.get(-1 if self.node.op == "call_module" else position, name, default=default)

    def tensor(self, position: int, *names: str) -> Tensor:
        """An argument that is a tensor. Raises NotCovered for any other."""
        found = self.get(position, *names)
        if not isinstance(found, Tensor):
            raise NotCovered(f"with {names[0]} that is no tensor")
        return found

    def hold(self, values: Any, dtype: str, shape: Shape) -> Held:
        """A tensor of numbers that the kernel's module makes once and keeps."""
        return hold_constant(self.constants, values, TensorSpec(shape=shape, dtype=dtype), self.facts)

    def update(self, held: Tensor, value: Tensor) -> None:
        """Note that the call leaves a value in a buffer. Raises NotCovered where the buffer is none of the module's."""
        if not isinstance(held, Held) or not held.path:
            raise NotCovered("that writes to an argument")
        self.updates[held.path] = value

    def current(self, held: Tensor) -> Tensor:
        """The value of a buffer, as calls before this one left it."""
        return self.updates.get(held.path, held) if isinstance(held, Held) else held

    def weight(self, position: int, name: str) -> Tensor | None:
        """An optional tensor: an argument of a function, a parameter or buffer of a module."""
        if self.node.op == "call_module":
            path = f"{self.node.target}.{name}"
            return self.member(path) if path in self.facts.parameters else None
        found = self.get(position, name, default=None)
        if found is not None and not isinstance(found, Tensor):
            raise NotCovered(f"with {name} that is no tensor")
        return found


Lowered = Tensor | tuple[Tensor, ...]
Lower = Callable[[NodeCall], Lowered]


def refuse_options(call: NodeCall, **plain: Any) -> None:
    """Raise NotCovered where a keyword or an attribute has another value than the plain one."""
    for name, value in plain.items():
        given = call.kwargs.get(name, call.node.attributes.get(name, value))
        if given != value and given is not None:
            raise NotCovered(f"with {name}={given}")


def find_axes(given: Any, rank: int) -> tuple[int, ...]:
    """Axes in rising order, counted from 0; all of them for None."""
    if given is None or given == [] or given == ():
        return tuple(range(rank))
    axes = [given] if isinstance(given, int) else list(given)
    if not all(isinstance(axis, int) and not isinstance(axis, bool) for axis in axes):
        raise NotCovered(f"over {given}")
    return tuple(sorted(axis % rank for axis in axes)) if rank else ()  # a number has no axes, and PyTorch counts one


def hold_member(name: str, facts: TaskFacts) -> Held:
    """A parameter or buffer, or a tensor that the constructor makes besides."""
    spec = facts.parameters[name] if name in facts.parameters else facts.tables[name]
    shown = re.sub(r"\W+", "_", name.rpartition(".")[2]).strip("_")  # tables['a'] of a dict
    return Held(shape=spec.shape, dtype=spec.dtype, name=shown, source=attribute(name), path=name)


def hold_constant(constants: dict[str, Held], values: Any, spec: TensorSpec, facts: TaskFacts) -> Held:
    """The tensor of some numbers; the same numbers are the same tensor."""
    text = f"torch.tensor({values!r}, dtype=torch.{spec.dtype})"
    taken = {path.partition(".")[0] for path in (*facts.parameters, *facts.tables)} | {one.name for one in constants.values()}
    if text not in constants:
        name = next(name for number in range(len(taken) + 1) if (name := f"constant_{number}") not in taken)
        constants[text] = Held(shape=spec.shape, dtype=spec.dtype, name=name, source=f"self.{name}", path=name)
    return constants[text]
