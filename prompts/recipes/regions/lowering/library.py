"""Calls that no kind covers, written as PyTorch calls."""

from __future__ import annotations

import math
import re
from typing import Any

from tritonsmith.evaluator.schema import OpNode
from tritonsmith.prompts.recipes.plan import NoPlan, name_node
from tritonsmith.prompts.recipes.regions.lowering.calls import NodeCall
from tritonsmith.prompts.recipes.regions.values.tensors import Item, LibraryCall, Tensor

_FUNCTIONS = {
    "Linear": ("linear", ("weight", "bias"), ()), "Bilinear": ("bilinear", ("weight", "bias"), ()),
    **{f"Conv{axes}d": (f"conv{axes}d", ("weight", "bias"), ("stride", "padding", "dilation", "groups")) for axes in (1, 2, 3)},
    **{
        f"ConvTranspose{axes}d":
        (f"conv_transpose{axes}d", ("weight", "bias"), ("stride", "padding", "output_padding", "groups", "dilation")) for axes in (1, 2, 3)
    },
    **{
        f"{kind}Pool{axes}d": (f"{kind.lower()}_pool{axes}d", (), names)
        for axes in (1, 2, 3)
        for kind, names in (
            ("Max", ("kernel_size", "stride", "padding", "dilation", "ceil_mode")),
            ("Avg", ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")),
        )
    },
    **{
        f"Adaptive{kind}Pool{axes}d": (f"adaptive_{kind.lower()}_pool{axes}d", (), ("output_size",))
        for axes in (1, 2, 3) for kind in ("Max", "Avg")
    },
    "Upsample": ("interpolate", (), ("size", "scale_factor", "mode", "align_corners")),
    "CrossEntropyLoss": ("cross_entropy", (), ("ignore_index", "reduction", "label_smoothing")),
    "ReflectionPad1d": ("pad", (), ("padding",)), "ReflectionPad2d": ("pad", (), ("padding",)),
    "ReplicationPad1d": ("pad", (), ("padding",)), "ReplicationPad2d": ("pad", (), ("padding",)),
}  # fmt: skip
"""Modules as functions of torch.nn.functional: their parameters and the attributes that are arguments, by those names."""
_CLASSES = {
    **dict.fromkeys(("GRU", "LSTM", "RNN"), ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")),
    **dict.fromkeys(("GRUCell", "LSTMCell", "RNNCell"), ("input_size", "hidden_size", "bias")),
    "MultiheadAttention": ("embed_dim", "num_heads", "dropout", "batch_first"),
    "EmbeddingBag": ("num_embeddings", "embedding_dim", "mode"),
    "Fold": ("output_size", "kernel_size", "dilation", "padding", "stride"),
    "Unfold": ("kernel_size", "dilation", "padding", "stride"),
    "LocalResponseNorm": ("size", "alpha", "beta", "k"),
}
"""Modules that are made as they are: the attributes that their constructors take."""
_TUPLES = ("GRU", "LSTM", "RNN", "MultiheadAttention")
"""Modules that return a tuple, whatever their results."""
_BY_VALUE = ("nonzero", "argwhere", "unique", "unique_consecutive", "masked_select", "bincount")
"""Calls whose values decide the shape of their result."""
_PICKS = ("dropout", "rand", "bernoulli", "multinomial", "normal")
_OPERATORS = {"matmul": "@", "add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "floordiv": "//", "mod": "%", "iadd": "+",
              "isub": "-", "imul": "*", "itruediv": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
              "and_": "&", "or_": "|", "xor": "^"}  # fmt: skip


def call_library(call: NodeCall, members: list[str]) -> Tensor | tuple[Tensor, ...]:
    """The node as a PyTorch call; lines that make a module are added to `members`. Raises NoPlan for what cannot be written."""
    node = call.node
    inputs: list[Tensor] = []
    if not node.outputs:
        raise NoPlan((name_node(node), node))
    if any(word in node.target.lower() for word in _PICKS) or node.target.rpartition(".")[2] in ("setitem", "setattr", "copy_", "randn"):
        raise NoPlan((name_node(node), node))
    name = node.target.rpartition(".")[2]
    if name in _BY_VALUE or (name == "where" and len(node.args) == 1):
        raise NoPlan((f"{name_node(node)}, whose values decide a shape", node))
    if node.op == "call_module":
        text = _write_module(call, inputs, members)
    else:
        arguments = [_write(one, inputs) for one in call.args]
        named = [f"{key}={_write(value, inputs)}" for key, value in call.kwargs.items() if not key.startswith("_")]
        text = _write_function(node, arguments, named)
    several = len(node.outputs) > 1 or node.module_type in _TUPLES
    made = LibraryCall(
        shape=call.shape, dtype=call.dtype, name=node.name, text=text, inputs=tuple(inputs), says=name_node(node), several=several,
    )  # fmt: skip
    if not several:
        return made
    if node.module_type == "LSTM":
        ways = ("[0]", "[1][0]", "[1][1]")
        items = [
            Item(shape=one.shape, dtype=one.dtype, name=node.name, call=made, way=way) for one, way in zip(node.outputs, ways, strict=True)
        ]
        return (items[0], (items[1], items[2]))  # type: ignore[return-value]
    return tuple(
        Item(shape=one.shape, dtype=one.dtype, name=node.name, call=made, way=f"[{place}]") for place, one in enumerate(node.outputs)
    )  # fmt: skip


def _write_function(node: OpNode, arguments: list[str], named: list[str]) -> str:
    module, _, name = node.target.rpartition(".")
    if node.op == "call_method":
        return f"{arguments[0]}.{node.target}({', '.join([*arguments[1:], *named])})"
    if module in ("_operator", "operator"):
        if name == "getitem":
            raise NoPlan((name_node(node), node))
        return (
            f"({f' {_OPERATORS[name]} '.join(arguments)})"
            if name in _OPERATORS and len(arguments) == 2
            else f"{name}({', '.join(arguments)})"
        )
    if not re.fullmatch(r"(torch(\.\w+)*|math)", module):
        raise NoPlan((name_node(node), node))
    target = node.target.replace("torch.nn.functional.", "F.")
    return f"{target}({', '.join([*arguments, *named])})"


def _write_module(call: NodeCall, inputs: list[Tensor], members: list[str]) -> str:
    node = call.node
    arguments = [_write(one, inputs) for one in call.args]
    named = [f"{key}={_write(value, inputs)}" for key, value in call.kwargs.items()]
    if node.module_type in _FUNCTIONS:
        name, parameters, attributes = _FUNCTIONS[node.module_type]
        mode = node.attributes.get("padding_mode", "zeros")
        if mode != "zeros":
            arguments[0] = f'F.pad({arguments[0]}, {_list_rims(node)}, mode="{mode}")'
            attributes = tuple(one for one in attributes if one != "padding")
        if "weight" in parameters and call.weight(-1, "weight") is None:
            raise NoPlan((f"{name_node(node)} without a weight of its own", node))
        for parameter in parameters:
            weight = call.weight(-1, parameter)
            named += [f"{parameter}={_write(weight, inputs)}"] if weight is not None else []
        shown = {"padding": "pad"} if name == "pad" else {}
        named += [f"{shown.get(key, key)}={_write(node.attributes[key], inputs)}" for key in attributes if key in node.attributes]
        if name == "pad":
            named.append(f'mode="{"reflect" if node.module_type.startswith("Reflection") else "replicate"}"')
        return f"F.{name}({', '.join([*arguments, *named])})"
    if node.module_type not in _CLASSES or node.attributes.get("proj_size"):
        raise NoPlan((name_node(node), node))
    made = ", ".join(f"{key}={node.attributes[key]!r}" for key in _CLASSES[node.module_type] if key in node.attributes)
    members.append(f"{node.target}|nn.{node.module_type}({made})")
    return f"SELF[{node.target}]({', '.join([*arguments, *named])})"


def _list_rims(node: OpNode) -> list[int]:
    """Rims of a convolution as `F.pad` takes them: the last axis first, both sides of each. Raises NoPlan where they are words."""
    rims = node.attributes.get("padding")
    if not isinstance(rims, list | tuple) or not all(isinstance(one, int) for one in rims):
        raise NoPlan((f"{name_node(node)} with padding_mode", node))
    return [rim for one in reversed(rims) for rim in (one, one)]


def _write(value: Any, inputs: list[Tensor]) -> str:
    """An argument as Python writes it; a tensor as the place of an operand."""
    if isinstance(value, Tensor):
        inputs.append(value)
        return f"{{{len(inputs) - 1}}}"
    if isinstance(value, tuple | list):
        inner = ", ".join(_write(one, inputs) for one in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, dict):
        if "slice" in value or "ellipsis" in value:
            raise NoPlan(("an index", None))
    if isinstance(value, str) and re.fullmatch(r"torch\.\w+", value):
        return value
    return repr(value).replace("{", "{{").replace("}", "}}")
