"""Elementwise operations: those of all families, comparisons, choices, conversions and whole numbers."""

from __future__ import annotations

import math
from typing import Any

from tritonsmith.author.compiler.ir.indices import Shape
from tritonsmith.author.compiler.ir.operators import A, Applied, B, C, Constant, D, Operand, Tree, drop_ones, replace_operands
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.spreads import spread
from tritonsmith.author.compiler.ir.torch_calls import Reshape
from tritonsmith.author.compiler.ir.values import FLOATS, Formula, Held, Item, LibraryCall, Tensor, TensorView, is_rounded, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.operations import OPERATIONS, read_operation
from tritonsmith.author.types import CASTS, PLAIN, TYPES, NumberKind, join_types
from tritonsmith.prompts.node_names import operation_name

_SELU = (1.6732632423543772, 1.0507009873554805)
_PLAIN: dict[str, tuple[Tree, int]] = {
    "selu": (_SELU[1] * Op.WHERE(A > 0.0, A, _SELU[0] * Op.EXPM1(A)), 1),
    "mish": (Op.MISH(A), 1),
    **dict.fromkeys(("logsigmoid", "log_sigmoid"), (Op.FMIN(A, 0.0) - Op.LOG1P(Op.FAST_EXP(-Op.ABS(A))), 1)),
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
    "prelu": (Op.WHERE(A > 0.0, A, A * B), 2),
}  # fmt: skip
"""Expressions over floating-point operands, and how many."""
_STEPPED = ("floor", "ceil", "trunc", "sign", "fmod", "remainder", "mod")
"""Those that take a step where a value crosses a number."""
_BOUNDED = ("clamp", "hardtanh", "maximum", "minimum")
"""Those that may give a number as it is, and so round it first."""
_WHOLE: dict[str, tuple[Tree, int]] = {
    "add": (A + B, 2), "sub": (A - B, 2), "mul": (A * B, 2), "neg": (-A, 1), "abs": (Op.ABS(A), 1),
    "maximum": (Op.FMAX(A, B), 2), "minimum": (Op.FMIN(A, B), 2), "square": (A * A, 1),
    "relu": (Op.FMAX(A, 0), 1), "bitwise_and": (A & B, 2), "bitwise_or": (A | B, 2), "bitwise_xor": (A ^ B, 2),
    "lshift": (A << B, 2), "rshift": (A >> B, 2),
    "clone": (A, 1), "sign": (Op.WHERE(A > 0, 1, Op.WHERE(A < 0, -1, 0)), 1),
    **dict.fromkeys(("floor", "ceil", "trunc"), (A, 1)),
}  # fmt: skip
"""Expressions over whole numbers."""
_QUOTIENTS = {
    **dict.fromkeys(("floordiv", "floor_divide"), Op.FLOOR_QUOTIENT(A, B)),
    **dict.fromkeys(("mod", "remainder"), Op.FLOOR_REMAINDER(A, B)),
    "trunc_divide": A // B, "fmod": A % B,
}  # fmt: skip
"""Quotients of whole numbers and what they leave; Triton rounds towards zero."""
_BY_POSITIVE = {
    **dict.fromkeys(("floordiv", "floor_divide"), A // B - Op.GROUP(Op.GROUP(A % B) < 0)),
    **dict.fromkeys(("mod", "remainder"), Op.GROUP(A % B) + Op.WHERE(Op.GROUP(A % B) < 0, B, 0)),
}  # fmt: skip
"""The same for a number above zero that is written out. No sum leaves the type: what is left is nearer to zero than the divisor."""
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
_EXACT = 8
"""Bits of a whole number that 16 bits of a float hold."""
_DROPOUTS = ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "nn.Dropout1d", "nn.Dropout2d",
             "nn.Dropout3d", "nn.AlphaDropout", "nn.FeatureAlphaDropout")  # fmt: skip


def to_constant(number: Any, dtype: str) -> Constant:
    """A number as torch puts it into a type."""
    if dtype == "bool":
        return Constant(bool(number), dtype)
    return Constant(float(number) if dtype in FLOATS else int(TYPES.get(dtype, TYPES["int64"]).round(int(number))), dtype)


def constant(number: Any, dtype: str, shape: Shape = ()) -> Formula:
    """A tensor whose elements are all one number."""
    return Formula(shape=shape, dtype=dtype, expression=to_constant(round_number(number, dtype), dtype), flops=0.0)


