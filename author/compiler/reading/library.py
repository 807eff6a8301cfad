"""Calls that no kind covers, written as PyTorch calls."""

from __future__ import annotations

from typing import Any

from tritonsmith.author.compiler.ir.operators import Operand
from tritonsmith.author.compiler.ir.torch_calls import (
    FUNCTIONAL,
    PREFIXES,
    SIGNS,
    Global,
    Surrounding,
    TorchCall,
    Way,
    call_function,
)
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
_DEVICE = "<device>"
"""What a trace has in place of a device."""


def call_library(call: NodeCall, members: dict[str, TorchCall]) -> Tensor | ComplexPair | tuple[Tensor, ...]:
    """The node as a PyTorch call; what makes a module is added to `members`, by its path. Raises NoPlan for what cannot be written."""
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
        record = _record_call(call, inputs, members)
    except NotCovered:
        raise NoPlan((name_node(node), node)) from None
    if call.dtype == COMPLEX:
        return _show_parts(call, record, inputs)
    several = len(node.outputs) > 1 or node.module_type in TUPLES or name in _LISTS
    made = LibraryCall(
        shape=call.shape, dtype=call.dtype, name=node.name, record=record, inputs=tuple(inputs), says=name_node(node), several=several,
    )  # fmt: skip
    if not several:
        return made
    if node.module_type == "LSTM":
        places = ((0,), (1, 0), (1, 1))
        items = [
            Item(shape=one.shape, dtype=one.dtype, name=node.name, call=made, places=at)
            for one, at in zip(node.outputs, places, strict=True)
        ]
        return (items[0], (items[1], items[2]))  # type: ignore[return-value]
    return tuple(
        Item(shape=one.shape, dtype=one.dtype, name=node.name, call=made, places=(place,)) for place, one in enumerate(node.outputs)
    )  # fmt: skip


def _show_parts(call: NodeCall, record: TorchCall, inputs: list[Tensor]) -> ComplexPair:
    """A call that gives a complex tensor. Raises NoPlan where it gives several."""
    if len(call.node.outputs) > 1:
        raise NoPlan((f"{name_node(call.node)} that gives several complex tensors", call.node))
    return split(
        LibraryCall(
            shape=(*call.shape, 2), dtype=REAL, name=call.node.name, record=call_function("torch.view_as_real", record),
            inputs=tuple(inputs), says=name_node(call.node),
        )
    )  # fmt: skip


def _record_call(call: NodeCall, inputs: list[Tensor], members: dict[str, TorchCall]) -> TorchCall:
    """The record of a call; tensors are added to `inputs`. Raises NotCovered for arguments that no record stands for."""
    node = call.node
    if node.op == "call_module":
        return _record_module(call, inputs, members)
    arguments = tuple(_record(one, inputs) for one in call.args)
    named = {key: Surrounding.DEVICE if key == "device" else _record(value, inputs)
             for key, value in call.kwargs.items() if not key.startswith("_") and key != "inplace"}  # fmt: skip
    given = any(isinstance(value, Tensor) for value in call.args)  # a constant among them is no input
    if node.op == "call_function" and not inputs and not given and "device" not in call.kwargs and _makes_tensor(node):
        named["device"] = Surrounding.DEVICE
    return _record_function(node, arguments, named)


def put_by_call(source: Tensor, keys: list[Any], value: Any, node: OpNode) -> Tensor:
    """`source[keys] = value` at places that tensors hold, as a PyTorch call. Raises NoPlan for keys that are parts of an axis."""
    basic = [one for one in keys if not isinstance(one, Tensor)]
    if not all(one == _WHOLE for one in basic) and not all(type(one) is int for one in basic):
        raise NoPlan((name_node(node), node))
    given = value if isinstance(value, Tensor) else constant(value, source.dtype)
    inputs: list[Tensor] = [source]
    places = [None if one == _WHOLE else _record_place(one, inputs) for one in keys]
    stored = _record(cast(as_type(given, source.dtype), source.dtype), inputs)
    return LibraryCall(
        shape=source.shape, dtype=source.dtype, name=node.name,
        record=call_function("torch.ops.aten.index_put", Operand(0), places, stored), inputs=tuple(inputs), says="torch.index_put",
    )  # fmt: skip


def _record_place(key: Any, inputs: list[Tensor]) -> Any:
    """A key of an index; a single place as a tensor."""
    return call_function("torch.full", (), key, device=Surrounding.DEVICE) if type(key) is int else _record(key, inputs)


def _makes_tensor(node: OpNode) -> bool:
    """Whether a function of torch makes a tensor of numbers, and may be asked where."""
    return node.target.startswith("torch.") and node.target.count(".") == 1


