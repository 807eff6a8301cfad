"""Elementwise functions beyond the ordinary ones: special functions, quotients that are rounded, bounds that are tensors."""

from __future__ import annotations

import math
from typing import Any

from tritonsmith.author.compiler.ir.operators import A, B, C, D, Tree, Type, chain
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import FLOATS, Tensor, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import (
    KNOWN,
    bring,
    common_type,
    constant,
    divide_whole,
    formula,
    formula_of_settled,
    round_number,
    settle,
)
from tritonsmith.author.types import TYPES, NumberKind

_LOGARITHM = Op.WHERE(Op.EQ(A, B), A + 0.6931471805599453, Op.MAXIMUM(A, B) + Op.LOG1P(Op.FAST_EXP(-Op.ABS(A - B))))
"""Two infinities of one sign have no distance."""
_SPECIAL: dict[str, tuple[Tree, int]] = {
    "frac": (A - Op.TRUNC(A), 1), "fix": (Op.TRUNC(A), 1),
    "asinh": (Op.ASINH(A), 1), "acosh": (Op.ACOSH(A), 1), "atanh": (Op.ATANH(A), 1),
    "arcsinh": (Op.ASINH(A), 1), "arccosh": (Op.ACOSH(A), 1), "arctanh": (Op.ATANH(A), 1),
    "lgamma": (Op.LGAMMA(A), 1), "gammaln": (Op.LGAMMA(A), 1),
    "erfinv": (Op.ERFINV(A), 1), "expit": (Op.SIGMOID(A), 1), "erfcx": (Op.ERFCX(A), 1),
    "i0": (Op.BESSEL_I0(A), 1), "i1": (Op.BESSEL_I1(A), 1),
    "entr": (Op.WHERE(A > 0.0, -A * Op.LOG(A), Op.WHERE(Op.EQ(A, 0.0), 0.0, Op.WHERE(A < 0.0, -math.inf, A))), 1),
    "sinc": (Op.WHERE(Op.EQ(A, 0.0), 1.0, Op.SIN(A * math.pi) / (A * math.pi)), 1),
    "deg2rad": (A * (math.pi / 180), 1), "rad2deg": (A * (180 / math.pi), 1),
    "positive": (A, 1), "sgn": (Op.WHERE(A > 0.0, 1.0, Op.WHERE(A < 0.0, -1.0, 0.0)), 1),
    "copysign": (Op.COPYSIGN(A, B), 2), "nextafter": (Op.NEXTAFTER(A, B), 2),
    "heaviside": (Op.WHERE(Op.EQ(A, 0.0), B, Op.WHERE(A > 0.0, 1.0, 0.0)), 2),
    "xlogy": (Op.WHERE(Op.EQ(A, 0.0) & Op.EQ(B, B), 0.0, A * Op.LOG(B)), 2),
    "xlog1py": (Op.WHERE(Op.EQ(A, 0.0) & Op.EQ(B, B), 0.0, A * Op.LOG1P(B)), 2),
    "logaddexp": (_LOGARITHM, 2), "fmax": (Op.FMAX(A, B), 2), "fmin": (Op.FMIN(A, B), 2),
    "logaddexp2": (
        Op.WHERE(Op.EQ(A, B), A + 1.0, Op.MAXIMUM(A, B) + Op.LOG1P(Op.EXP2(-Op.ABS(A - B))) * (1 / math.log(2))), 2,
    ),
}  # fmt: skip
"""Expressions over floating-point operands, and how many."""
_STEPPED = ("frac", "fix", "sgn", "heaviside")
"""Those that take a step where a value crosses a number."""
_MOST_FACTORS = 8
"""Of a power that is a product."""
_TESTS = {"isposinf": Op.EQ(A, math.inf), "isneginf": Op.EQ(A, -math.inf)}


def _apply(call: NodeCall) -> Lowered:
    """A function of the table."""
    name = call.node.target.rpartition(".")[2].rstrip("_")
    tree, number = _SPECIAL[name]
    operands = [*call.args, *call.kwargs.values()][:number]
    if call.dtype not in FLOATS or len(operands) < number:
        raise NotCovered(f"on {call.dtype}")
    if name == "nextafter" and widen(call.dtype) != call.dtype:  # the next number of fp32 is not that of 16 bits
        raise NotCovered(f"on {call.dtype}")
    if name in _STEPPED:
        return formula_of_settled(tree, *operands, like=call.dtype, shape=call.shape)
    return formula(tree, *operands, like=call.dtype, shape=call.shape)


def _test(call: NodeCall) -> Lowered:
    value = call.tensor(0, "input", "self")
    name = call.node.target.rpartition(".")[2]
    if name == "isreal":
        return constant(True, "bool", value.shape)
    if name == "signbit":
        return _read_sign(value)
    if value.dtype not in FLOATS:
        return constant(False, "bool", value.shape)
    return formula_of_settled(_TESTS[name], value, like=value.dtype, result="bool")


