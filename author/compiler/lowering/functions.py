"""Elementwise functions beyond the ordinary ones: special functions, quotients that are rounded, bounds that are tensors."""

from __future__ import annotations

import math
from typing import Any

from tritonsmith.author.compiler.ir.indices import Shape
from tritonsmith.author.compiler.ir.values import FLOATS, Tensor
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import KNOWN, common_type, divide_whole, formula
from tritonsmith.author.types import TYPES, NumberKind

_LOGARITHM = "tl.where({0} == {1}, {0} + 0.6931471805599453, tl.maximum({0}, {1}) + libdevice.log1p(tl.exp(-tl.abs({0} - {1}))))"
"""Two infinities of one sign have no distance."""
_SPECIAL: dict[str, tuple[str, int]] = {
    "frac": ("{0} - libdevice.trunc({0})", 1), "fix": ("libdevice.trunc({0})", 1),
    "asinh": ("libdevice.asinh({0})", 1), "acosh": ("libdevice.acosh({0})", 1), "atanh": ("libdevice.atanh({0})", 1),
    "arcsinh": ("libdevice.asinh({0})", 1), "arccosh": ("libdevice.acosh({0})", 1), "arctanh": ("libdevice.atanh({0})", 1),
    "lgamma": ("libdevice.lgamma({0})", 1), "gammaln": ("libdevice.lgamma({0})", 1),
    "erfinv": ("libdevice.erfinv({0})", 1), "expit": ("sigmoid({0})", 1), "erfcx": ("libdevice.erfcx({0})", 1),
    "i0": ("libdevice.cyl_bessel_i0({0})", 1), "i1": ("libdevice.cyl_bessel_i1({0})", 1),
    "ndtr": (f"0.5 * libdevice.erfc({{0}} * {-math.sqrt(0.5)!r})", 1),
    "entr": ('tl.where({0} > 0.0, -{0} * tl.log({0}), tl.where({0} == 0.0, 0.0, float("-inf")))', 1),
    "sinc": (f"tl.where({{0}} == 0.0, 1.0, tl.sin({{0}} * {math.pi!r}) / ({{0}} * {math.pi!r}))", 1),
    "deg2rad": (f"{{0}} * {math.pi / 180!r}", 1), "rad2deg": (f"{{0}} * {180 / math.pi!r}", 1),
    "positive": ("{0}", 1), "sgn": ("tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, 0.0))", 1),
    "copysign": ("libdevice.copysign({0}, {1})", 2), "nextafter": ("libdevice.nextafter({0}, {1})", 2),
    "heaviside": ("tl.where({0} == 0.0, {1}, tl.where({0} > 0.0, 1.0, 0.0))", 2),
    "xlogy": ("tl.where({0} == 0.0, 0.0, {0} * tl.log({1}))", 2), "xlog1py": ("tl.where({0} == 0.0, 0.0, {0} * libdevice.log1p({1}))", 2),
    "logaddexp": (_LOGARITHM, 2), "fmax": ("tl.maximum({0}, {1})", 2), "fmin": ("tl.minimum({0}, {1})", 2),
    "ldexp": ("{0} * tl.exp2({1})", 2),
    "logaddexp2": (
        "tl.where({0} == {1}, {0} + 1.0, tl.maximum({0}, {1}) + "
        f"libdevice.log1p(tl.exp2(-tl.abs({{0}} - {{1}}))) * {1 / math.log(2)!r})", 2,
    ),
}  # fmt: skip
"""Expressions over floating-point operands, and how many."""
_MOST_FACTORS = 8
"""Of a power that is a product."""
_TESTS = {
    "signbit": "{0} < 0", "isposinf": '{0} == float("inf")', "isneginf": '{0} == float("-inf")', "isreal": "{0} == {0}",
}  # fmt: skip


def _apply(call: NodeCall) -> Lowered:
    """A function of the table."""
    template, number = _SPECIAL[call.node.target.rpartition(".")[2].rstrip("_")]
    operands = [*call.args, *call.kwargs.values()][:number]
    if call.dtype not in FLOATS or len(operands) < number:
        raise NotCovered(f"on {call.dtype}")
    return formula(template, *operands, like=call.dtype, shape=call.shape)


