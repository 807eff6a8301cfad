"""Elementwise operations: those of all families, comparisons, choices, conversions and whole numbers."""

from __future__ import annotations

import math
from typing import Any

from tritonsmith.author.compiler.ir.indices import Shape
from tritonsmith.author.compiler.ir.values import FLOATS, TRITON_TYPES, Formula, Held, Tensor, TensorView, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.operations import OPERATIONS, expression
from tritonsmith.author.types import CASTS, PLAIN, TYPES, WHOLE, join_types
from tritonsmith.prompts.node_names import operation_name

_SELU = (1.6732632423543772, 1.0507009873554805)
_PLAIN: dict[str, tuple[str, int]] = {
    "selu": (f"{_SELU[1]!r} * tl.where({{0}} > 0.0, {{0}}, {_SELU[0]!r} * libdevice.expm1({{0}}))", 1),
    "mish": ("mish({0})", 1),
    "logsigmoid": ("tl.minimum({0}, 0.0) - libdevice.log1p(tl.exp(-tl.abs({0})))", 1),
    "log_sigmoid": ("tl.minimum({0}, 0.0) - libdevice.log1p(tl.exp(-tl.abs({0})))", 1),
    "tanhshrink": ("{0} - tanh({0})", 1),
    "exp2": ("tl.exp2({0})", 1), "log2": ("tl.log2({0})", 1), "log10": ("libdevice.log10({0})", 1),
    "log1p": ("libdevice.log1p({0})", 1), "expm1": ("libdevice.expm1({0})", 1),
    "tan": ("libdevice.tan({0})", 1), "sinh": ("libdevice.sinh({0})", 1), "cosh": ("libdevice.cosh({0})", 1),
    "asin": ("libdevice.asin({0})", 1), "acos": ("libdevice.acos({0})", 1), "atan": ("libdevice.atan({0})", 1),
    "arctan": ("libdevice.atan({0})", 1), "erfc": ("libdevice.erfc({0})", 1),
    "floor": ("tl.floor({0})", 1), "ceil": ("tl.ceil({0})", 1), "trunc": ("libdevice.trunc({0})", 1),
    "sign": ("tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, 0.0))", 1),
    "atan2": ("libdevice.atan2({0}, {1})", 2), "hypot": ("libdevice.hypot({0}, {1})", 2), "fmod": ("libdevice.fmod({0}, {1})", 2),
    **dict.fromkeys(("remainder", "mod"), ("real_remainder({0}, {1})", 2)),
    **dict.fromkeys(("floordiv", "floor_divide"), ("real_quotient({0}, {1})", 2)),
    "lerp": ("{0} + {2} * ({1} - {0})", 3), "prelu": ("tl.where({0} > 0.0, {0}, {0} * {1})", 2),
}  # fmt: skip
"""Expressions over floating-point operands, and how many."""
_WHOLE: dict[str, tuple[str, int]] = {
    "add": ("{0} + {1}", 2), "sub": ("{0} - {1}", 2), "mul": ("{0} * {1}", 2), "neg": ("-{0}", 1), "abs": ("tl.abs({0})", 1),
    "maximum": ("tl.maximum({0}, {1})", 2), "minimum": ("tl.minimum({0}, {1})", 2), "square": ("{0} * {0}", 1),
    "relu": ("tl.maximum({0}, 0)", 1), "bitwise_and": ("{0} & {1}", 2), "bitwise_or": ("{0} | {1}", 2), "bitwise_xor": ("{0} ^ {1}", 2),
    "lshift": ("{0} << {1}", 2), "rshift": ("{0} >> {1}", 2),
    "clone": ("{0}", 1), "sign": ("tl.where({0} > 0, 1, tl.where({0} < 0, -1, 0))", 1),
    **dict.fromkeys(("floor", "ceil", "trunc"), ("{0}", 1)),
}  # fmt: skip
"""Expressions over whole numbers."""
_QUOTIENTS = {
    **dict.fromkeys(("floordiv", "floor_divide"), ("floor_quotient({0}, {1})", "({0} - (({0} % {1}) + {1}) % {1}) // {1}")),
    **dict.fromkeys(("mod", "remainder"), ("floor_remainder({0}, {1})", "(({0} % {1}) + {1}) % {1}")),
    "trunc_divide": ("{0} // {1}", "{0} // {1}"), "fmod": ("{0} % {1}", "{0} % {1}"),
}  # fmt: skip
"""Quotients of whole numbers and what they leave, for any divisor and for a number that is written out; Triton rounds towards zero."""
_WIDE = tuple(name for name in WHOLE if TYPES[name].bits >= 32)
"""Types in which a remainder and a divisor that is written out add up."""
_TRUTHS = {"mul": "{0} & {1}", "add": "{0} | {1}", "maximum": "{0} | {1}", "minimum": "{0} & {1}"}
"""Arithmetic of truths."""
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOGIC = {
    "logical_and": "&",
    "logical_or": "|",
    "logical_xor": "^",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "iand": "&",
    "ior": "|",
    "ixor": "^",
}
_LONG = {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "not_equal": "ne", "and_": "bitwise_and",
         "or_": "bitwise_or", "xor": "bitwise_xor", "LogSigmoid": "logsigmoid", "arcsin": "asin", "arccos": "acos"}  # fmt: skip