def cast(value: Tensor, dtype: str) -> Tensor:
    """The value in another type, rounded as that type is."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Formula) and value.number is not None and not isinstance(value.number, bool):
        return constant(TYPES[value.dtype].round(value.number), dtype, value.shape)  # no wider type gives digits back
    tree: Tree = A
    whole = TYPES[value.dtype].is_float and not TYPES[dtype].is_float
    if whole or dtype == "bool":
        value = settle(value)
    if dtype == "bool":
        tree = Op.NE(A, 0)
    elif whole and TYPES[dtype].bits < 32:  # begins again at the other end, as what PyTorch runs does; Triton says nothing of it
        tree = A.to("int64" if TYPES[dtype].kind is NumberKind.UNSIGNED else "int32").to(dtype)
    elif widen(dtype) != dtype:
        tree = A.to(dtype).to(widen(dtype))
    elif widen(dtype) != widen(value.dtype):
        tree = A.to(widen(dtype))
    return spread(Formula(shape=value.shape, dtype=dtype, expression=tree, inputs=(value,), flops=0.0))


def settle(value: Tensor) -> Tensor:
    """The value as its type holds it: what 16 bits round away must not reach a comparison, or a function with steps."""
    source = value
    while isinstance(source, TensorView):
        source = source.source
    if widen(value.dtype) == value.dtype or isinstance(source, Held | LibraryCall | Item) or is_rounded(source):
        return value
    tree = A.to(value.dtype).to(widen(value.dtype))
    return spread(Formula(shape=value.shape, dtype=value.dtype, expression=tree, inputs=(value,), flops=0.0))


def formula_of_settled(tree: Tree, *operands: Any, like: str, shape: Shape | None = None, result: str = "") -> Tensor:
    """As `formula`, of operands as their type holds them: tensors of 16 bits and numbers are rounded first."""
    settled = [_settle_as(one, like) if isinstance(one, Tensor) else round_number(one, like) for one in operands]
    return formula(tree, *settled, like=like, shape=shape, result=result)


def _settle_as(value: Tensor, dtype: str) -> Tensor:
    """The value as another type holds it, where PyTorch brings it into that: one number beside a tensor of 16 bits."""
    value = settle(value)
    return cast(value, dtype) if value.dtype != dtype and widen(dtype) != dtype else value


def round_number(number: Any, dtype: str) -> Any:
    """A number as the type of what it meets holds it."""
    return TYPES[dtype].round(number) if isinstance(number, int | float) and widen(dtype) != dtype else number


def formula(tree: Tree, *operands: Any, like: str, shape: Shape | None = None, result: str = "") -> Tensor:
    """An elementwise value of tensors and numbers, which are brought to type `like` first; of a stack, a stack.

    Args:
        tree: what is done: `A * B` multiplies the first operand by the second.
        operands: tensors and numbers, in the order of `A`, `B`, `C` and so on.
        like: the type in which they meet.
        shape: of the result; None: the one to which the operands broadcast.
        result: the type of the result; empty: `like`.

    Raises NotCovered where shapes do not broadcast.
    """
    return spread(make_formula(tree, *operands, like=like, shape=shape, result=result))


def make_formula(tree: Tree, *operands: Any, like: str, shape: Shape | None = None, result: str = "") -> Formula:
    """The same as one value, whatever it is made of."""
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


def bring(value: Tensor, dtype: str) -> Tensor:
    """An operand for arithmetic in the type of the result, to whose 16 bits PyTorch rounds what is of another type."""
    other = value.dtype != dtype and (value.dtype in FLOATS or TYPES[value.dtype].bits > _EXACT)
    return cast(value, dtype) if other and widen(dtype) != dtype else as_type(value, dtype)


def broadcast(*shapes: Shape) -> Shape:
    """The shape to which shapes broadcast. Raises NotCovered where they do not."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    found = tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))
    if any(size not in (1, whole) for shape in padded for size, whole in zip(shape, found, strict=True)):
        raise NotCovered("of shapes that do not broadcast")
    return found


