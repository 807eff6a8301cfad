"""Steps that work on each element: functions, arithmetic, comparisons, casts, writes. Imports torch."""

from __future__ import annotations

from tritonsmith.benchmarks.random_modules.scope import (
    FLOATS,
    WHOLE,
    Scope,
    is_bool,
    is_float,
    is_number,
    is_whole,
)

_SMOOTH = """
    torch.relu(A); torch.sigmoid(A); torch.tanh(A); torch.exp(A); torch.log(A); torch.sqrt(A);
    torch.rsqrt(A); A.reciprocal(); torch.sin(A); torch.cos(A); torch.erf(A); torch.expm1(A);
    torch.log1p(A); torch.floor(A); torch.ceil(A); torch.round(A); torch.trunc(A); torch.frac(A);
    torch.sign(A); A.abs(); -A; torch.square(A); F.gelu(A); F.gelu(A, approximate='tanh'); F.silu(A);
    F.mish(A); F.softplus(A); F.elu(A); F.selu(A); F.celu(A, 0.7); F.leaky_relu(A, 0.1); F.hardtanh(A);
    F.hardswish(A); F.hardsigmoid(A); F.hardshrink(A); F.softshrink(A); F.threshold(A, 0.5, 0.25);
    F.logsigmoid(A); F.tanhshrink(A); F.softsign(A); F.relu6(A); torch.nan_to_num(A); torch.sgn(A);
    torch.exp2(A); torch.log2(A); torch.log10(A); torch.atan(A); torch.asin(A); torch.acos(A);
    torch.sinh(A); torch.cosh(A); torch.asinh(A); torch.acosh(A); torch.atanh(A); torch.logit(A, 0.1);
    torch.sinc(A); torch.erfc(A); torch.deg2rad(A); torch.positive(A); A ** 2; A ** 3; A ** 0.5; A ** -1; 1
    / A; 1.0 - A; A * A; A + A; torch.clamp(A, -0.5, 1.0); A.clamp(min=0.1); A.clamp(max=0.7); F.softplus(A,
    2.0, 3.0); torch.nan_to_num(A, 0.5, 1.0, -1.0); torch.log(A.abs() + 1e-3); torch.sqrt(A.abs());
    A.exp().add(1).log(); torch.heaviside(A, A); torch.special.i0(A); torch.lgamma(A); torch.tan(A);
    torch.rad2deg(A); A.round(decimals=1); torch.special.entr(A)
"""
_ASKED = """
    torch.isnan(A); torch.isinf(A); torch.isfinite(A); torch.signbit(A); torch.isposinf(A);
    torch.isneginf(A); A != A; A == 0; A > 0; A.bool(); torch.logical_not(A)
"""
_PAIRED = """
    A + B; A - B; A * B; A / B; torch.maximum(A, B); torch.minimum(A, B); torch.add(A, B, alpha=2);
    torch.sub(A, B, alpha=0.5); A * 2 + B; torch.fmax(A, B); torch.fmin(A, B); torch.atan2(A, B);
    torch.hypot(A, B); torch.copysign(A, B); torch.lerp(A, B, 0.3); torch.lerp(A, B, 0.7);
    torch.logaddexp(A, B); torch.xlogy(A, B); torch.addcmul(A, B, B, value=0.5); torch.addcdiv(A, A, B); A
    // B; A % B; torch.fmod(A, B); torch.div(A, B, rounding_mode='trunc'); torch.div(A, B,
    rounding_mode='floor'); A.abs() ** B; torch.heaviside(A, B); torch.where(A > B, A, B); torch.where(A >
    0, A, B); torch.clamp(A, min=B); torch.dist(A, B); (A - B).abs(); A * torch.sigmoid(B);
    torch.logaddexp2(A, B); torch.ldexp(A, torch.ones_like(B)); torch.nextafter(A, B);
    torch.float_power(A.abs(), B)
"""
_COMPARED = "A == B; A != B; A < B; A <= B; A > B; A >= B; torch.isclose(A, B); torch.logical_xor(A, B)"
_WHOLE = """
    -A; A.abs(); ~A; A * A; A + 1; A * 3; A * 100000; A // 3; A % 3; A % -7; A // -5; torch.fmod(A, 3);
    torch.div(A, 3, rounding_mode='trunc'); torch.sign(A); A.clamp(-5, 7); A << 1; A >> 1; A & 3; A | 8; A ^
    5; A ** 2; A / 4; A * 0.5; A.float(); A.double(); A % 2 == 0; A > 3; torch.sqrt(A.abs());
    torch.sigmoid(A); A.bool(); torch.clamp_min(A, 2); A + 0.5; 7 - A; A == 3; torch.exp(A * 0.1); A // 2.0;
    A % 0.7
"""
_WHOLE_PAIRED = """
    A + B; A - B; A * B; A & B; A | B; A ^ B; torch.maximum(A, B); torch.minimum(A, B); A == B; A < B; A >=
    B; A // (B % 5 + 2); A % (B % 7 + 3); torch.where(A > B, A, B); A << (B & 3); A >> (B & 3);
    torch.fmod(A, B % 5 + 2); torch.div(A, B % 3 + 2, rounding_mode='floor'); A / (B % 5 + 2); torch.add(A,
    B, alpha=3); torch.lcm(A % 9, B % 7); torch.gcd(A, B)
"""
_LOGICAL = """
    ~A; torch.logical_not(A); A.float(); A.int(); A.long(); A + 1; A * 2.5; A.half(); A.to(torch.uint8);
    A.double(); A.to(torch.bfloat16)
"""
_LOGICAL_PAIRED = """
    A & B; A | B; A ^ B; torch.logical_and(A, B); torch.logical_or(A, B); A == B; A != B; A + B; A * B;
    torch.maximum(A, B); A < B
"""


