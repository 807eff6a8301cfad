"""How both ways of tracing write a node: names, arguments, attributes, shapes, costs, lines. Imports torch."""

from __future__ import annotations

import dataclasses
import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._python_dispatch import _disable_current_modes

from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.reference.module import list_tensors
from tritonsmith.evaluator.schema import OpNode, TensorSpec

_NAMESPACES = (("torch.nn.functional", torch.nn.functional), ("torch", torch), ("_operator", operator), ("math", math))
_FAMILIES = (("fft", torch.fft), ("linalg", torch.linalg), ("special", torch.special))
"""Modules of torch whose functions have their module's name in front of their own: `fft_rfft`."""
_CONTAINERS = (
    nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder,
    nn.TransformerEncoderLayer, nn.TransformerDecoderLayer,
)  # fmt: skip
_PLAIN = (bool, int, float, str)
_CONSTANT_ELEMENTS = 256
"""Of a tensor whose values a node shows."""
_MARKS = ("ref", "record", "mapping", "slice", "float", "complex", "ellipsis")
"""Keys by which the dicts of `encode_argument` say what they are."""
_TEXT_CHARACTERS = 200
"""Of an argument that is neither a plain value nor a tensor."""


def is_library_module(module: nn.Module) -> bool:
    """Whether a module counts as one operator: those of torch.nn, but not containers, and none whose weights others compute."""
    place = type(module).__module__
    changed = module._forward_pre_hooks or module._forward_hooks or is_parametrized(module)
    changed = changed or any(not isinstance(one, nn.Parameter | None) for one in module._parameters.values())  # torch.func.functional_call
    return place.startswith("torch.nn") and not place.startswith("torch.nn.utils") and not isinstance(module, _CONTAINERS) and not changed


def read_constant(value: Any) -> Any:
    """The number, or the nested list of numbers, that a small tensor of the code holds; None where that is not known."""
    known = getattr(value, "constant", value)  # a fake tensor keeps what it was made of
    if not isinstance(known, torch.Tensor) or isinstance(known, FakeTensor):
        return None
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        if not 0 < known.numel() <= _CONSTANT_ELEMENTS or known.is_complex() or not bool(torch.isfinite(known).all()):
            return None
        return known.item() if known.numel() == 1 else known.tolist()