_DROPOUTS = ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "nn.Dropout1d", "nn.Dropout2d",
             "nn.Dropout3d", "nn.AlphaDropout", "nn.FeatureAlphaDropout")  # fmt: skip


def write_number(number: Any, dtype: str) -> str:
    """A number as Triton writes it among values of a type."""
    if dtype == "bool":
        return str(bool(number))
    if dtype not in FLOATS:
        number = TYPES.get(dtype, TYPES["int64"]).round(int(number))
        return f"({number})" if number < 0 else str(number)
    number = float(number)
    if math.isinf(number) or math.isnan(number):
        return f'float("{number}")'
    return f"({number!r})" if number < 0 else repr(number)


def constant(number: Any, dtype: str, shape: Shape = ()) -> Formula:
    """A tensor whose elements are all one number."""
    return Formula(shape=shape, dtype=dtype, template=write_number(number, dtype), flops=0.0)


def cast(value: Tensor, dtype: str) -> Tensor:
    """The value in another type, rounded as that type is."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Formula) and not value.inputs and "." not in dtype and value.template not in ("True", "False"):
        number = (
            float(value.template.strip("()").removeprefix("float(").strip('"'))
            if value.dtype in FLOATS
            else int(value.template.strip("()"))
        )
        return constant(number, dtype, value.shape)
    if dtype == "bool":
        text = "{0} != 0"
    elif widen(dtype) != dtype:
        text = f"{{0}}{TYPES[dtype].rounding}"
    elif widen(dtype) == widen(value.dtype):
        text = "{0}"
    else:
        text = f"{{0}}.to({TRITON_TYPES[widen(dtype)]})"
    return Formula(shape=value.shape, dtype=dtype, template=text, inputs=(value,), flops=0.0)


def formula(template: str, *operands: Any, like: str, shape: Shape | None = None, result: str = "") -> Formula:
    """An elementwise value of tensors and numbers, which are brought to type `like` first."""
    inputs: list[Tensor] = []
    texts: list[str] = []
    for operand in operands:
        if isinstance(operand, Tensor):
            texts.append(f"{{{len(inputs)}}}")
            inputs.append(as_type(operand, like))
        else:
            texts.append(write_number(operand, like))
    shape = broadcast(*(one.shape for one in inputs)) if shape is None else shape
    return Formula(shape=shape, dtype=result or like, template=template.format(*texts), inputs=tuple(inputs))


def as_type(value: Tensor, dtype: str) -> Tensor:
    """The value for arithmetic in a type: 16-bit numbers are computed with as fp32, and are not rounded."""
    if value.dtype == dtype or widen(value.dtype) == widen(dtype):
        return value
    wide = widen(dtype)
    return cast(value, wide if wide in FLOATS else dtype)


def broadcast(*shapes: Shape) -> Shape:
    """The shape to which shapes broadcast. Raises NotCovered where they do not."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    found = tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))
    if any(size not in (1, whole) for shape in padded for size, whole in zip(shape, found, strict=True)):
        raise NotCovered("of shapes that do not broadcast")
    return found