def _read_sign(value: Tensor) -> Tensor:
    """Whether a value has a sign: -0.0 has one, and NaN may."""
    if value.dtype not in FLOATS:
        return formula(A < 0, value, like=value.dtype, result="bool")
    return formula(Op.BITS(A, Type("int64" if value.dtype == "float64" else "int32")) < 0, settle(value), like=value.dtype, result="bool")


def _divide(call: NodeCall) -> Lowered:
    """`div` with a quotient that is rounded down or towards zero."""
    mode = call.kwargs.get("rounding_mode", call.args[2] if len(call.args) > 2 else None)
    left, right = call.get(0, "input", "self"), call.get(1, "other")
    whole = call.dtype not in FLOATS
    if mode not in ("floor", "trunc") or (whole and call.dtype == "bool"):
        raise NotCovered(f"with rounding_mode={mode}")
    if whole:
        return divide_whole("floor_divide" if mode == "floor" else "trunc_divide", left, right, call)
    left, right = (settle(one) if isinstance(one, Tensor) else one for one in (left, right))
    if mode == "floor":
        return formula(Op.REAL_QUOTIENT(A, B), left, right, like=call.dtype, shape=call.shape)
    quotient = settle(formula(A / B, left, right, like=call.dtype, shape=call.shape))
    return formula(Op.TRUNC(A), quotient, like=call.dtype, shape=call.shape)


def _bound(call: NodeCall) -> Lowered:
    """`clamp` and its kin, with bounds that are numbers or tensors."""
    name, value = call.node.target.rpartition(".")[2], call.tensor(0, "input", "self")
    least, most = call.get(1, "min", default=None), call.get(2, "max", default=None)
    if name.startswith("clamp_m"):
        bound = call.get(1, "min", "max")
        least, most = (bound, None) if "min" in name else (None, bound)
    found: Tensor = value
    larger, smaller = (Op.MAXIMUM, Op.MINIMUM) if call.dtype in FLOATS else (Op.FMAX, Op.FMIN)
    for bound, text in ((least, larger(A, B)), (most, smaller(A, B))):
        if bound is not None:
            found = formula(text, found, _as_bound(bound, call.dtype), like=call.dtype, shape=call.shape)
    return found


def _as_bound(bound: Any, dtype: str) -> Any:
    if isinstance(bound, Tensor):
        return bound
    bound = float(bound["float"]) if isinstance(bound, dict) and "float" in bound else bound
    bound = round_number(bound, dtype)
    if dtype not in FLOATS and (not isinstance(bound, int) or isinstance(bound, bool)):
        raise NotCovered(f"between {bound} on {dtype}")
    return bound


def _scale_by_power(call: NodeCall) -> Lowered:
    """`ldexp`: times a power of two that is rounded to the type of its exponent, and so may be 0 or infinite."""
    value, exponent = call.tensor(0, "input", "self"), call.tensor(1, "other")
    dtype = exponent.dtype if exponent.dtype in FLOATS else "float32"
    power = settle(formula(Op.EXP2(A), exponent, like=dtype))
    return formula(A * B, value, power, like=call.dtype, shape=call.shape)


def _invert(call: NodeCall) -> Lowered:
    """`~` of whole numbers, of which every bit is turned."""
    value = call.tensor(0, "input", "self")
    if call.dtype == "bool" or call.dtype in FLOATS:
        return formula(Op.EQ(A, 0) if value.dtype != "bool" else ~A, value, like=value.dtype, result="bool")
    row = TYPES[call.dtype]
    return formula(A ^ int(row.largest) if row.kind is NumberKind.UNSIGNED else ~A, value, like=call.dtype)


def _shift(call: NodeCall) -> Lowered:
    tree = A << B if "left" in call.node.target or "lshift" in call.node.target else A >> B
    return formula(tree, call.get(0, "input", "self"), call.get(1, "other"), like=call.dtype, shape=call.shape)


def _replace_special(call: NodeCall) -> Lowered:
    """`nan_to_num`: numbers in place of what is none."""
    value, dtype = call.tensor(0, "input", "self"), call.dtype
    if dtype not in FLOATS:
        return value
    largest = TYPES[dtype].largest
    given = [call.get(place, name, default=None) for place, name in enumerate(("nan", "posinf", "neginf"), 1)]
    nan, high, low = (plain if one is None else one for one, plain in zip(given, (0.0, largest, -largest), strict=True))
    text = Op.WHERE(Op.NE(A, A), B, Op.WHERE(Op.EQ(A, math.inf), C, Op.WHERE(Op.EQ(A, -math.inf), D, A)))
    return formula_of_settled(text, value, nan, high, low, like=dtype)