_MIXED = """
    A + B; A - B; A * B; A / B; torch.maximum(A, B); torch.minimum(A, B); torch.where(A > B, A, B); A == B; A < B; A >= B; A ** 2 + B;
    torch.where(B > 0, A, B); torch.add(A, B, alpha=2); A * B + A; A - B * 2; torch.where(B != 0, A, 1); torch.mul(A, B).sum(-1);
    torch.atan2(A, B); torch.rsub(A, B); A.add(B).mul(B); (A * B).to(A.dtype); torch.clamp(A, max=B); torch.fmod(A, B.abs() + 1)
"""


def _split(texts: str) -> list[str]:
    return [" ".join(text.split()) for text in texts.split(";") if text.strip()]


_UNARY, _QUESTIONS, _BINARY, _COMPARISONS = map(_split, (_SMOOTH, _ASKED, _PAIRED, _COMPARED))
_UNARY_WHOLE, _BINARY_WHOLE, _UNARY_BOOL, _BINARY_BOOL = map(
    _split, (_WHOLE, _WHOLE_PAIRED, _LOGICAL, _LOGICAL_PAIRED)
)
_ANY = _split(_MIXED)
_WRITES = ("add_", "mul_", "sub_", "copy_")
_WRITES_ALONE = (
    "relu_()",
    "abs_()",
    "neg_()",
    "clamp_(-1, 1)",
    "zero_()",
    "fill_(2)",
    "square_()",
    "mul_(2)",
    "add_(1)",
)


def _fill(text: str, first: str, second: str = "") -> str:
    return text.replace("A", first).replace("B", second)


def draw_function(scope: Scope) -> str:
    """A function of a floating value."""
    return _fill(scope.choose(_UNARY), scope.pick(is_float))


def draw_question(scope: Scope) -> str:
    """A function of a floating value whose results are booleans."""
    return _fill(scope.choose(_QUESTIONS), scope.pick(is_float))


def draw_arithmetic(scope: Scope) -> str:
    """Arithmetic of two floating values, or of one and a number."""
    first = scope.pick(is_float)
    if scope.chance.random() < 0.3:
        sign = scope.choose(["+", "-", "*", "/", "+", "*", "%", "//"])
        number = scope.number()
        if sign in ("%", "//") or scope.chance.random() < 0.7:
            return f"{first} {sign} {number}"
        return f"{number} {sign} {first}"
    return _fill(scope.choose(_BINARY), first, scope.pick_alike(first, is_float))