def common_type(*operands: Any) -> str:
    """The type in which tensors and numbers meet, as torch promotes them."""
    dtypes = [one.dtype for one in operands if isinstance(one, Tensor) and not (isinstance(one, Held) and one.number)]
    fraction = any(isinstance(one, float) for one in operands) and not any(one in FLOATS for one in dtypes)
    return PLAIN if fraction else join_types(dtypes)


def _lower_known(call: NodeCall) -> Lowered:
    """An operation that all families know."""
    name = operation_name(call.node)
    assert name is not None, "the table has its name"
    operands = [one for one in (*call.args, *call.kwargs.values()) if isinstance(one, Tensor)]
    if not operands:
        raise NotCovered("without a tensor")
    if name == "identity" and call.training and call.get(-1, "p", default=0.0):
        raise NotCovered("while training")
    if name == "identity":
        return operands[0]
    if call.dtype not in FLOATS:
        return _lower_whole(call, name, operands)
    if name == "clamp" and len(operands) > 1:
        raise NotCovered("between tensors")
    texts: dict[str, str] = {}
    inputs: list[Tensor] = []
    references = [one["ref"] for one in (*call.node.args, *call.node.kwargs.values()) if isinstance(one, dict) and "ref" in one]
    given = [*call.args, *call.kwargs.values()]
    raw = [*call.node.args, *call.node.kwargs.values()]
    for reference, value in ((one["ref"], given[place]) for place, one in enumerate(raw) if isinstance(one, dict) and "ref" in one):
        if isinstance(value, Tensor) and reference not in texts:
            texts[reference] = f"{{{len(inputs)}}}"
            inputs.append(as_type(value, call.dtype))
        elif not isinstance(value, Tensor):
            texts[reference] = write_number(value, call.dtype)
    assert len(texts) == len(set(references))
    try:
        template = expression(call.node, name, texts)
    except ValueError as error:
        if name != "pow":
            raise NotCovered(str(error)) from None
        template = formula("libdevice.pow({0}, {1})", *call.args[:2], like=call.dtype).template
    return Formula(
        shape=call.shape, dtype=call.dtype, template=template.replace("1.0 * ", ""), inputs=tuple(inputs), flops=OPERATIONS[name].flops
    )


def _lower_whole(call: NodeCall, name: str, operands: list[Tensor]) -> Lowered:
    """An operation on whole numbers."""
    if name == "clamp":
        value, least, most = operands[0], call.option(1, "min", None), call.option(2, "max", None)
        if len(operands) > 1:
            raise NotCovered("between tensors")
        if least is not None:
            value = formula("tl.maximum({0}, {1})", value, least, like=call.dtype)
        return value if most is None else formula("tl.minimum({0}, {1})", value, most, like=call.dtype)
    if call.dtype == "bool" and name in _TRUTHS and all(one.dtype == "bool" for one in operands) and len(operands) > 1:
        return formula(_TRUTHS[name], *operands[:2], like="bool", shape=call.shape)
    if name in _QUOTIENTS and call.dtype != "bool":
        return divide_whole(name, call.get(0, "input", "self"), call.get(1, "other"), call)
    if name not in _WHOLE or call.dtype == "bool" or call.get(-1, "alpha", default=1) != 1:
        raise NotCovered(f"on {call.dtype}")
    template, number = _WHOLE[name]
    return formula(template, *call.args[:number], like=call.dtype, shape=call.shape)


