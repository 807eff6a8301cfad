"""Nested arguments and results of a module, taken apart into tensors and plain values. Imports torch."""

from __future__ import annotations

import dataclasses
import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules.records import register_class

SIGNATURE = "signature.pkl"
"""Name of the file in a task's folder that holds a `Signature`."""
_PLAIN = (
    bool,
    int,
    float,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
"""Kinds of values besides tensors that an argument may be or hold."""


@dataclass(frozen=True)
class Signature:
    """How a call of the original module and a call of its task belong together.

    The task takes flat tensors and gives flat tensors. `flatten_call` and `build_result` translate.
    """

    in_spec: pytree.TreeSpec
    """Structure of `(args, kwargs)` of the module's call."""
    inputs: tuple[int, ...]
    """For each argument of the task the number of its leaf in a call."""
    constants: dict[int, Any]
    """Leaves of a call that the task takes as fixed: plain values, and tensors that the forward does not read (None)."""
    out_spec: pytree.TreeSpec
    """Structure of the module's result."""
    outputs: tuple[int | None, ...]
    """For each leaf of the result the number of the task's output; None for a plain value."""
    plain_outputs: dict[int, Any] = field(default_factory=dict)
    """Leaves of the result that are plain values."""
    state: dict[str, str | None] = field(default_factory=dict)
    """For each name of the task's state_dict the path of that tensor in the original; None where only `weights.pt` has it."""
    mode: str = "eval"
    """The mode that the module was in."""

    def flatten_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """The task's arguments for a call of the module. Raises UsageError where the call has another form than the proven one."""
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        if spec != self.in_spec:
            raise UsageError(
                "the call has another structure of arguments than the inputs that the module was brought in with"
            )
        for number, value in self.constants.items():
            if isinstance(leaves[number], torch.Tensor) is not (value is _UNREAD) or not (
                value is _UNREAD or same(leaves[number], value)
            ):
                raise UsageError(
                    f"argument {number + 1} of the call is {leaves[number]!r}; the task is made for {value!r}"
                )
        return [leaves[number] for number in self.inputs]

    def build_result(self, outputs: Sequence[torch.Tensor]) -> Any:
        """The module's nested result made of the task's flat outputs."""
        leaves = [
            self.plain_outputs.get(number) if place is None else outputs[place]
            for number, place in enumerate(self.outputs)
        ]
        return pytree.tree_unflatten(leaves, self.out_spec)

    def write(self, folder: Path) -> None:
        """Keep it in a task's folder. Raises OSError, and UsageError where a class of a record is no name of a module."""
        (folder / SIGNATURE).write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """What `write` keeps. Raises UsageError."""
        try:
            return pickle.dumps(self)
        except Exception as error:  # of a foreign class: anything may come out of it
            raise UsageError(
                f"a record among arguments or results cannot be kept ({type(error).__name__}: {error}); define its class at the top of "
                "a module, or give a tuple or a dict"
            ) from error

    @classmethod
    def read(cls, folder: Path) -> Signature:
        """That of a task's folder. Raises OSError."""
        with warnings.catch_warnings():  # of torch, about its own records
            warnings.simplefilter("ignore", FutureWarning)
            found: Signature = pickle.loads((folder / SIGNATURE).read_bytes())  # noqa: S301 - a file of the user's own run
        return found


class _Unread:
    """Stands for a tensor that the forward does not read."""

    def __repr__(self) -> str:
        return "a tensor"

    def __reduce__(self) -> str:
        return "_UNREAD"


_UNREAD = _Unread()


def same(value: object, known: object) -> bool:
    """Whether a plain value is the known one; 1 is not True here."""
    return type(value) is type(known) and value == known


def register_records(value: Any) -> None:
    """Let torch take apart the dataclasses in a nested value, which it leaves whole where nobody registers them, and name its tuples."""
    if isinstance(value, Mapping):
        for part in value.values():
            register_records(part)
    elif isinstance(value, list | tuple):
        if hasattr(type(value), "_fields"):
            register_class(type(value))
        for part in value:
            register_records(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        register_class(type(value))
        for item in dataclasses.fields(value):
            register_records(getattr(value, item.name))


def check_leaves(leaves: Sequence[Any], what: str) -> None:
    """Raise UsageError where a leaf is neither a tensor nor a plain value."""
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            _check_tensor(leaf, f"{what} {number + 1}")
        elif not isinstance(leaf, _PLAIN):
            raise UsageError(
                f"{what} {number + 1} is a {type(leaf).__name__}; give tensors, numbers, words, and lists, tuples, dicts or "
                "dataclasses of them"
            )


def _check_tensor(tensor: torch.Tensor, what: str) -> None:
    if tensor.device.type == "meta":
        raise UsageError(f"{what} is on the meta device and has no values; give a real tensor")
    if tensor.is_quantized or tensor.layout != torch.strided:
        raise UsageError(
            f"{what} is {'quantized' if tensor.is_quantized else tensor.layout}; give a plain dense tensor"
        )


def split_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], pytree.TreeSpec]:
    """The leaves of a call and its structure. Raises UsageError for leaves that cannot be kept."""
    register_records((tuple(args), dict(kwargs)))
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    check_leaves(leaves, "argument")
    return leaves, spec


def as_call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a user gives as inputs as arguments and keyword arguments: a tensor, a tuple or list, a dict, or a pair `(args, kwargs)`."""
    if isinstance(inputs, dict):
        return (), dict(inputs)
    pair = (
        isinstance(inputs, tuple)
        and len(inputs) == 2
        and isinstance(inputs[0], tuple | list)
        and isinstance(inputs[1], dict)
    )
    if pair and all(isinstance(name, str) for name in inputs[1]):
        return tuple(inputs[0]), dict(inputs[1])
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    return (inputs,), {}


def mark_constants(leaves: Sequence[Any], read: Sequence[int]) -> dict[int, Any]:
    """The leaves of a call that a task does not take as arguments."""
    return {
        number: _UNREAD if isinstance(leaf, torch.Tensor) else leaf
        for number, leaf in enumerate(leaves)
        if number not in set(read)
    }
