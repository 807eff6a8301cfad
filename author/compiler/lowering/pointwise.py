"""Elementwise operations: those of all families, comparisons, choices, conversions and whole numbers."""

from __future__ import annotations

import math
from typing import Any

from tritonsmith.author.compiler.ir.indices import Shape
from tritonsmith.author.compiler.ir.operators import A, Applied, B, C, Constant, D, Operand, Tree, drop_ones, replace_operands, write
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.values import FLOATS, Formula, Held, Tensor, TensorView, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.operations import OPERATIONS, read_operation
from tritonsmith.author.types import CASTS, PLAIN, TYPES, WHOLE, join_types
from tritonsmith.prompts.node_names import operation_name

_SELU = (1.6732632423543772, 1.0507009873554805)
_PLAIN: dict[str, tuple[Tree, int]] = {
    "selu": (_SELU[1] * Op.WHERE(A > 0.0, A, _SELU[0] * Op.EXPM1(A)), 1),
    "mish": (Op.MISH(A), 1),
    "logsigmoid": (Op.MINIMUM(A, 0.0) - Op.LOG1P(Op.FAST_EXP(-Op.ABS(A))), 1),
    "log_sigmoid": (Op.MINIMUM(A, 0.0) - Op.LOG1P(Op.FAST_EXP(-Op.ABS(A))), 1),
    "tanhshrink": (A - Op.TANH(A), 1),
    "exp2": (Op.EXP2(A), 1), "log2": (Op.LOG2(A), 1), "log10": (Op.LOG10(A), 1),
    "log1p": (Op.LOG1P(A), 1), "expm1": (Op.EXPM1(A), 1),
    "tan": (Op.TAN(A), 1), "sinh": (Op.SINH(A), 1), "cosh": (Op.COSH(A), 1),
    "asin": (Op.ASIN(A), 1), "acos": (Op.ACOS(A), 1), "atan": (Op.ATAN(A), 1),
    "arctan": (Op.ATAN(A), 1), "erfc": (Op.ERFC(A), 1),
    "floor": (Op.FLOOR(A), 1), "ceil": (Op.CEIL(A), 1), "trunc": (Op.TRUNC(A), 1),
    "sign": (Op.WHERE(A > 0.0, 1.0, Op.WHERE(A < 0.0, -1.0, 0.0)), 1),
    "atan2": (Op.ATAN2(A, B), 2), "hypot": (Op.HYPOT(A, B), 2), "fmod": (Op.FMOD(A, B), 2),
    **dict.fromkeys(("remainder", "mod"), (Op.REAL_REMAINDER(A, B), 2)),
    **dict.fromkeys(("floordiv", "floor_divide"), (Op.REAL_QUOTIENT(A, B), 2)),
    "lerp": (A + C * (B - A), 3), "prelu": (Op.WHERE(A > 0.0, A, A * B), 2),
}  # fmt: skip
"""Expressions over floating-point operands, and how many."""
_WHOLE: dict[str, tuple[Tree, int]] = {
    "add": (A + B, 2), "sub": (A - B, 2), "mul": (A * B, 2), "neg": (-A, 1), "abs": (Op.ABS(A), 1),
    "maximum": (Op.MAXIMUM(A, B), 2), "minimum": (Op.MINIMUM(A, B), 2), "square": (A * A, 1),
    "relu": (Op.MAXIMUM(A, 0), 1), "bitwise_and": (A & B, 2), "bitwise_or": (A | B, 2), "bitwise_xor": (A ^ B, 2),
    "lshift": (A << B, 2), "rshift": (A >> B, 2),
    "clone": (A, 1), "sign": (Op.WHERE(A > 0, 1, Op.WHERE(A < 0, -1, 0)), 1),
    **dict.fromkeys(("floor", "ceil", "trunc"), (A, 1)),
}  # fmt: skip
"""Expressions over whole numbers."""
_QUOTIENTS = {
    **dict.fromkeys(("floordiv", "floor_divide"), (Op.FLOOR_QUOTIENT(A, B), (A - (Op.GROUP(A % B) + B) % B) // B)),
    **dict.fromkeys(("mod", "remainder"), (Op.FLOOR_REMAINDER(A, B), (Op.GROUP(A % B) + B) % B)),
    "trunc_divide": (A // B, A // B), "fmod": (A % B, A % B),
}  # fmt: skip
"""Quotients of whole numbers and what they leave, for any divisor and for a number that is written out; Triton rounds towards zero."""
_WIDE = tuple(name for name in WHOLE if TYPES[name].bits >= 32)
"""Types in which a remainder and a divisor that is written out add up."""
_TRUTHS = {"mul": A & B, "add": A | B, "maximum": A | B, "minimum": A & B}
"""Arithmetic of truths."""
_COMPARISONS = {"eq": Op.EQ, "ne": Op.NE, "lt": Op.LT, "le": Op.LE, "gt": Op.GT, "ge": Op.GE}
_LOGIC = {
    "logical_and": Op.AND,
    "logical_or": Op.OR,
    "logical_xor": Op.XOR,
    "and_": Op.AND,
    "or_": Op.OR,
    "xor": Op.XOR,
    "bitwise_and": Op.AND,
    "bitwise_or": Op.OR,
    "iand": Op.AND,
    "ior": Op.OR,
    "ixor": Op.XOR,
}
_LONG = {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "not_equal": "ne", "and_": "bitwise_and",
         "or_": "bitwise_or", "xor": "bitwise_xor", "LogSigmoid": "logsigmoid", "arcsin": "asin", "arccos": "acos"}  # fmt: skip
_DROPOUTS = ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "nn.Dropout1d", "nn.Dropout2d",
             "nn.Dropout3d", "nn.AlphaDropout", "nn.FeatureAlphaDropout")  # fmt: skip


def write_number(number: Any, dtype: str) -> str:
    """A number as Triton writes it among values of a type."""
    return print_expression(write(to_constant(number, dtype), ()))


def to_constant(number: Any, dtype: str) -> Constant:
    """A number as torch puts it into a type."""
    if dtype == "bool":
        return Constant(bool(number), dtype)
    return Constant(float(number) if dtype in FLOATS else int(TYPES.get(dtype, TYPES["int64"]).round(int(number))), dtype)


def constant(number: Any, dtype: str, shape: Shape = ()) -> Formula:
    """A tensor whose elements are all one number."""
    return Formula(shape=shape, dtype=dtype, expression=to_constant(number, dtype), flops=0.0)


def cast(value: Tensor, dtype: str) -> Tensor:
    """The value in another type, rounded as that type is."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Formula) and value.number is not None and not isinstance(value.number, bool):
        return constant(value.number, dtype, value.shape)
    tree: Tree = A
    if dtype == "bool":
        tree = Op.NE(A, 0)
    elif widen(dtype) != dtype:
        tree = A.to(dtype).to(widen(dtype))
    elif widen(dtype) != widen(value.dtype):
        tree = A.to(widen(dtype))
    return Formula(shape=value.shape, dtype=dtype, expression=tree, inputs=(value,), flops=0.0)


def formula(tree: Tree, *operands: Any, like: str, shape: Shape | None = None, result: str = "") -> Formula:
    """An elementwise value of tensors and numbers, which are brought to type `like` first.

    Args:
        tree: what is done: `A * B` multiplies the first operand by the second.
        operands: tensors and numbers, in the order of `A`, `B`, `C` and so on.
        like: the type in which they meet.
        shape: of the result; None: the one to which the operands broadcast.
        result: the type of the result; empty: `like`.

    Raises NotCovered where shapes do not broadcast.
    """
    inputs: list[Tensor] = []
    leaves: list[Tree] = []
    for operand in operands:
        if isinstance(operand, Tensor):
            leaves.append(Operand(len(inputs)))
            inputs.append(as_type(operand, like))
        else:
            leaves.append(to_constant(operand, like))
    shape = broadcast(*(one.shape for one in inputs)) if shape is None else shape
    return Formula(shape=shape, dtype=result or like, expression=replace_operands(tree, leaves), inputs=tuple(inputs))


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
    leaves: dict[str, Tree] = {}
    inputs: list[Tensor] = []
    references = [one["ref"] for one in (*call.node.args, *call.node.kwargs.values()) if isinstance(one, dict) and "ref" in one]
    given = [*call.args, *call.kwargs.values()]
    raw = [*call.node.args, *call.node.kwargs.values()]
    for reference, value in ((one["ref"], given[place]) for place, one in enumerate(raw) if isinstance(one, dict) and "ref" in one):
        if isinstance(value, Tensor) and reference not in leaves:
            leaves[reference] = Operand(len(inputs))
            inputs.append(as_type(value, call.dtype))
        elif not isinstance(value, Tensor):
            leaves[reference] = to_constant(value, call.dtype)
    assert len(leaves) == len(set(references))
    try:
        tree = read_operation(call.node, name, leaves)
    except ValueError as error:
        if name != "pow":
            raise NotCovered(str(error)) from None
        tree = formula(Op.POW(A, B), *call.args[:2], like=call.dtype).expression
    flops = OPERATIONS[name].flops
    return Formula(shape=call.shape, dtype=call.dtype, expression=drop_ones(tree), inputs=tuple(inputs), flops=flops)


def _lower_whole(call: NodeCall, name: str, operands: list[Tensor]) -> Lowered:
    """An operation on whole numbers."""
    if name == "clamp":
        value, least, most = operands[0], call.option(1, "min", None), call.option(2, "max", None)
        if len(operands) > 1:
            raise NotCovered("between tensors")
        if least is not None:
            value = formula(Op.MAXIMUM(A, B), value, least, like=call.dtype)
        return value if most is None else formula(Op.MINIMUM(A, B), value, most, like=call.dtype)
    if call.dtype == "bool" and name in _TRUTHS and all(one.dtype == "bool" for one in operands) and len(operands) > 1:
        return formula(_TRUTHS[name], *operands[:2], like="bool", shape=call.shape)
    if name in _QUOTIENTS and call.dtype != "bool":
        return divide_whole(name, call.get(0, "input", "self"), call.get(1, "other"), call)
    if name not in _WHOLE or call.dtype == "bool" or call.get(-1, "alpha", default=1) != 1:
        raise NotCovered(f"on {call.dtype}")
    tree, number = _WHOLE[name]
    return formula(tree, *call.args[:number], like=call.dtype, shape=call.shape)


def divide_whole(name: str, left: Any, right: Any, call: NodeCall) -> Tensor:
    """A quotient of whole numbers or what it leaves."""
    general, plain = _QUOTIENTS[name]
    written = not isinstance(right, Tensor)
    if not written:  # 0 is what a program reads beyond the edge
        right = formula(Op.WHERE(Op.EQ(A, 0), 1, A), right, like=call.dtype)
        right.name = "divisor"
    return formula(plain if written and call.dtype in _WIDE else general, left, right, like=call.dtype, shape=call.shape)


def _lower_plain(call: NodeCall) -> Lowered:
    """An operation of this file's tables."""
    name = call.node.module_type.lower() if call.node.op == "call_module" else call.node.target.rpartition(".")[2].rstrip("_")
    name = _LONG.get(name, name)
    if call.dtype not in FLOATS:
        return _lower_whole(call, name, [one for one in call.args if isinstance(one, Tensor)])
    tree, number = _PLAIN[name]
    operands = [*call.args, *call.kwargs.values()][:number]
    if name == "prelu":
        weight = call.weight(1, "weight")
        assert weight is not None
        if not call.shape:
            raise NotCovered("of a single number")  # its weight has an axis more
        if weight.size > 1:
            weight = _widen_channels(weight, len(call.shape))
        operands = [call.tensor(0, "input"), weight]
    if len(operands) < number:
        raise NotCovered(f"with {len(operands)} operands")
    return formula(tree, *operands, like=call.dtype, shape=call.shape)


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
        _COMPARISONS[_LONG.get(name, name)](A, B), left, right, like=common_type(left, right), shape=call.shape, result="bool"
    )


def _combine(call: NodeCall) -> Lowered:
    name = call.node.target.rpartition(".")[2]
    name = name if name in _LOGIC else name.rstrip("_")
    left, right = call.get(0, "input", "self"), call.get(1, "other")
    like = "bool" if call.dtype == "bool" else call.dtype
    return formula(_LOGIC[name](A, B), left, right, like=like, shape=call.shape)


def _negate(call: NodeCall) -> Lowered:
    value = call.tensor(0, "input")
    if call.dtype != "bool":
        raise NotCovered(f"on {call.dtype}")
    return formula(Op.EQ(A, 0) if value.dtype != "bool" else ~A, value, like=value.dtype, result="bool")


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
    chosen = formula(Op.WHERE(C, A, B), yes, no, True, like=dtype, shape=shape)
    assert isinstance(chosen.expression, Applied)
    tree = Op.WHERE(Operand(len(chosen.inputs)), *chosen.expression.arguments[1:])
    return Formula(shape=shape, dtype=dtype, expression=tree, inputs=(*chosen.inputs, cast(condition, "bool")))


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
    inner = B * C if "mul" in call.node.target else B / C
    factor = call.kwargs.get("value", 1)
    return formula(A + D * Op.GROUP(inner), *call.args[:3], factor, like=call.dtype, shape=call.shape)


def _shrink(call: NodeCall) -> Lowered:
    """Functions with a threshold of their own."""
    name = (call.node.module_type or call.node.target.rpartition(".")[2]).lower().rstrip("_")
    value = call.tensor(0, "input")
    if name == "threshold":
        least, other = call.option(1, "threshold", 0.0), call.option(2, "value", 0.0)
        return formula(Op.WHERE(A > B, A, C), value, least, other, like=call.dtype)
    if name == "celu":
        alpha = call.option(1, "alpha", 1.0)
        return formula(Op.WHERE(A > 0.0, A, B * Op.EXPM1(A / B)), value, alpha, like=call.dtype)
    if name == "rrelu":
        slope = (call.option(1, "lower", 1 / 8) + call.option(2, "upper", 1 / 3)) / 2
        return formula(Op.WHERE(A >= 0.0, A, A * B), value, slope, like=call.dtype)
    bound = call.option(1, "lambd", 0.5)
    if name == "hardshrink":
        return formula(Op.WHERE(Op.ABS(A) > B, A, 0.0), value, bound, like=call.dtype)
    return formula(Op.WHERE(A > B, A - B, Op.WHERE(A < -B, A + B, 0.0)), value, bound, like=call.dtype)


def _is_special(call: NodeCall) -> Lowered:
    name, value = call.node.target.rpartition(".")[2], call.tensor(0, "input")
    test = {"isnan": Op.NE(A, A), "isinf": Op.EQ(Op.ABS(A), math.inf), "isfinite": Op.ABS(A) < math.inf}[name]
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