def common_type(*operands: Any) -> str:
    """The type in which tensors and numbers meet, as torch promotes them: a tensor without axes counts only as a number of its kind."""
    tensors = [one for one in operands if isinstance(one, Tensor) and not (isinstance(one, Held) and one.number)]
    shaped, single = [one.dtype for one in tensors if one.shape], [one.dtype for one in tensors if not one.shape]
    dtypes = shaped or single
    if shaped and single and _rank_kind(join_types(single)) > _rank_kind(join_types(shaped)):
        dtypes = single
    fraction = any(isinstance(one, float) for one in operands) and not any(one in FLOATS for one in dtypes)
    return PLAIN if fraction else join_types(dtypes)


def _rank_kind(dtype: str) -> int:
    """Truths, whole numbers, floats: a higher kind decides the type, whatever the axes."""
    return 2 if dtype in FLOATS else int(dtype != "bool")


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
    if name == "softsign" and operands[0].dtype not in FLOATS:
        raise NotCovered(f"on {operands[0].dtype}")  # in which PyTorch adds the one
    leaves: dict[str, Tree] = {}
    inputs: list[Tensor] = []
    references = [one["ref"] for one in (*call.node.args, *call.node.kwargs.values()) if isinstance(one, dict) and "ref" in one]
    given = [*call.args, *call.kwargs.values()]
    raw = [*call.node.args, *call.node.kwargs.values()]
    for reference, value in ((one["ref"], given[place]) for place, one in enumerate(raw) if isinstance(one, dict) and "ref" in one):
        if isinstance(value, Tensor) and reference not in leaves:
            leaves[reference] = Operand(len(inputs))
            inputs.append(bring(value, call.dtype))
        elif not isinstance(value, Tensor):
            leaves[reference] = to_constant(value, call.dtype)
    assert len(leaves) == len(set(references))
    try:
        tree = read_operation(call.node, name, leaves)
    except ValueError as error:
        if name != "pow":
            raise NotCovered(str(error)) from None
        tree = make_formula(Op.POW(A, B), *call.args[:2], like=call.dtype).expression
    if name in _BOUNDED:
        tree = _round_numbers(tree, call.dtype)
    flops = OPERATIONS[name].flops
    return spread(Formula(shape=call.shape, dtype=call.dtype, expression=drop_ones(tree), inputs=tuple(inputs), flops=flops))


def _round_numbers(tree: Tree, dtype: str) -> Tree:
    """The tree with its numbers as a type holds them."""
    if isinstance(tree, Constant):
        return Constant(round_number(tree.value, dtype), tree.dtype)
    return Applied(tree.operator, tuple(_round_numbers(one, dtype) for one in tree.arguments)) if isinstance(tree, Applied) else tree


def _lower_whole(call: NodeCall, name: str, operands: list[Tensor]) -> Lowered:
    """An operation on whole numbers."""
    if name == "clamp":
        value, least, most = operands[0], call.option(1, "min", None), call.option(2, "max", None)
        if len(operands) > 1:
            raise NotCovered("between tensors")
        if least is not None:
            value = formula(Op.FMAX(A, B), value, least, like=call.dtype)
        return value if most is None else formula(Op.FMIN(A, B), value, most, like=call.dtype)
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
    tree = _QUOTIENTS[name]
    if not isinstance(right, Tensor):
        number = int(TYPES[call.dtype].round(right))
        if not number:
            raise NotCovered("by zero")
        if number > 0 and TYPES[call.dtype].kind is NumberKind.UNSIGNED:
            tree = A % B if name in ("mod", "remainder", "fmod") else A // B
        elif number > 0:
            tree = _BY_POSITIVE.get(name, tree)
    else:  # 0 is what a program reads beyond the edge
        right = formula(Op.WHERE(Op.EQ(A, 0), 1, A), right, like=call.dtype)
        right.name = "divisor"
    return formula(tree, left, right, like=call.dtype, shape=call.shape)


def _lower_plain(call: NodeCall) -> Lowered:
    """An operation of this file's tables."""
    name = call.node.module_type.lower() if call.node.op == "call_module" else call.node.target.rpartition(".")[2].rstrip("_")
    name = _LONG.get(name, name)
    if call.dtype not in FLOATS:
        return _lower_whole(call, name, [one for one in call.args if isinstance(one, Tensor)])
    tree, number = _PLAIN[name]
    operands = [*call.args, *call.kwargs.values()][:number]
    if name in ("floordiv", "floor_divide"):  # PyTorch divides by the number itself
        return formula(tree, *(settle(one) if isinstance(one, Tensor) else one for one in operands), like=call.dtype, shape=call.shape)
    if name in _STEPPED:
        return formula_of_settled(tree, *operands, like=call.dtype, shape=call.shape)
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
        shape=shape, dtype=weight.dtype, source=weight, move=lambda at: at[:1], shown=Reshape(shape)
    ) if rank > 2 else weight