def _record_function(node: OpNode, arguments: tuple[Any, ...], named: dict[str, Any]) -> TorchCall:
    module, _, name = node.target.rpartition(".")
    name = name.rstrip("_") if name not in SIGNS else name  # the call that changes nothing
    if node.op == "call_method":
        return TorchCall(Way.METHOD, name, arguments, named)
    if module in ("_operator", "operator"):
        sign = name if name in SIGNS else name.removeprefix("i")
        if sign in SIGNS and len(arguments) == 2:
            return TorchCall(Way.OPERATOR, sign, arguments)
        if name in PREFIXES and len(arguments) == 1:
            return TorchCall(Way.OPERATOR, name, arguments)
        raise NoPlan((name_node(node), node))
    if module != "math" and module.partition(".")[0] != "torch":
        raise NoPlan((name_node(node), node))
    return TorchCall(Way.FUNCTION, f"{module}.{name}", arguments, named)


def _record_module(call: NodeCall, inputs: list[Tensor], members: dict[str, TorchCall]) -> TorchCall:
    node = call.node
    arguments = [_record(one, inputs) for one in call.args]
    named = {key: _record(value, inputs) for key, value in call.kwargs.items()}
    if node.module_type in _FUNCTIONS:
        name, parameters, attributes = _FUNCTIONS[node.module_type]
        mode = node.attributes.get("padding_mode", "zeros")
        if mode != "zeros":
            arguments[0] = call_function(f"{FUNCTIONAL}pad", arguments[0], _list_rims(node), mode=mode)
            attributes = tuple(one for one in attributes if one != "padding")
        if "weight" in parameters and call.weight(-1, "weight") is None:
            raise NoPlan((f"{name_node(node)} without a weight of its own", node))
        for parameter in parameters:
            weight = call.weight(-1, parameter)
            named |= {parameter: _record(weight, inputs)} if weight is not None else {}
        shown = {"padding": "pad"} if name == "pad" else {}
        named |= {shown.get(key, key): _record(node.attributes[key], inputs) for key in attributes if key in node.attributes}
        if name == "pad":
            named["mode"] = "reflect" if node.module_type.startswith("Reflection") else "replicate"
        return call_function(f"{FUNCTIONAL}{name}", *arguments, **named)
    if "training" in node.attributes:
        raise NoPlan((f"{name_node(node)} in another mode than the model's", node))
    members[node.target] = _record_constructor(call)
    return TorchCall(Way.MEMBER, node.target, tuple(arguments), named)


def _record_constructor(call: NodeCall) -> TorchCall:
    """A call that makes such a module again, with weights of the reference's types. Raises NoPlan where its arguments are not known."""
    node = call.node
    if node.constructor is None:
        raise NoPlan((name_node(node), node))
    types = {spec.dtype for name, spec in call.facts.parameters.items() if name.startswith(f"{node.target}.") and spec.dtype in FLOATS}
    if len(types) > 1:
        raise NoPlan((f"{name_node(node)} with weights of several types", node))
    (dtype,) = types or {"float32"}
    made = call_function(f"nn.{node.module_type}", **node.constructor)
    return made if dtype == "float32" else TorchCall(Way.METHOD, "to", (made, Global(f"torch.{dtype}")))


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


def _record(value: Any, inputs: list[Tensor]) -> Any:
    """An argument as a record has it: a tensor as the place of an operand, which is added to `inputs`. Raises NotCovered."""
    match value:
        case ComplexPair():
            return call_function("torch.view_as_complex", _record(value.stored, inputs))
        case Tensor() if not value.size:
            kind = Global(f"torch.{value.dtype}")
            return call_function("torch.zeros", value.shape, dtype=kind, device=Surrounding.DEVICE)
        case Tensor():
            inputs.append(value)
            return Operand(len(inputs) - 1)
        case tuple():
            return tuple(_record(one, inputs) for one in value)
        case list():
            return [_record(one, inputs) for one in value]
        case dict():
            if "slice" in value or "ellipsis" in value:
                raise NotCovered("with an index")
            return {key: _record(one, inputs) for key, one in value.items()}
        case str():
            return _record_word(value)
        case None | bool() | int() | float() | complex():
            return value
    raise NotCovered("with an object")


def _record_word(value: str) -> Any:
    """A word of a trace: a constant of torch, the device, or a string. Raises NotCovered for an object's name."""
    module, _, name = value.rpartition(".")
    if module == "torch" and name.isidentifier():
        return Global(value)
    if value == _DEVICE:
        return Surrounding.DEVICE
    if "<" in value or "(" in value:
        raise NotCovered("with an object")  # of which the trace has the name
    return value