def divide_whole(name: str, left: Any, right: Any, call: NodeCall) -> Tensor:
    """A quotient of whole numbers or what it leaves."""
    general, plain = _QUOTIENTS[name]
    written = not isinstance(right, Tensor)
    if not written:  # 0 is what a program reads beyond the edge
        right = formula("tl.where({0} == 0, 1, {0})", right, like=call.dtype)
        right.name = "divisor"
    return formula(plain if written and call.dtype in _WIDE else general, left, right, like=call.dtype, shape=call.shape)


def _lower_plain(call: NodeCall) -> Lowered:
    """An operation of this file's tables."""
    name = call.node.module_type.lower() if call.node.op == "call_module" else call.node.target.rpartition(".")[2].rstrip("_")
    name = _LONG.get(name, name)
    if call.dtype not in FLOATS:
        return _lower_whole(call, name, [one for one in call.args if isinstance(one, Tensor)])
    template, number = _PLAIN[name]
    operands = [*call.args, *call.kwargs.values()][:number]
    if name == "prelu":
        weight = call.weight(1, "weight")
        assert weight is not None
        if weight.size > 1:
            weight = _widen_channels(weight, len(call.shape))
        operands = [call.tensor(0, "input"), weight]
    if len(operands) < number:
        raise NotCovered(f"with {len(operands)} operands")
    return formula(template, *operands, like=call.dtype, shape=call.shape)


def _widen_channels(weight: Tensor, rank: int) -> Tensor:
    """One number for each channel, the second axis, to be broadcast over the axes behind."""
    shape = (weight.size, *(1,) * (rank - 2))
    return TensorView(
        shape=shape, dtype=weight.dtype, source=weight, move=lambda at: at[:1], python=f"{{0}}.reshape({shape})"
    ) if rank > 2 else weight


def _compare(call: NodeCall) -> Lowered:
    name = call.node.target.rpartition(".")[2].rstrip("_")
    left, right = call.get(0, "input", "self"), call.get(1, "other")
    return formula(
        f"{{0}} {_COMPARISONS[_LONG.get(name, name)]} {{1}}", left, right, like=common_type(left, right), shape=call.shape, result="bool"
    )


def _combine(call: NodeCall) -> Lowered:
    name = call.node.target.rpartition(".")[2]
    name = name if name in _LOGIC else name.rstrip("_")
    left, right = call.get(0, "input", "self"), call.get(1, "other")
    like = "bool" if call.dtype == "bool" else call.dtype
    return formula(f"{{0}} {_LOGIC[name]} {{1}}", left, right, like=like, shape=call.shape)


def _negate(call: NodeCall) -> Lowered:
    value = call.tensor(0, "input")
    if call.dtype != "bool":
        raise NotCovered(f"on {call.dtype}")
    return formula("{0} == 0" if value.dtype != "bool" else "~{0}", value, like=value.dtype, result="bool")


def _choose(call: NodeCall) -> Lowered:
    """`where` and `masked_fill`."""
    if call.node.target.rpartition(".")[2].startswith("masked_fill"):
        value, condition, other = call.tensor(0, "input"), call.tensor(1, "mask"), call.get(2, "value")
        return select(condition, other, value, call)
    if call.node.op == "call_method":
        return select(call.tensor(1, "condition"), call.tensor(0, "self"), call.get(2, "other"), call)
    return select(call.tensor(0, "condition"), call.get(1, "input", "self"), call.get(2, "other"), call)


def select(condition: Tensor, yes: Any, no: Any, call: NodeCall) -> Formula:
    """One value where a condition holds, another one elsewhere."""
    return select_where(condition, yes, no, call.dtype, call.shape)


def select_where(condition: Tensor, yes: Any, no: Any, dtype: str, shape: Shape) -> Formula:
    """The same in a type and a shape."""
    chosen = formula("tl.where(CONDITION, {0}, {1})", yes, no, like=dtype, shape=shape)
    inputs = (*chosen.inputs, cast(condition, "bool"))
    template = chosen.template.replace("CONDITION", f"{{{len(chosen.inputs)}}}")
    return Formula(shape=shape, dtype=dtype, template=template, inputs=inputs)