def draw_mixed(scope: Scope) -> str:
    """Arithmetic of two values of any types, one of which may have no axes."""
    first = scope.pick()
    dtype, alone = scope.values[first].dtype, scope.chance.random() < 0.4

    def differs(value: object) -> bool:
        return getattr(value, "dtype", None) != dtype and (not alone or getattr(value, "ndim", 1) == 0)

    return _fill(scope.choose(_ANY), first, scope.pick_alike_shape(first, differs))


def draw_comparison(scope: Scope) -> str:
    """A comparison of two values, or of one with a number."""
    first = scope.pick(is_number)
    if scope.chance.random() < 0.4:
        number = scope.number() if is_float(scope.values[first]) else scope.whole()
        return f"{first} {scope.choose(['==', '!=', '<', '<=', '>', '>='])} {number}"
    text = scope.choose(_COMPARISONS)
    return _fill(text, first, scope.pick_alike(first, is_number))


def draw_whole(scope: Scope) -> str:
    """Arithmetic of whole numbers."""
    first = scope.pick(is_whole)
    if scope.chance.random() < 0.5:
        return _fill(scope.choose(_UNARY_WHOLE), first)
    return _fill(scope.choose(_BINARY_WHOLE), first, scope.pick_alike(first, is_whole))


def draw_logical(scope: Scope) -> str:
    """Logic of booleans."""
    first = scope.pick(is_bool)
    if scope.chance.random() < 0.4:
        return _fill(scope.choose(_UNARY_BOOL), first)
    return _fill(scope.choose(_BINARY_BOOL), first, scope.pick_alike(first, is_bool))


def draw_choice(scope: Scope) -> str:
    """A choice by a mask."""
    first = scope.pick(is_number)
    mask = scope.pick_alike_shape(first, is_bool)
    number = scope.choose(["0", "1", "-1", "2"]) if not is_float(scope.values[first]) else scope.number()
    if scope.values[first].dtype == WHOLE[-1] and number == "-1":
        number = "3"
    kinds = [
        f"torch.where({mask}, {first}, {number})",
        f"{first}.masked_fill({mask}, {number})",
        f"{first} * {mask}",
    ]
    if is_float(scope.values[first]):
        kinds += [
            f"{first}.masked_fill({mask}, -inf)",
            f"torch.where({mask}, -0.0, {first})",
            f"torch.where({mask}, {first}, nan)",
        ]
    if scope.chance.random() < 0.5:
        return f"torch.where({mask}, {first}, {scope.pick_alike(first, is_number)})"
    return scope.choose(kinds)


def draw_cast(scope: Scope) -> str:
    """A cast; floats become whole numbers by way of a range that every type of 32 bits has."""
    first = scope.pick()
    value = scope.values[first]
    target = scope.choose([*FLOATS, *FLOATS, *WHOLE])
    if value.is_floating_point() and not target.is_floating_point:
        bound, scale = scope.choose([(100, "1"), (300, "10"), (5, "2"), (70000, "100")])
        least = 0 if target == WHOLE[-1] else -bound
        return f"({first} * {scale}).nan_to_num().clamp({least}, {bound}).to({target})"
    return scope.choose(
        [f"{first}.to({target})", f"{first}.type({target})", f"{first}.to({target}, copy=True)"]
    )


def draw_write(scope: Scope) -> str:
    """A write into a value that is no argument."""
    target = scope.pick_written()
    value = scope.values[target]
    kind = scope.chance.random()
    if kind < 0.4 and is_number(value):
        text = scope.choose(_WRITES_ALONE)
        return f"{target}.{text}"
    if kind < 0.75 or not value.ndim:
        source = scope.pick_alike(target)
        return f"{target}.{scope.choose(_WRITES)}({source})"
    if scope.chance.random() < 0.3:
        mask = scope.pick(is_bool, lambda part: part.shape == value.shape)
        return scope.choose(
            [f"{target}[{mask}] = 1", f"{target}.masked_fill_({mask}, 0)", f"{target}.mul_({mask})"]
        )
    place = scope.choose(["..., 0", "..., -1", "..., 1:", "0", "::2", "..., ::2", "-1:"])
    number = "1" if not is_float(value) else scope.number()
    if scope.chance.random() < 0.5:
        return f"{target}[{place}] = {number}"
    return f"{target}[{place}] = {scope.pick_alike(target)}[{place}]"