def _test(call: NodeCall) -> Lowered:
    value = call.tensor(0, "input", "self")
    name = call.node.target.rpartition(".")[2]
    if value.dtype not in FLOATS and name != "signbit":
        raise NotCovered(f"on {value.dtype}")
    return formula(_TESTS[name], value, like=value.dtype, result="bool")


def _divide(call: NodeCall) -> Lowered:
    """`div` with a quotient that is rounded down or towards zero."""
    mode = call.kwargs.get("rounding_mode", call.args[2] if len(call.args) > 2 else None)
    left, right = call.get(0, "input", "self"), call.get(1, "other")
    whole = call.dtype not in FLOATS
    if mode not in ("floor", "trunc") or (whole and call.dtype == "bool"):
        raise NotCovered(f"with rounding_mode={mode}")
    if whole:
        return divide_whole("floor_divide" if mode == "floor" else "trunc_divide", left, right, call)
    text = "real_quotient({0}, {1})" if mode == "floor" else "libdevice.trunc({0} / {1})"
    return formula(text, left, right, like=call.dtype, shape=call.shape)


def _bound(call: NodeCall) -> Lowered:
    """`clamp` and its kin, with bounds that are numbers or tensors."""
    name, value = call.node.target.rpartition(".")[2], call.tensor(0, "input", "self")
    least, most = call.get(1, "min", default=None), call.get(2, "max", default=None)
    if name.startswith("clamp_m"):
        bound = call.get(1, "min", "max")
        least, most = (bound, None) if "min" in name else (None, bound)
    found: Tensor = value
    for bound, text in ((least, "tl.maximum({0}, {1})"), (most, "tl.minimum({0}, {1})")):
        if bound is not None:
            found = formula(text, found, _as_bound(bound, call.dtype), like=call.dtype, shape=call.shape)
    return found


def _as_bound(bound: Any, dtype: str) -> Any:
    if isinstance(bound, Tensor):
        return bound
    bound = float(bound["float"]) if isinstance(bound, dict) and "float" in bound else bound
    if dtype not in FLOATS and (not isinstance(bound, int) or isinstance(bound, bool)):
        raise NotCovered(f"between {bound} on {dtype}")
    return bound


def _invert(call: NodeCall) -> Lowered:
    """`~` of whole numbers, of which every bit is turned."""
    value = call.tensor(0, "input", "self")
    if call.dtype == "bool" or call.dtype in FLOATS:
        return formula("{0} == 0" if value.dtype != "bool" else "~{0}", value, like=value.dtype, result="bool")
    row = TYPES[call.dtype]
    return formula(f"{{0}} ^ {row.largest}" if row.kind is NumberKind.UNSIGNED else "~{0}", value, like=call.dtype)


def _shift(call: NodeCall) -> Lowered:
    sign = "<<" if "left" in call.node.target or "lshift" in call.node.target else ">>"
    return formula(f"{{0}} {sign} {{1}}", call.get(0, "input", "self"), call.get(1, "other"), like=call.dtype, shape=call.shape)


def _replace_special(call: NodeCall) -> Lowered:
    """`nan_to_num`: numbers in place of what is none."""
    value, dtype = call.tensor(0, "input", "self"), call.dtype
    if dtype not in FLOATS:
        return value
    largest = TYPES[dtype].largest
    given = [call.get(place, name, default=None) for place, name in enumerate(("nan", "posinf", "neginf"), 1)]
    nan, high, low = (plain if one is None else one for one, plain in zip(given, (0.0, largest, -largest), strict=True))
    text = 'tl.where({0} != {0}, {1}, tl.where({0} == float("inf"), {2}, tl.where({0} == float("-inf"), {3}, {0})))'
    return formula(text, value, nan, high, low, like=dtype)


def _unsquash(call: NodeCall) -> Lowered:
    """`logit`, of values that `eps` keeps off 0 and 1."""
    value, eps = call.tensor(0, "input", "self"), call.get(1, "eps", default=None)
    if eps is not None:
        value = formula("tl.minimum(tl.maximum({0}, {1}), {2})", value, eps, 1 - eps, like=call.dtype)
    return formula("tl.log({0} / (1.0 - {0}))", value, like=call.dtype)


