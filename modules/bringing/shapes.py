"""Other sizes of a task: what a user asks for as SHAPES of the file, each end compared with the original. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules.bringing.check import (
    build_task_model,
    call_module,
    describe_difference,
    load_text,
    run_task_model,
)
from tritonsmith.modules.bringing.structure import as_call, split_call
from tritonsmith.modules.bringing.writer import WrittenTask

_SEED = 1
Entry: TypeAlias = dict[str, "int | tuple[int, int]"]
"""Names of sizes with a value or a span."""


def choose_example(call: tuple[Any, Any], shapes: Any) -> tuple[Any, Any]:
    """The call to export: of all that the user gives the one with most elements, so that no size is 1 by chance."""
    calls = [call, *list_other_calls(shapes)]
    _, spec = split_call(*call)
    for other in calls[1:]:
        if split_call(*other)[1] != spec:
            raise UsageError(
                "shapes= has inputs of another structure than the first ones; give each call in the same form"
            )
    return max(
        calls,
        key=lambda one: sum(leaf.numel() for leaf in split_call(*one)[0] if isinstance(leaf, torch.Tensor)),
    )


def list_other_calls(shapes: Any) -> list[tuple[Any, Any]]:
    """The further inputs among what the user gives."""
    return [
        as_call(one) for one in _list_entries(shapes) if not isinstance(one, Mapping) or not _is_sizes(one)
    ]


def _list_entries(shapes: Any) -> list[Any]:
    if shapes is None:
        return []
    return [shapes] if isinstance(shapes, Mapping) else list(shapes)


def _is_sizes(entry: Mapping[Any, Any]) -> bool:
    """Whether an entry of `shapes=` gives sizes, and no inputs by name."""
    return not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(dict(entry)))


def read_shapes(written: WrittenTask, shapes: Any) -> list[Entry]:
    """The entries of SHAPES for what a user asks. Raises UsageError.

    Args:
        written: the task, whose sizes have names.
        shapes: a dict from names of sizes to a value or a pair `(lowest, highest)`, or from names of inputs to such a dict by axis; or a
            list of such dicts and of further inputs.
    """
    return [_read_entry(written, entry) for entry in _list_entries(shapes)]


def _read_entry(written: WrittenTask, entry: Any) -> Entry:
    if isinstance(entry, Mapping) and _is_sizes(entry):
        found: Entry = {}
        for name, value in entry.items():
            pairs = (
                {name: value}
                if not isinstance(value, Mapping)
                else {_name_axis(written, str(name), axis): size for axis, size in value.items()}
            )
            for size_name, size in pairs.items():
                if size_name not in written.sizes:
                    known = ", ".join(f"{one} = {known}" for one, known in written.sizes.items()) or "none"
                    raise UsageError(
                        f"shapes= names {size_name}, which is no size of this module that can change; those are {known}"
                    )
                found[size_name] = _read_size(size_name, size)
        return found
    leaves, _ = split_call(*as_call(entry))
    tensors = {
        name: leaves[number] for name, number in zip(written.shapes, written.signature.inputs, strict=True)
    }
    for name, shape in written.shapes.items():
        fixed = [
            (axis, size)
            for axis, size in enumerate(shape)
            if isinstance(size, int) and tensors[name].shape[axis] != size
        ]
        if fixed:
            axis, size = fixed[0]
            raise UsageError(
                f"shapes= has {name} with {tensors[name].shape[axis]} along axis {axis}, and the module takes {size} alone there, as "
                "torch.export finds"
            )
    return dict(written.size_names.read(written.shapes, tensors))


def _name_axis(written: WrittenTask, name: str, axis: Any) -> str:
    if name not in written.shapes:
        raise UsageError(f"shapes= names the input {name!r}; the inputs are {', '.join(written.shapes)}")
    shape = written.shapes[name]
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        raise UsageError(f"shapes= names axis {axis!r} of {name}, which has {len(shape)} axes")
    if isinstance(shape[axis], int):
        raise UsageError(
            f"shapes= names axis {axis} of {name}, and the module takes {shape[axis]} alone there, as torch.export finds"
        )
    return written.size_names.say(shape[axis])


def _read_size(name: str, size: Any) -> int | tuple[int, int]:
    ends = tuple(size) if isinstance(size, tuple | list | range) else (size, size)
    ends = (ends[0], ends[-1]) if len(ends) > 1 else (ends * 2)[:2]
    if len(ends) != 2 or any(type(end) is not int or end < 1 for end in ends) or ends[0] > ends[1]:  # noqa: PLR2004 - two ends
        raise UsageError(
            f"shapes= gives {name} the value {size!r}; give a whole number from 1 on, or a pair (lowest, highest)"
        )
    return ends[0] if ends[0] == ends[1] else (ends[0], ends[1])


def declare_shapes(written: WrittenTask, module: nn.Module, shapes: Any) -> WrittenTask:
    """The task with SHAPES, which the written Model and the original agree at: at both ends of each span. Raises UsageError."""
    entries = read_shapes(written, shapes)
    if not entries:
        return written
    for entry in entries:
        for end in (0, -1):
            _require_same(
                written,
                module,
                {name: size[end] if isinstance(size, tuple) else size for name, size in entry.items()},
            )
    line = f"SHAPES = {entries!r}\nWEIGHTS = "
    return replace(written, text=written.text.replace("WEIGHTS = ", line, 1))


FAILS = "the original fails"
"""How a fault begins that is one of the drawn inputs."""


def _require_same(written: WrittenTask, module: nn.Module, sizes: dict[str, int]) -> None:
    if fault := compare_at(written, module, sizes):
        told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise UsageError(
            f"at {told} what torch.export gives is not what the module computes ({fault}); leave that size out of shapes="
        )


def compare_at(written: WrittenTask, module: nn.Module, sizes: dict[str, int]) -> str:
    """In what the written Model differs from the original on inputs that get_inputs draws at some sizes; empty where in nothing.

    Where the original does not take these inputs, the fault begins with FAILS.
    """
    device = next(
        (tensor.device for tensor in (*written.inputs, *written.state.values())), torch.device("cpu")
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        try:
            space = load_text(written.text)
            vars(space).update(sizes)
            tensors = [tensor.to(device) for tensor in space.get_inputs()]
            _, wanted = call_module(module, *_rebuild_call(written, tensors))
        except Exception as error:  # noqa: BLE001 - a draw that means nothing to the module
            return f"{FAILS} on drawn inputs: {' '.join(str(error).split())[:200]}"
    if (
        any(tensor.is_floating_point() and not bool(tensor.float().isfinite().all()) for tensor in wanted)
        and not sizes
    ):
        return f"{FAILS} on drawn inputs: its results are not finite there"
    try:
        found = run_task_model(
            build_task_model(written.text, written.state, device, train=module.training), tensors
        )
    except Exception as error:  # noqa: BLE001 - a text that was made for other sizes
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    return describe_difference(found, wanted)


def _rebuild_call(written: WrittenTask, tensors: list[torch.Tensor]) -> tuple[Any, Any]:
    """A call of the module with these tensors for those that the task takes."""
    leaves = list(written.leaves)
    for number, tensor in zip(written.signature.inputs, tensors, strict=True):
        leaves[number] = tensor
    call: tuple[Any, Any] = pytree.tree_unflatten(leaves, written.signature.in_spec)
    return call
