"""Calls that no kind covers, written as PyTorch calls."""

from __future__ import annotations

import math
import re
from typing import Any

from tritonsmith.author.compiler.ir.values import FLOATS, Item, LibraryCall, Tensor
from tritonsmith.author.compiler.lowering.calls import NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import as_type, cast, constant
from tritonsmith.author.compiler.reading.complexes import COMPLEX, REAL, ComplexPair, split
from tritonsmith.author.plan import NoPlan
from tritonsmith.evaluator.schema import OpNode
from tritonsmith.prompts.node_names import name_node

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
            ("Max", ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")),
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
TUPLES = ("GRU", "LSTM", "RNN", "MultiheadAttention")
"""Modules that return a tuple, whatever their results."""
_LISTS = ("gradient", "chunk", "split", "split_with_sizes", "tensor_split", "hsplit", "vsplit", "dsplit", "unbind", "meshgrid",
          "broadcast_tensors")  # fmt: skip
"""Functions that return a list or a tuple, even of one tensor."""
_BY_VALUE = ("nonzero", "argwhere", "unique", "unique_consecutive", "masked_select", "bincount")
"""Calls whose values decide the shape of their result."""
_PICKS = ("dropout", "rand", "bernoulli", "multinomial", "normal", "uniform", "exponential_", "geometric_", "cauchy_")
_WHOLE = {"slice": [None, None, None]}
_OPERATORS = {"matmul": "@", "add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "floordiv": "//", "mod": "%",
              "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and_": "&", "or_": "|", "xor": "^",
              "lshift": "<<", "rshift": ">>"}  # fmt: skip
_SIGNS = {"invert": "~", "neg": "-", "pos": "+"}
_DEVICE = "<device>"
_OF_CARD = "{device}"
"""The device of forward's tensors, in the text of a call."""


def call_library(call: NodeCall, members: list[str]) -> Tensor | ComplexPair | tuple[Tensor, ...]:
    """The node as a PyTorch call; lines that make a module are added to `members`. Raises NoPlan for what cannot be written."""
    node = call.node
    inputs: list[Tensor] = []
    if not node.outputs:
        raise NoPlan((name_node(node), node))
    if any(word in node.target.lower() for word in _PICKS) or node.target.rpartition(".")[2] in ("setitem", "setattr", "copy_", "randn"):
        raise NoPlan((name_node(node), node))
    name = node.target.rpartition(".")[2]
    counted = name == "one_hot" and call.get(1, "num_classes", default=-1) == -1
    repeats = call.get(1, "repeats", default=0) if name == "repeat_interleave" and call.kwargs.get("output_size") is None else 0
    if name in _BY_VALUE or counted or isinstance(repeats, Tensor) or (name == "where" and len(node.args) == 1):
        raise NoPlan((f"{name_node(node)}, whose values decide a shape", node))
    try:
        text = _write_call(call, inputs, members)
    except NotCovered:
        raise NoPlan((name_node(node), node)) from None
    if call.dtype == COMPLEX:
        return _show_parts(call, text, inputs)
    several = len(node.outputs) > 1 or node.module_type in TUPLES or name in _LISTS
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


def _show_parts(call: NodeCall, text: str, inputs: list[Tensor]) -> ComplexPair:
    """A call that gives a complex tensor. Raises NoPlan where it gives several."""
    if len(call.node.outputs) > 1:
        raise NoPlan((f"{name_node(call.node)} that gives several complex tensors", call.node))
    return split(
        LibraryCall(
            shape=(*call.shape, 2), dtype=REAL, name=call.node.name, text=f"torch.view_as_real({text})", inputs=tuple(inputs),
            says=name_node(call.node),
        )
    )  # fmt: skip


def _write_call(call: NodeCall, inputs: list[Tensor], members: list[str]) -> str:
    """The text of a call; tensors are added to `inputs`. Raises NotCovered for arguments that cannot be written."""
    node = call.node
    if node.op == "call_module":
        return _write_module(call, inputs, members)
    arguments = [_write(one, inputs) for one in call.args]
    named = [_name(key, value, inputs) for key, value in call.kwargs.items() if not key.startswith("_") and key != "inplace"]
    if node.op == "call_function" and not inputs and "device" not in call.kwargs and _makes_tensor(node):
        named.append(f"device={_OF_CARD}")
    return _write_function(node, arguments, named)


def put_by_call(source: Tensor, keys: list[Any], value: Any, node: OpNode) -> Tensor:
    """`source[keys] = value` at places that tensors hold, as a PyTorch call. Raises NoPlan for keys that are parts of an axis."""
    basic = [one for one in keys if not isinstance(one, Tensor)]
    if not all(one == _WHOLE for one in basic) and not all(type(one) is int for one in basic):
        raise NoPlan((name_node(node), node))
    given = value if isinstance(value, Tensor) else constant(value, source.dtype)
    inputs: list[Tensor] = [source]
    texts = (f"torch.full((), {one}, device={_OF_CARD})" if type(one) is int else _write(one, inputs) for one in keys if one != _WHOLE)
    places = ", ".join("None" if one == _WHOLE else next(texts) for one in keys)
    stored = _write(cast(as_type(given, source.dtype), source.dtype), inputs)
    return LibraryCall(
        shape=source.shape, dtype=source.dtype, name=node.name, text=f"torch.ops.aten.index_put({{0}}, [{places}], {stored})",
        inputs=tuple(inputs), says="torch.index_put",
    )  # fmt: skip


def _name(key: str, value: Any, inputs: list[Tensor]) -> str:
    return f"device={_OF_CARD}" if key == "device" else f"{key}={_write(value, inputs)}"


def _makes_tensor(node: OpNode) -> bool:
    """Whether a function of torch makes a tensor of numbers, and may be asked where."""
    return node.target.startswith("torch.") and node.target.count(".") == 1


def _write_function(node: OpNode, arguments: list[str], named: list[str]) -> str:
    module, _, name = node.target.rpartition(".")
    name = name.rstrip("_") if name not in _OPERATORS else name  # the call that changes nothing
    if node.op == "call_method":
        return f"{arguments[0]}.{name}({', '.join([*arguments[1:], *named])})"
    if module in ("_operator", "operator"):
        sign = name if name in _OPERATORS else name.removeprefix("i")
        if sign in _OPERATORS and len(arguments) == 2:
            return f"({f' {_OPERATORS[sign]} '.join(arguments)})"
        if name in _SIGNS and len(arguments) == 1:
            return f"({_SIGNS[name]}{arguments[0]})"
        raise NoPlan((name_node(node), node))
    if not re.fullmatch(r"(torch(\.\w+)*|math)", module):
        raise NoPlan((name_node(node), node))
    target = f"{module}.{name}".replace("torch.nn.functional.", "F.")
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
    if "training" in node.attributes:
        raise NoPlan((f"{name_node(node)} in another mode than the model's", node))
    members.append(f"{node.target}|{_write_constructor(call)}")
    return f"SELF[{node.target}]({', '.join([*arguments, *named])})"


def _write_constructor(call: NodeCall) -> str:
    """A call that makes such a module again, with weights of the reference's types. Raises NoPlan where its arguments are not known."""
    node = call.node
    if node.constructor is None:
        raise NoPlan((name_node(node), node))
    types = {spec.dtype for name, spec in call.facts.parameters.items() if name.startswith(f"{node.target}.") and spec.dtype in FLOATS}
    if len(types) > 1:
        raise NoPlan((f"{name_node(node)} with weights of several types", node))
    (dtype,) = types or {"float32"}
    made = ", ".join(f"{key}={value!r}" for key, value in node.constructor.items())
    return f"nn.{node.module_type}({made})" + ("" if dtype == "float32" else f".to(torch.{dtype})")


def _list_rims(node: OpNode) -> list[int]:
    """Rims of a convolution as `F.pad` takes them: the last axis first, both sides of each. Raises NoPlan where they are not known."""
    rims = node.attributes.get("padding")
    if rims in ("same", "valid"):
        sizes = zip(node.attributes["dilation"], node.attributes["kernel_size"], strict=True)
        wholes = [step * (size - 1) if rims == "same" else 0 for step, size in sizes]
        return [rim for whole in reversed(wholes) for rim in (whole // 2, whole - whole // 2)]
    if not isinstance(rims, list | tuple) or not all(isinstance(one, int) for one in rims):
        raise NoPlan((f"{name_node(node)} with padding_mode", node))
    return [rim for one in reversed(rims) for rim in (one, one)]


def _write(value: Any, inputs: list[Tensor]) -> str:
    """An argument as Python writes it; a tensor as the place of an operand."""
    if isinstance(value, ComplexPair):
        inputs.append(value.stored)
        return f"torch.view_as_complex({{{len(inputs) - 1}}})"
    if isinstance(value, Tensor) and not value.size:
        return f"torch.zeros({value.shape}, dtype=torch.{value.dtype}, device={_OF_CARD})"
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
            raise NotCovered("with an index")
    if isinstance(value, str) and re.fullmatch(r"torch\.\w+", value):
        return value
    if value == _DEVICE:
        return _OF_CARD
    if isinstance(value, str) and re.search(r"[<(]", value):
        raise NotCovered("with an object")  # of which the trace has the name
    return repr(value).replace("{", "{{").replace("}", "}}")
