"""Calls of an exported graph as lines of Python: operators, methods and functions that a person would write. Imports torch.

`torch.<name>` and the method of a tensor take the arguments of the aten call that has their name, so most calls need no entry here. The
tables name the calls whose function in `torch.nn.functional` has another order or other words, and those with a sign of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
_REDUCTIONS = ("none", "mean", "sum")
_FACTORIES = frozenset(
    {
        "zeros",
        "ones",
        "full",
        "empty",
        "arange",
        "eye",
        "scalar_tensor",
        "linspace",
        "tril_indices",
        "triu_indices",
    }
)


@dataclass(frozen=True)
class Written:
    """What a node is in the text: an expression, and how tightly it binds."""

    text: str
    loose: bool = False
    """Whether it needs brackets inside another expression."""

    @property
    def inner(self) -> str:
        """The expression as an operand."""
        return f"({self.text})" if self.loose else self.text


class CallWriter:
    """Writes the calls of one graph.

    Args:
        names: what earlier nodes are called in the text.
        device: the expression of the device that everything lies on.
    """

    def __init__(self, names: dict[fx.Node, Written], device: str) -> None:
        self.names = names
        self.device = device

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
        if (special := _SPECIAL.get(name)) is not None and (said := special(call)) is not None:
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


def _write_index(holder: str, dim: int, rank: int, inside: str) -> Written:
    dim = dim + rank if dim < 0 else dim
    return Written(f"{holder}[{', '.join([':'] * dim + [inside])}]")


def _rank(call: Call, name: str = "self") -> int:
    return len(call.values[name].meta["val"].shape)


def _select(call: Call) -> Written:
    return _write_index(call.say("self", inner=True), call.values["dim"], _rank(call), call.say("index"))


def _slice(call: Call) -> Written:
    low, high, step = (call.values.get(name) for name in ("start", "end", "step"))
    first = "" if low in (None, 0) else call.writer.say(low)
    last = "" if high is None or (isinstance(high, int) and high >= 2**62) else call.writer.say(high)
    if not first and not last and step == 1:
        return call.writer.names[call.values["self"]]
    stride = f":{call.say('step')}" if step != 1 else ""
    return _write_index(
        call.say("self", inner=True), call.values["dim"], _rank(call), f"{first}:{last}{stride}"
    )


def _index(call: Call) -> Written:
    places = list(call.values["indices"])
    while places and places[-1] is None:
        places.pop()
    return Written(
        f"{call.say('self', inner=True)}[{', '.join(':' if one is None else call.writer.say(one) for one in places)}]"
    )


def _sym_size(call: Call) -> Written:
    return Written(f"{call.say('self', inner=True)}.shape[{call.say('dim')}]")


def _sym_numel(call: Call) -> Written:
    return Written(f"{call.say('self', inner=True)}.numel()")


def _sym_stride(call: Call) -> Written:
    return Written(f"{call.say('self', inner=True)}.stride({call.say('dim')})")


def _to(call: Call) -> Written:
    kept = {
        name: call.writer.say(value)
        for name, value in call.kept.items()
        if name in ("dtype", "memory_format", "other")
    }
    holder = call.values["self"]
    if "dtype" in kept and holder.meta["val"].dtype == call.values["dtype"] and not call.values.get("copy"):
        kept.pop("dtype")
    if not kept:
        return call.writer.names[holder]
    return Written(
        f"{call.say('self', inner=True)}.to({', '.join(f'memory_format={v}' if n == 'memory_format' else v for n, v in kept.items())})"
    )


def _shape(call: Call) -> Written:
    """A method that takes sizes one by one: `x.view(2, 4)`."""
    name = {"view": "size", "reshape": "shape", "expand": "size", "permute": "dims", "repeat": "repeats"}[
        call.name
    ]
    if name not in call.values or not isinstance(call.values[name], list | tuple) or not call.values[name]:
        return Written(f"{call.say('self', inner=True)}.{call.name}({call.arguments(skip=('self',))})")
    return Written(
        f"{call.say('self', inner=True)}.{call.name}({', '.join(map(call.writer.say, call.values[name]))})"
    )


def _dropout(call: Call) -> Written:
    if not call.values["train"] or call.values["p"] == 0:
        return call.writer.names[call.values["input" if "input" in call.values else "self"]]
    return Written(f"F.dropout({call.arguments(skip=('train',))}, training=True)")


def _embedding(call: Call) -> Written:
    padding = call.values["padding_idx"]
    return call.call(
        "F.embedding",
        _ids=call.say("indices"),
        _weight=call.say("weight"),
        padding_idx="" if padding in (-1,) else str(padding),
    )


def _batch_norm(call: Call) -> Written:
    training = call.values["training"]
    return call.call(
        "F.batch_norm", _x=call.say("input"), _mean=call.say("running_mean"), _var=call.say("running_var"),
        weight=_unless(call, "weight"), bias=_unless(call, "bias"), training="True" if training else "",
        momentum=call.say("momentum") if training else "", eps=call.say("eps"),
    )  # fmt: skip


def _instance_norm(call: Call) -> Written:
    return call.call(
        "F.instance_norm", _x=call.say("input"), running_mean=_unless(call, "running_mean"), running_var=_unless(call, "running_var"),
        weight=_unless(call, "weight"), bias=_unless(call, "bias"), use_input_stats="" if call.values["use_input_stats"] else "False",
        eps=call.say("eps"),
    )  # fmt: skip


def _unless(call: Call, name: str) -> str:
    return "" if call.values.get(name) is None else call.say(name)


def _softmax(call: Call) -> Written:
    name = {"softmax": "softmax", "log_softmax": "log_softmax"}[call.name]
    return call.call(f"F.{name}", _x=call.say("self"), dim=call.say("dim"), dtype=_unless(call, "dtype"))


def _loss(call: Call) -> Written:
    name = {
        "cross_entropy_loss": "cross_entropy",
        "nll_loss_nd": "nll_loss",
        "nll_loss2d": "nll_loss",
        "soft_margin_loss": "soft_margin_loss",
    }.get(call.name, call.name)
    kept = {
        one: call.writer.say(value)
        for one, value in call.kept.items()
        if one not in ("self", "target", "reduction")
    }
    reduction = _REDUCTIONS[call.values["reduction"]]
    words = {
        "_x": call.say("self"),
        "_t": call.say("target"),
        **kept,
        "reduction": "" if reduction == "mean" else f'"{reduction}"',
    }
    return call.call(f"F.{name}", **words)


def _interpolate(call: Call) -> Written | None:
    kind = call.name.removeprefix("upsample_")
    mode = {"nearest1d": "nearest", "nearest2d": "nearest", "nearest3d": "nearest", "bilinear2d": "bilinear", "bicubic2d": "bicubic",
            "linear1d": "linear", "trilinear3d": "trilinear", "_upsample_nearest_exact2d": "nearest-exact"}.get(kind)  # fmt: skip
    if mode is None or "scale_factors" not in call.values:
        return None
    aligned = call.values.get("align_corners")
    return call.call(
        "F.interpolate", _x=call.say("input"), size=_unless(call, "output_size"), scale_factor=_unless(call, "scale_factors"),
        mode=f'"{mode}"', align_corners="" if aligned is None else repr(aligned),
    )  # fmt: skip


def _max_pool(call: Call) -> Written:
    name = call.name.removesuffix("_with_indices")
    return Written(f"F.{name}({call.arguments()}, return_indices=True)")


def _adaptive_max_pool(call: Call) -> Written:
    return Written(f"F.{call.name}({call.arguments()}, return_indices=True)")


def _conv_transpose(call: Call) -> Written:
    name = {
        "conv_transpose1d": "conv_transpose1d",
        "conv_transpose2d": "conv_transpose2d",
        "conv_transpose3d": "conv_transpose3d",
    }[call.name]
    return Written(f"F.{name}({call.arguments()})")


def _clone(call: Call) -> Written:
    return Written(f"{call.say('self', inner=True)}.clone({call.arguments(skip=('self',))})")


def _factory(call: Call) -> Written:
    text = call.arguments(skip=("device",))
    return Written(f"torch.{call.name}({text}{', ' if text else ''}device={call.writer.device})")


def _like(call: Call) -> Written:
    return Written(f"torch.{call.name}({call.arguments(skip=('device',))})")


def _new(call: Call) -> Written:
    return Written(f"{call.say('self', inner=True)}.{call.name}({call.arguments(skip=('self', 'device'))})")


def _spread(call: Call) -> Written:
    """A function that takes its tensors one by one."""
    return Written(f"torch.{call.name}({', '.join(map(call.writer.say, call.values['tensors']))})")


def _pow(call: Call) -> Written | None:
    if not call.is_tensor("self") or call.is_tensor("exponent"):
        return None
    return Written(f"{call.say('self', inner=True)} ** {call.say('exponent', inner=True)}", loose=True)


def _neg(call: Call) -> Written:
    return Written(f"-{call.say('self', inner=True)}", loose=True)


def _recurrent(call: Call) -> Written:
    """A layer of cells whose weights are given one by one: the function that nn.GRU and its like call."""
    name = {"gru": "gru", "lstm": "lstm", "rnn_tanh": "rnn_tanh", "rnn_relu": "rnn_relu"}[call.name]
    return Written(f"torch._VF.{name}({', '.join(map(call.writer.say, call.node.args))})")


_SPECIAL: dict[str, Callable[[Call], Written | None]] = {
    "select": _select, "slice": _slice, "index": _index,
    "sym_size": _sym_size, "sym_numel": _sym_numel, "sym_stride": _sym_stride, "to": _to, "_to_copy": _to,
    "view": _shape, "reshape": _shape, "expand": _shape, "permute": _shape, "repeat": _shape,
    "dropout": _dropout, "dropout_": _dropout, "feature_dropout": _dropout, "feature_dropout_": _dropout, "alpha_dropout": _dropout,
    "feature_alpha_dropout": _dropout, "alpha_dropout_": _dropout,
    "embedding": _embedding, "batch_norm": _batch_norm, "instance_norm": _instance_norm, "softmax": _softmax, "log_softmax": _softmax,
    **dict.fromkeys(("cross_entropy_loss", "nll_loss_nd", "nll_loss2d", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
                     "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss"), _loss),
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d", "upsample_bicubic2d",
                     "upsample_linear1d", "upsample_trilinear3d"), _interpolate),
    **dict.fromkeys(("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"), _max_pool),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"), _adaptive_max_pool),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv_transpose),
    **dict.fromkeys(_FACTORIES, _factory),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like", "empty_like"), _like),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full", "new_empty"), _new),
    **dict.fromkeys(("gru", "lstm", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("broadcast_tensors", "block_diag", "cartesian_prod"), _spread),
    "clone": _clone, "pow": _pow, "neg": _neg,
}  # fmt: skip
