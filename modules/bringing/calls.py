"""Calls of an exported graph as lines of Python: operators, methods and functions that a person would write. Imports torch.

`torch.<name>` and the method of a tensor take the arguments of the aten call that has their name, so most calls need no entry here. The
tables name the calls whose function in `torch.nn.functional` has another order or other words, and those with a sign of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "bitwise_and": "&", "bitwise_or": "|", "__and__": "&", "__or__": "|", "floor_divide": "//", "remainder": "%", "rsub": "-",
}  # fmt: skip
_METHODS = frozenset({
    "view", "reshape", "transpose", "permute", "unsqueeze", "squeeze", "expand", "expand_as", "view_as", "contiguous", "flatten",
    "unflatten", "chunk", "split", "unbind", "repeat", "mean", "sum", "masked_fill", "type_as", "t", "swapaxes", "movedim", "detach",
    "clone", "float", "to", "new_zeros", "new_ones", "new_full", "new_empty", "repeat_interleave", "narrow", "unfold",
})  # fmt: skip
_FUNCTIONAL = frozenset({
    "relu", "gelu", "silu", "linear", "layer_norm", "conv1d", "conv2d", "conv3d", "softplus", "elu", "leaky_relu", "hardtanh", "hardswish",
    "hardsigmoid", "mish", "selu", "celu", "glu", "relu6", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "scaled_dot_product_attention", "pad", "one_hot",
    "group_norm", "rms_norm", "prelu", "pixel_shuffle", "pixel_unshuffle", "cosine_similarity", "pairwise_distance", "hardshrink",
    "softshrink", "bilinear", "normalize",
})  # fmt: skip
"""Functions of torch.nn.functional whose first arguments are those of the aten call, in its order and by its names."""
_SAME = frozenset({"alias", "lift_fresh_copy", "lift", "detach_"})
"""Calls that give their argument as it is."""
_DROPPED = frozenset(
    {
        "_assert_scalar",
        "_assert_tensor_metadata",
        "_assert_async",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
    }
)


@dataclass(frozen=True)
class Written:
    """What a node is in the text: an expression, and how tightly it binds."""

    text: str
    loose: bool = False
    """Whether it needs brackets inside another expression."""
    first: bool = False
    """Whether it is the first of the operator's results alone."""

    @property
    def inner(self) -> str:
        """The expression as an operand."""
        return f"({self.text})" if self.loose else self.text


class CallWriter:
    """Writes the calls of one graph.

    Args:
        names: what earlier nodes are called in the text.
        device: the expression of the device that everything lies on.
        special: calls that have a form of their own, by the operator's name; each gives None where the plain form will do.
    """

    def __init__(
        self,
        names: dict[fx.Node, Written],
        device: str,
        special: Mapping[str, Callable[[Call], Written | None]],
    ) -> None:
        self.names = names
        self.device = device
        self.special = special

    def write(self, node: fx.Node, instead: torch._ops.OpOverload | None = None) -> Written | None:
        """The expression of a call; None for one that only checks something. Raises NotImplementedError for what Python cannot say.

        `instead` is another operator with the same arguments that is written in its place.
        """
        target = instead or node.target
        if not isinstance(target, torch._ops.OpOverload):
            return self._write_python(node)
        name = target._schema.name.removeprefix("aten::")
        if not target._schema.name.startswith("aten::"):
            return Written(
                f"torch.ops.{target._schema.name.replace('::', '.')}.{target._overloadname}({self.list_all(node)})"
            )
        if name in _DROPPED:
            return None
        call = Call(self, node, name, target._schema)
        if name in _SAME:
            return self.names[node.args[0]] if isinstance(node.args[0], fx.Node) else None
        if (special := self.special.get(name)) is not None and (said := special(call)) is not None:
            return said
        return call.write_plain()

    def _write_python(self, node: fx.Node) -> Written:
        """A call of Python's own operators, on sizes or on several results."""
        name = getattr(node.target, "__name__", str(node.target))
        if name == "getitem":
            holder, place = node.args
            return Written(f"{self.say(holder, inner=True)}[{self.say(place)}]")
        sign = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "truediv": "/", "pow": "**", "eq": "==", "ne": "!=",
                "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and_": "&", "or_": "|"}.get(name)  # fmt: skip
        module = getattr(node.target, "__module__", "") or ""
        if sign and len(node.args) == 2:
            left, right = (self.say(one, inner=True) for one in node.args)
            return Written(f"{left} {sign} {right}", loose=True)
        if name == "neg":
            return Written(f"-{self.say(node.args[0], inner=True)}", loose=True)
        words = {
            "sym_max": "max",
            "sym_min": "min",
            "sym_float": "float",
            "sym_int": "int",
            "sym_not": "not ",
            "sym_sqrt": "math.sqrt",
        }
        said = words.get(name)
        if said is None and module in ("math", "_operator"):
            raise NotImplementedError(f"{module}.{name} of sizes")
        if said is None:
            raise NotImplementedError(f"{module}.{name}")
        return Written(f"{said}({', '.join(map(self.say, node.args))})")

    def list_all(self, node: fx.Node) -> str:
        """All arguments of a node as they stand."""
        named = [f"{name}={self.say(value)}" for name, value in node.kwargs.items()]
        return ", ".join([*map(self.say, node.args), *named])

    def say(self, value: Any, *, inner: bool = False) -> str:
        """The expression of an argument."""
        if isinstance(value, fx.Node):
            return self.names[value].inner if inner else self.names[value].text
        if isinstance(value, list | tuple):
            inside = ", ".join(map(self.say, value))
            return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
        if isinstance(value, torch.device):
            return self.device
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
            return str(value)
        if isinstance(value, complex | int | float | str | bool | slice | type(None)):
            return f"({value!r})" if inner and isinstance(value, int | float) and value < 0 else repr(value)
        raise NotImplementedError(f"an argument of the kind {type(value).__name__}")