def list_specs(value: Any) -> tuple[TensorSpec, ...]:
    """Shape and dtype of every tensor in a value."""
    return tuple(
        TensorSpec(shape=tuple(int(size) for size in tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
        for tensor in list_tensors(value)
    )


def find_line(file: str) -> int:
    """The line of a file that runs now, in the innermost frame of it; 0 where none does."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


def describe_module(module: nn.Module, training: bool) -> dict[str, Any]:
    """The fields of a node that calls a module; its mode stands there only where it is another one than the model's."""
    attributes = plain_attributes(module)
    with _disable_current_modes(), torch._C.DisableTorchFunction():  # what this looks at is no part of a forward
        constructor = find_constructor(module, attributes)
    mode = {"training": module.training} if module.training is not training else {}
    return {"module_type": type(module).__name__, "attributes": attributes | mode, "constructor": constructor}


def find_constructor(module: nn.Module, attributes: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments that make a module of torch.nn again, but for its weights; None where its attributes do not tell them."""
    cls = type(module)
    if getattr(nn, cls.__name__, None) is not cls:
        return None
    known = attributes | _list_switches(module)
    names = {*inspect.signature(nn.RNNBase if isinstance(module, nn.RNNBase) else cls).parameters}
    if isinstance(module, nn.RNNBase):
        names = (names | {"nonlinearity"}) - {"mode", *(() if isinstance(module, nn.LSTM) else ("proj_size",))}
    if any(callable(getattr(module, name, None)) for name in names):
        return None
    given = {name: value for name, value in known.items() if name in names}
    try:
        again = cls(**given, **({"device": "meta"} if "device" in names else {}))
    except (TypeError, ValueError, RuntimeError, AssertionError):
        return None
    alike = plain_attributes(again) == attributes and _list_shapes(again) == _list_shapes(module)
    return given if alike else None


def _list_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """The weights of a module by name."""
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def _list_switches(module: nn.Module) -> dict[str, bool]:
    """Arguments that say whether a module has a weight, where it keeps only the weight."""
    if not isinstance(module, nn.MultiheadAttention):
        return {}
    return {"bias": module.in_proj_bias is not None, "add_bias_kv": module.bias_k is not None}


def add_costs(node: OpNode, costs: Iterable[OperatorCost]) -> OpNode:
    """The node with what its operators cost together."""
    parts = list(costs)
    sums = {name: sum(getattr(one, name) for one in parts) for name in ("flops", "bytes", "launches")}
    return node.model_copy(update=sums) if parts else node


def qualified_name(function: Callable[..., Any]) -> str:
    """Public name of a function: `torch.nn.functional.gelu` also where torch implements it in a private module."""
    name = getattr(function, "__name__", str(function))
    for prefix, namespace in _NAMESPACES:
        if getattr(namespace, name, None) is function:
            return f"{prefix}.{name}"
    for prefix, namespace in _FAMILIES:
        public = name.removeprefix(f"{prefix}_")
        if getattr(namespace, public, None) is function:
            return f"torch.{prefix}.{public}"
    return f"{getattr(function, '__module__', None) or 'torch'}.{name}"


def plain_attributes(module: nn.Module) -> dict[str, Any]:
    """Constructor attributes with plain values; a parameter slot such as `bias` as True or False."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if not name.startswith("_") and name != "training" and (encoded := _encode_attribute(value)) is not None:
            found[name] = encoded
    found |= {name: value is not None for name, value in module._parameters.items() if name == "bias"}
    return found


def _encode_attribute(value: Any) -> Any:
    """The value where JSON can hold it; None otherwise."""
    if isinstance(value, tuple | list) and all(isinstance(entry, _PLAIN) for entry in value):
        return list(value)
    return value if isinstance(value, _PLAIN) else None


def name_fields(value: Any) -> tuple[str, ...]:
    """The fields of a named tuple or a dataclass; none of anything else."""
    if isinstance(value, Mapping):
        return ()
    if isinstance(value, tuple):
        return tuple(getattr(value, "_fields", ()))
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return tuple(field.name for field in dataclasses.fields(value)) if is_record else ()


def list_arguments(target: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments of a call; the index of `x[[0, 2]]` as that of `x[[0, 2],]`, since a node has lists in place of tuples."""
    if target in ("_operator.getitem", "_operator.setitem") and len(args) > 1 and isinstance(args[1], list):
        return (args[0], (args[1],), *args[2:])
    return tuple(args)


def encode_argument(value: Any, refer: Callable[[Any], str | None]) -> Any:
    """An argument of a node as JSON: what another node made as {"ref": name}, slices, dtypes and infinities as small objects, dicts of
    other keys than words as {"mapping": [keys, values]}.

    Args:
        value: the argument.
        refer: the name of the node that made a value; None for a value that no node made.
    """
    name = refer(value)
    if name is not None:
        return {"ref": name}
    if fields := name_fields(value):
        return {"record": type(value).__name__, "fields": {field: encode_argument(getattr(value, field), refer) for field in fields}}
    if isinstance(value, tuple | list):
        return [encode_argument(entry, refer) for entry in value]
    if isinstance(value, Mapping):
        entries = {key: encode_argument(entry, refer) for key, entry in value.items()}
        if all(isinstance(key, str) and key not in _MARKS for key in entries):
            return entries
        return {"mapping": [[encode_argument(key, refer) for key in entries], list(entries.values())]}
    if isinstance(value, slice):
        return {"slice": [encode_argument(part, refer) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, type):
        return value.__name__
    return value if value is None or isinstance(value, _PLAIN) else str(value)[:_TEXT_CHARACTERS]