def _compare(call: NodeCall) -> Lowered:
    name = call.node.target.rpartition(".")[2].rstrip("_")
    left, right = call.get(0, "input", "self"), call.get(1, "other")
    tree = _COMPARISONS[_LONG.get(name, name)](A, B)
    return formula_of_settled(tree, left, right, like=common_type(left, right), shape=call.shape, result="bool")


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


def select(condition: Tensor, yes: Any, no: Any, call: NodeCall) -> Tensor:
    """One value where a condition holds, another one elsewhere."""
    return select_where(condition, yes, no, call.dtype, call.shape)


def select_where(condition: Tensor, yes: Any, no: Any, dtype: str, shape: Shape) -> Tensor:
    """The same in a type and a shape."""
    yes, no = (one if isinstance(one, Tensor) else round_number(one, dtype) for one in (yes, no))
    chosen = make_formula(Op.WHERE(C, A, B), yes, no, True, like=dtype, shape=shape)
    assert isinstance(chosen.expression, Applied)
    tree = Op.WHERE(Operand(len(chosen.inputs)), *chosen.expression.arguments[1:])
    return spread(Formula(shape=shape, dtype=dtype, expression=tree, inputs=(*chosen.inputs, cast(condition, "bool"))))


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
    name = (call.node.module_type or call.node.target.rpartition(".")[2]).lower().strip("_")
    value = call.tensor(0, "input")
    if name == "threshold":
        least, other = call.option(1, "threshold", 0.0), call.option(2, "value", 0.0)
        if round_number(least, call.dtype) != least:  # PyTorch compares with the number itself, or with the rounded one, by device
            raise NotCovered(f"of {least} on {call.dtype}")
        return formula_of_settled(Op.WHERE(A <= B, C, A), value, least, other, like=call.dtype)
    if name == "celu":
        alpha = call.option(1, "alpha", 1.0)
        return formula(Op.WHERE(A > 0.0, A, B * Op.EXPM1(A / B)), value, alpha, like=call.dtype)
    if name == "rrelu":
        if call.training if call.node.op == "call_module" else call.get(3, "training", default=False):
            raise NotCovered("while training")
        slope = (call.option(1, "lower", 1 / 8) + call.option(2, "upper", 1 / 3)) / 2
        return formula(Op.WHERE(A >= 0.0, A, A * B), value, slope, like=call.dtype)
    bound = call.option(1, "lambd", 0.5)
    if name == "hardshrink":
        return formula_of_settled(Op.WHERE(Op.ABS(A) <= B, 0.0, A), value, bound, like=call.dtype)
    return formula(Op.WHERE(A > B, A - B, Op.WHERE(A < -B, A + B, A * 0.0)), value, bound, like=call.dtype)


def _is_special(call: NodeCall) -> Lowered:
    name, value = call.node.target.rpartition(".")[2], call.tensor(0, "input")
    test = {"isnan": Op.NE(A, A), "isinf": Op.EQ(Op.ABS(A), math.inf), "isfinite": Op.ABS(A) < math.inf}[name]
    return formula_of_settled(test, value, like=value.dtype, result="bool")


def _interpolate(call: NodeCall) -> Lowered:
    """`lerp`: from the end that is nearer, as PyTorch does."""
    left, right, weight = call.get(0, "input", "self"), call.get(1, "end"), call.get(2, "weight")
    near, far = A + C * (B - A), B - (B - A) * (1.0 - C)
    if isinstance(weight, Tensor):
        tree: Tree = Op.WHERE(Op.ABS(C) < 0.5, near, far)
    else:
        tree, weight = (near, weight) if abs(weight) < 0.5 else (B - (B - A) * C, 1.0 - weight)
    return formula(tree, left, right, weight, like=call.dtype, shape=call.shape)


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
    **dict.fromkeys(("threshold", "_threshold", "celu", "rrelu", "hardshrink", "softshrink"), _shrink), "lerp": _interpolate,
    **dict.fromkeys(("nn.Threshold", "nn.CELU", "nn.RReLU", "nn.Hardshrink", "nn.Softshrink"), _shrink),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), _is_special),
}
KNOWN: Lower = _lower_known
"""For the operations that all families know."""