class Call:
    """One aten call with its arguments by name.

    Args:
        writer: of the graph.
        node: the call.
        name: of the operator, without its namespace and its overload.
        schema: of the overload.
    """

    def __init__(self, writer: CallWriter, node: fx.Node, name: str, schema: Any) -> None:
        self.writer, self.node, self.name, self.overload = writer, node, name, schema.overload_name
        self.positional = [one.name for one in schema.arguments if not one.kwarg_only]
        given = dict(zip(self.positional, node.args, strict=False)) | dict(node.kwargs)
        self.defaults = {one.name: one.default_value for one in schema.arguments if one.has_default_value()}
        self.given = given
        self.values = self.defaults | given
        self.kept = {name: value for name, value in given.items() if not self._is_default(name, value)}
        if "reduction" in self.values:  # the functions of torch have another default than their operators
            self.kept["reduction"] = self.values["reduction"]

    def _is_default(self, name: str, value: Any) -> bool:
        if name in ("pin_memory", "layout", "non_blocking", "implicit", "cudnn_enabled", "cudnn_enable"):
            return True
        if name not in self.defaults or isinstance(value, fx.Node):
            return False
        default = self.defaults[name]
        default = list(default) if isinstance(default, tuple) else default
        value = list(value) if isinstance(value, tuple | list) else value
        if isinstance(value, list) and any(isinstance(one, fx.Node) for one in value):
            return False
        return type(value) is type(default) and value == default

    def say(self, name: str, *, inner: bool = False) -> str:
        """The expression of an argument by name."""
        return self.writer.say(self.values[name], inner=inner)

    def is_tensor(self, name: str) -> bool:
        """Whether an argument is a tensor of the graph."""
        value = self.values.get(name)
        return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)

    def arguments(self, skip: tuple[str, ...] = ()) -> str:
        """The arguments that differ from their defaults: by place as long as none is left out, then by name."""
        parts, gap = [], False
        for name in self.positional:
            if name in skip:
                continue
            if name not in self.kept:
                gap = True
                continue
            text = self.writer.say(self.kept[name])
            parts.append(f"{name}={text}" if gap else text)
        named = [
            f"{name}={self.writer.say(value)}"
            for name, value in self.kept.items()
            if name not in (*self.positional, *skip)
        ]
        return ", ".join([*parts, *named])

    def call(self, function: str, **words: str) -> Written:
        """A call of a function with these arguments by name, an empty word for one that is left out."""
        return Written(
            f"{function}({', '.join(f'{name}={word}' if not name.startswith('_') else word for name, word in words.items() if word)})"
        )

    def write_plain(self) -> Written:
        """The function or method that has the name of the operator."""
        name, first = self.name, self.positional[0] if self.positional else ""
        if name in _SIGNS and (said := self._write_sign()) is not None:
            return said
        if name in _NAMESPACES:
            return Written(f"{_NAMESPACES[name]}({self.arguments()})")
        if name in _FUNCTIONAL:
            return Written(f"F.{name}({self.arguments()})")
        method = self.is_tensor(first) and hasattr(torch.Tensor, name)
        if method and (name in _METHODS or name.endswith("_") or not hasattr(torch, name)):
            return Written(f"{self.say(first, inner=True)}.{name}({self.arguments(skip=(first,))})")
        if hasattr(torch, name):
            return Written(f"torch.{name}({self.arguments()})")
        return Written(
            f"torch.ops.aten.{name}.{self.overload or 'default'}({self.writer.list_all(self.node)})"
        )

    def _write_sign(self) -> Written | None:
        if set(self.kept) - {"self", "other"} or len(self.positional) < 2:
            return None
        left, right = (self.say(name, inner=True) for name in ("self", "other"))
        if not (self.is_tensor("self") or self.is_tensor("other")):
            return None
        left, right = (right, left) if self.name == "rsub" else (left, right)
        return Written(f"{left} {_SIGNS[self.name]} {right}", loose=True)


_NAMESPACES = {
    "linalg_vector_norm": "torch.linalg.vector_norm", "linalg_norm": "torch.linalg.norm", "linalg_matrix_norm": "torch.linalg.matrix_norm",
    "linalg_inv": "torch.linalg.inv", "linalg_solve": "torch.linalg.solve", "linalg_det": "torch.linalg.det",
    "special_expm1": "torch.special.expm1", "fft_rfft": "torch.fft.rfft", "fft_irfft": "torch.fft.irfft", "fft_fft": "torch.fft.fft",
    "fft_ifft": "torch.fft.ifft", "fft_fft2": "torch.fft.fft2", "fft_rfft2": "torch.fft.rfft2", "fft_irfft2": "torch.fft.irfft2",
    "log_sigmoid": "F.logsigmoid", "im2col": "F.unfold", "col2im": "F.fold",
}  # fmt: skip