def _convert(call: NodeCall) -> Lowered:
    """`to`, `type`, `float` and their kin: the result's type says it all."""
    return cast(call.tensor(0, "input", "self"), call.dtype)


def _clone(call: NodeCall) -> Lowered:
    return call.tensor(0, "input", "self")


def _keep(call: NodeCall) -> Lowered:
    """Dropout of whole channels, or that keeps mean and variance: nothing in evaluation mode."""
    if call.training if call.node.op == "call_module" else call.get(2, "training", default="alpha" not in call.node.target):
        raise NotCovered("in training mode")
    return call.tensor(0, "input")


def _add_scaled(call: NodeCall) -> Lowered:
    sign = "*" if "mul" in call.node.target else "/"
    factor = call.kwargs.get("value", 1)
    return formula(f"{{0}} + {{3}} * ({{1}} {sign} {{2}})", *call.args[:3], factor, like=call.dtype, shape=call.shape)


def _shrink(call: NodeCall) -> Lowered:
    """Functions with a threshold of their own."""
    name = (call.node.module_type or call.node.target.rpartition(".")[2]).lower().rstrip("_")
    value = call.tensor(0, "input")
    if name == "threshold":
        least, other = call.option(1, "threshold", 0.0), call.option(2, "value", 0.0)
        return formula("tl.where({0} > {1}, {0}, {2})", value, least, other, like=call.dtype)
    if name == "celu":
        alpha = call.option(1, "alpha", 1.0)
        return formula("tl.where({0} > 0.0, {0}, {1} * libdevice.expm1({0} / {1}))", value, alpha, like=call.dtype)
    if name == "rrelu":
        slope = (call.option(1, "lower", 1 / 8) + call.option(2, "upper", 1 / 3)) / 2
        return formula("tl.where({0} >= 0.0, {0}, {0} * {1})", value, slope, like=call.dtype)
    bound = call.option(1, "lambd", 0.5)
    if name == "hardshrink":
        return formula("tl.where(tl.abs({0}) > {1}, {0}, 0.0)", value, bound, like=call.dtype)
    return formula("tl.where({0} > {1}, {0} - {1}, tl.where({0} < -{1}, {0} + {1}, 0.0))", value, bound, like=call.dtype)


def _is_special(call: NodeCall) -> Lowered:
    name, value = call.node.target.rpartition(".")[2], call.tensor(0, "input")
    test = {"isnan": "{0} != {0}", "isinf": 'tl.abs({0}) == float("inf")', "isfinite": 'tl.abs({0}) < float("inf")'}[name]
    return formula(test, value, like=value.dtype, result="bool")


TABLE: dict[str, Lower] = {
    **dict.fromkeys((*_PLAIN, "clone", *(f"nn.{name}" for name in ("SELU", "Mish", "LogSigmoid", "Tanhshrink", "PReLU"))), _lower_plain),
    **dict.fromkeys((*_COMPARISONS, "less", "less_equal", "greater", "greater_equal", "not_equal"), _compare),
    **dict.fromkeys(_LOGIC, _combine),
    "logical_not": _negate,
    **dict.fromkeys(("where", "masked_fill"), _choose),
    **dict.fromkeys(("to", "type", "type_as", *CASTS), _convert),
    **dict.fromkeys(("clone", "detach", "alias", "contiguous", "requires_grad", "conj"), _clone),
    **dict.fromkeys(_DROPOUTS, _keep),
    **dict.fromkeys(("addcmul", "addcdiv"), _add_scaled),
    **dict.fromkeys(("threshold", "celu", "rrelu", "hardshrink", "softshrink"), _shrink),
    **dict.fromkeys(("nn.Threshold", "nn.CELU", "nn.RReLU", "nn.Hardshrink", "nn.Softshrink"), _shrink),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), _is_special),
}
KNOWN: Lower = _lower_known
"""For the operations that all families know."""