def _unsquash(call: NodeCall) -> Lowered:
    """`logit`, of values that `eps` keeps off 0 and 1."""
    value, eps = call.tensor(0, "input", "self"), call.get(1, "eps", default=None)
    if eps is not None:
        value = formula(Op.MINIMUM(Op.MAXIMUM(A, B), C), value, eps, 1 - eps, like=call.dtype)
    return formula(Op.LOG(A / (1.0 - A)), value, like=call.dtype)


def _subtract_from(call: NodeCall) -> Lowered:
    """`rsub`: what is given second minus the first."""
    factor, other = call.get(2, "alpha", default=1), call.get(1, "other")
    given = (bring(one, call.dtype) if isinstance(one, Tensor) else one for one in (call.tensor(0, "input"), other))
    return formula(B - C * A, *given, factor, like=call.dtype, shape=call.shape)


def _compare_nearly(call: NodeCall) -> Lowered:
    """`isclose`."""
    left, right = call.tensor(0, "input"), call.tensor(1, "other")
    like = common_type(left, right)
    if like not in FLOATS:
        raise NotCovered(f"on {like}")
    relative, absolute = call.get(2, "rtol", default=1e-5), call.get(3, "atol", default=1e-8)
    rounded = (lambda tree: tree) if widen(like) == like else lambda tree: Op.GROUP(tree).to(like).to(widen(like))
    apart = Op.ABS(rounded(A - B))
    text = Op.EQ(A, B) | ((apart <= rounded(D + rounded(C * Op.ABS(B)))) & (apart < math.inf))
    if call.get(4, "equal_nan", default=False):
        text = text | (Op.NE(A, A) & Op.NE(B, B))
    return formula(text, settle(left), settle(right), relative, absolute, like=like, shape=call.shape, result="bool")


def _round(call: NodeCall) -> Lowered:
    """`round`, to whole numbers or to decimals."""
    value, decimals = call.tensor(0, "input", "self"), call.kwargs.get("decimals", 0)
    if not decimals or call.dtype not in FLOATS:
        return formula(Op.RINT(A), settle(value), like=call.dtype) if call.dtype in FLOATS else value
    text = Op.RINT(A * B) / B if decimals > 0 else Op.RINT(A / B) * B
    return formula(text, settle(value), float(10 ** abs(decimals)), like=call.dtype)


def _clamp(call: NodeCall) -> Lowered:
    """`clamp`: what all families know, but for bounds that are tensors."""
    bounds = [*call.args[1:], *(value for name, value in call.kwargs.items() if name in ("min", "max"))]
    return _bound(call) if any(isinstance(one, Tensor) for one in bounds) else KNOWN(call)


def _divide_any(call: NodeCall) -> Lowered:
    """`div`: what all families know, but for quotients that are rounded."""
    rounded = call.kwargs.get("rounding_mode") is not None or len(call.args) > 2
    return _divide(call) if rounded else KNOWN(call)


def _divide_number(call: NodeCall) -> Lowered:
    """`number / tensor`, which PyTorch computes as the number times a reciprocal; of tensors what all families know."""
    left, right = call.args
    if isinstance(left, Tensor) or not isinstance(right, Tensor) or left in (1, -1) or call.dtype not in FLOATS:
        return KNOWN(call)
    return formula(B * Op.GROUP(1.0 / A), right, left, like=call.dtype, shape=call.shape)


def _raise(call: NodeCall) -> Lowered:
    """`pow` of whole numbers to small exponents; of other numbers what all families know."""
    base, exponent = call.get(0, "input", "self"), call.get(1, "exponent")
    if call.node.target.endswith("float_power"):
        return formula(Op.POW(A, B), base, exponent, like=call.dtype, shape=call.shape)
    if call.dtype in FLOATS:
        return KNOWN(call)
    if not isinstance(base, Tensor) or exponent not in range(1, _MOST_FACTORS + 1) or call.dtype == "bool":
        raise NotCovered(f"on {call.dtype}")
    return formula(chain(Op.MUL, [A] * exponent), base, like=call.dtype)


TABLE: dict[str, Lower] = {
    **dict.fromkeys(("clamp", "clip"), _clamp), **dict.fromkeys(("div", "divide"), _divide_any), "truediv": _divide_number, "pow": _raise,
    **dict.fromkeys(_SPECIAL, _apply),
    **dict.fromkeys((*_TESTS, "isreal", "signbit"), _test),
    **dict.fromkeys(("clamp_min", "clamp_max"), _bound),
    **dict.fromkeys(("invert", "bitwise_not"), _invert),
    **dict.fromkeys(("lshift", "rshift", "ilshift", "irshift", "__lshift__", "__rshift__"), _shift),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), _shift),
    "ldexp": _scale_by_power, "nan_to_num": _replace_special, "logit": _unsquash, "rsub": _subtract_from, "isclose": _compare_nearly,
    "float_power": _raise, "round": _round,
}  # fmt: skip
