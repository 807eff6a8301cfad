"""How a call of the original module and a call of its kernel belong together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tritonsmith.modules.records import list_records, register_records


class RefusedCall(Exception):
    """A call that is not like the proven one; its text says in what."""


@dataclass(frozen=True)
class Form:
    """The proven call: which arguments it gives, what is nested in them, and what comes back.

    A leaf is a tensor or a plain value inside an argument. Leaves are numbered in the order of the arguments.
    """

    parameters: tuple[str, ...]
    """Names of forward's parameters that may be given by position, in their order."""
    given: tuple[str, ...]
    """Names of the arguments of the proven call, those by position first; `*0` for the first of `*args`."""
    positional: int
    """How many of these are given by position."""
    specs: tuple[pytree.TreeSpec | None, ...]
    """What is nested in each of them; None for a tensor or a plain value."""
    arguments: tuple[int, ...]
    """For each argument of the kernel's forward the number of its leaf."""
    constants: Mapping[int, Any] = field(default_factory=dict)
    """Leaves that are plain values: the kernel is made for them."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Plain defaults of forward's parameters."""
    result: pytree.TreeSpec | None = None
    """What is nested in the result; None for one tensor."""
    outputs: tuple[int | None, ...] = (0,)
    """For each leaf of the result the number of the kernel's output; None for a plain value."""
    plain_outputs: Mapping[int, Any] = field(default_factory=dict)
    """Leaves of the result that are plain values."""

    def __post_init__(self) -> None:
        """Have torch take the records of the call apart."""
        register_records(list_records([*self.specs, self.result]))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The same where a copy or a file is read."""
        vars(self).update(state)
        self.__post_init__()

    @property
    def is_flat(self) -> bool:
        """Whether the proven call gives tensors by position and nothing else."""
        return self.positional == len(self.given) and not self.constants and not any(self.specs)

    @property
    def tensors(self) -> tuple[int, ...]:
        """Numbers of the leaves that are tensors."""
        return tuple(number for number in range(self.count_leaves()) if number not in self.constants)

    def count_leaves(self) -> int:
        """How many leaves the proven call has."""
        return sum(1 if spec is None else spec.num_leaves for spec in self.specs)

    def read_tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """The tensors of a call. Raises RefusedCall where the call is not like the proven one."""
        values = self._sort_arguments(args, kwargs)
        leaves: list[Any] = []
        for name, spec in zip(self.given, self.specs, strict=True):
            value = values[name]
            if spec is None:
                leaves.append(value)
                continue
            parts, found = pytree.tree_flatten(value)
            if found != spec:
                raise RefusedCall(f"argument {name} is nested in another way")
            leaves.extend(parts)
        tensors = []
        for number, leaf in enumerate(leaves):
            if number in self.constants:
                if type(leaf) is not type(self.constants[number]) or leaf != self.constants[number]:
                    raise RefusedCall(
                        f"an argument is {_show(leaf)}, and the kernel is made for {_show(self.constants[number])}"
                    )
            elif not isinstance(leaf, torch.Tensor):
                raise RefusedCall(f"an argument is {_show(leaf)}, and the kernel is made for a tensor")
            else:
                tensors.append(leaf)
        return tensors

    def _sort_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name; what is not given has its default."""
        values: dict[str, Any] = {}
        for place, value in enumerate(args):
            values[
                self.parameters[place] if place < len(self.parameters) else f"*{place - len(self.parameters)}"
            ] = value
        for name, value in kwargs.items():
            values[name] = value
        for name in values:
            if name not in self.given:
                known = name in self.defaults
                if (
                    not known
                    or type(values[name]) is not type(self.defaults[name])
                    or values[name] != self.defaults[name]
                ):
                    raise RefusedCall(f"argument {name} is given, which the proven call does not give")
        for name in self.given:
            if name not in values:
                if name not in self.defaults:
                    raise RefusedCall(f"argument {name} is missing, which the proven call gives")
                values[name] = self.defaults[name]
        return values

    def build_call(self, tensors: Sequence[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of the original module's forward made of the tensors of a call."""
        pending = iter(tensors)
        leaves = [
            self.constants[number] if number in self.constants else next(pending)
            for number in range(self.count_leaves())
        ]
        values, start = [], 0
        for spec in self.specs:
            if spec is None:
                values.append(leaves[start])
                start += 1
            else:
                values.append(pytree.tree_unflatten(leaves[start : start + spec.num_leaves], spec))
                start += spec.num_leaves
        named = dict(zip(self.given[self.positional :], values[self.positional :], strict=True))
        return values[: self.positional], named

    def pick_arguments(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Arguments of the kernel's forward made of the tensors of a call."""
        if not self.constants:
            return [tensors[number] for number in self.arguments]
        places = {number: place for place, number in enumerate(self.tensors)}
        return [
            self.constants[number] if number in self.constants else tensors[places[number]]
            for number in self.arguments
        ]

    def build_result(self, outputs: Sequence[torch.Tensor]) -> Any:
        """The module's result made of the kernel's outputs."""
        if self.result is None:
            return outputs[0]
        leaves = [
            self.plain_outputs.get(number) if place is None else outputs[place]
            for number, place in enumerate(self.outputs)
        ]
        return pytree.tree_unflatten(leaves, self.result)


def _show(value: object) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)[:80]


def list_tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested result in the order in which they are judged: dicts by sorted key."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [part for part in list_leaves(value) if isinstance(part, torch.Tensor)]


def list_leaves(value: Any) -> Iterator[Any]:
    """Everything in a nested value that holds nothing else, dicts by sorted key."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from list_leaves(value[key])
    elif isinstance(value, tuple | list):
        for part in value:
            yield from list_leaves(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in dataclasses.fields(value):
            yield from list_leaves(getattr(value, item.name))
    else:
        yield value