def _subtract_from(call: NodeCall) -> Lowered:
    """`rsub`: what is given second minus the first."""
    factor = call.get(2, "alpha", default=1)
    return formula("{1} - {2} * {0}", call.tensor(0, "input"), call.get(1, "other"), factor, like=call.dtype, shape=call.shape)


def _compare_nearly(call: NodeCall) -> Lowered:
    """`isclose`."""
    left, right = call.tensor(0, "input"), call.tensor(1, "other")
    like = common_type(left, right)
    if like not in FLOATS or call.get(4, "equal_nan", default=False):
        raise NotCovered(f"on {like}")
    relative, absolute = call.get(2, "rtol", default=1e-5), call.get(3, "atol", default=1e-8)
    text = "({0} == {1}) | (tl.abs({0} - {1}) <= {3} + {2} * tl.abs({1}))"
    return formula(text, left, right, relative, absolute, like=like, shape=call.shape, result="bool")


def _round(call: NodeCall) -> Lowered:
    """`round`, to whole numbers or to decimals."""
    value, decimals = call.tensor(0, "input", "self"), call.kwargs.get("decimals", 0)
    if not decimals or call.dtype not in FLOATS:
        return formula("libdevice.rint({0})", value, like=call.dtype) if call.dtype in FLOATS else value
    text = "libdevice.rint({0} * {1}) / {1}" if decimals > 0 else "libdevice.rint({0} / {1}) * {1}"
    return formula(text, value, float(10 ** abs(decimals)), like=call.dtype)


def _raise_wide(base: Any, exponent: Any, shape: Shape) -> Tensor:
    """`pow` in float64, whose function takes no number of fp32 next to it."""
    if isinstance(base, Tensor) and isinstance(exponent, int | float):
        if exponent == int(exponent) and 1 <= exponent <= _MOST_FACTORS:
            return formula(" * ".join(["{0}"] * int(exponent)), base, like="float64")
        return formula("tl.exp({1} * tl.log({0}))", base, exponent, like="float64")
    if not isinstance(base, Tensor):
        return formula("tl.exp({1} * {0})", exponent, math.log(base), like="float64")
    return formula("libdevice.pow({0}, {1})", base, exponent, like="float64", shape=shape)


def _clamp(call: NodeCall) -> Lowered:
    """`clamp`: what all families know, but for bounds that are tensors."""
    bounds = [*call.args[1:], *(value for name, value in call.kwargs.items() if name in ("min", "max"))]
    return _bound(call) if any(isinstance(one, Tensor) for one in bounds) else KNOWN(call)


def _divide_any(call: NodeCall) -> Lowered:
    """`div`: what all families know, but for quotients that are rounded."""
    rounded = call.kwargs.get("rounding_mode") is not None or len(call.args) > 2
    return _divide(call) if rounded else KNOWN(call)


def _raise(call: NodeCall) -> Lowered:
    """`pow` of whole numbers to small exponents; of other numbers what all families know."""
    base, exponent = call.get(0, "input", "self"), call.get(1, "exponent")
    if call.dtype == "float64":
        return _raise_wide(base, exponent, call.shape)
    if call.dtype in FLOATS:
        return KNOWN(call)
    if not isinstance(base, Tensor) or exponent not in range(1, _MOST_FACTORS + 1) or call.dtype == "bool":
        raise NotCovered(f"on {call.dtype}")
    return formula(" * ".join(["{0}"] * exponent), base, like=call.dtype)


TABLE: dict[str, Lower] = {
    **dict.fromkeys(("clamp", "clip"), _clamp), **dict.fromkeys(("div", "divide"), _divide_any), "pow": _raise,
    **dict.fromkeys(_SPECIAL, _apply),
    **dict.fromkeys(_TESTS, _test),
    **dict.fromkeys(("clamp_min", "clamp_max"), _bound),
    **dict.fromkeys(("invert", "bitwise_not"), _invert),
    **dict.fromkeys(("lshift", "rshift", "ilshift", "irshift", "__lshift__", "__rshift__"), _shift),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), _shift),
    "nan_to_num": _replace_special, "logit": _unsquash, "rsub": _subtract_from, "isclose": _compare_nearly,
    "float_power": _raise, "round": _round,
}  # fmt: skip
