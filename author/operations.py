"""Elementwise torch operations as Triton expressions over fp32 values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tritonsmith.evaluator.schema import OpNode

Render = Callable[[Mapping[str, str | None]], str]

_REQUIRED = object()


@dataclass(frozen=True)
class Operation:
    """One operation: parameters in torch's order with defaults, and how it is written."""

    parameters: tuple[tuple[str, Any], ...]
    render: Render
    flops: float = 1.0


def _form(text: str, *parameters: tuple[str, Any], operands: int = 1, flops: float = 1.0) -> Operation:
    names = ("a", "b")[:operands]
    return Operation(tuple((name, _REQUIRED) for name in names) + parameters, lambda values: text.format(**values), flops)


def _clamp(values: Mapping[str, str | None]) -> str:
    text = str(values["a"])
    if values["min"] is not None:
        text = f"tl.maximum({text}, {values['min']})"
    return text if values["max"] is None else f"tl.minimum({text}, {values['max']})"


def _gelu(values: Mapping[str, str | None]) -> str:
    a = values["a"]
    if values["approximate"] == "tanh":
        return f"0.5 * {a} * (1.0 + tanh({math.sqrt(2 / math.pi)!r} * ({a} + 0.044715 * {a} * {a} * {a})))"
    return f"0.5 * {a} * (1.0 + tl.erf({a} * {math.sqrt(0.5)!r}))"


def _power(values: Mapping[str, str | None]) -> str:
    try:
        exponent = float(str(values["b"]).strip("()"))
    except ValueError:
        raise ValueError("pow with a tensor as exponent") from None
    if exponent == 0.5:
        return f"tl.sqrt({values['a']})"
    if exponent not in (1.0, 2.0, 3.0, 4.0):
        raise ValueError(f"pow with exponent {exponent:g}")
    return " * ".join([str(values["a"])] * int(exponent))


def _add(values: Mapping[str, str | None], sign: str) -> str:
    factor = "" if values["alpha"] == "1.0" else f"{values['alpha']} * "
    return f"{values['a']} {sign} {factor}{values['b']}"


def _divide(values: Mapping[str, str | None]) -> str:
    if values["rounding_mode"] is not None:
        raise ValueError("div with rounding_mode")
    return f"{values['a']} / {values['b']}"


_A: tuple[tuple[str, Any], ...] = (("a", _REQUIRED),)
_INPLACE: tuple[str, Any] = ("inplace", False)
OPERATIONS: dict[str, Operation] = {
    "identity": _form("{a}", ("p", 0.5), ("training", False), _INPLACE, flops=0.0),
    "add": Operation((("a", _REQUIRED), ("b", _REQUIRED), ("alpha", 1)), lambda values: _add(values, "+")),
    "sub": Operation((("a", _REQUIRED), ("b", _REQUIRED), ("alpha", 1)), lambda values: _add(values, "-")),
    "mul": _form("{a} * {b}", operands=2),
    "div": Operation((("a", _REQUIRED), ("b", _REQUIRED), ("rounding_mode", None)), _divide),
    "maximum": _form("tl.maximum({a}, {b})", operands=2),
    "minimum": _form("tl.minimum({a}, {b})", operands=2),
    "pow": Operation((("a", _REQUIRED), ("b", _REQUIRED)), _power, 2.0),
    "neg": _form("-{a}"),
    "abs": _form("tl.abs({a})"),
    "exp": _form("libdevice.exp({a})"),  # tl.exp loses digits where its argument is large: it multiplies by log2(e) in fp32
    "log": _form("tl.log({a})"),
    "sqrt": _form("tl.sqrt({a})"),
    "rsqrt": _form("1.0 / tl.sqrt({a})", flops=2.0),
    "square": _form("{a} * {a}"),
    "reciprocal": _form("1.0 / {a}"),
    "sin": _form("tl.sin({a})"),
    "cos": _form("tl.cos({a})"),
    "erf": _form("tl.erf({a})"),
    "relu": _form("tl.maximum({a}, 0.0)", _INPLACE),
    "relu6": _form("tl.minimum(tl.maximum({a}, 0.0), 6.0)", _INPLACE, flops=2.0),
    "sigmoid": _form("sigmoid({a})", flops=3.0),
    "tanh": _form("tanh({a})", flops=8.0),
    "silu": _form("{a} * sigmoid({a})", _INPLACE, flops=4.0),
    "gelu": Operation((*_A, ("approximate", "none")), _gelu, 5.0),
    "leaky_relu": _form("tl.where({a} > 0.0, {a}, {a} * {negative_slope})", ("negative_slope", 0.01), _INPLACE, flops=2.0),
    "elu": _form("tl.where({a} > 0.0, {a}, {alpha} * (tl.exp({a}) - 1.0))", ("alpha", 1.0), _INPLACE, flops=3.0),
    "softplus": _form(
        "tl.where({a} * {beta} > {threshold}, {a}, tl.log(1.0 + tl.exp(tl.minimum({a} * {beta}, {threshold}))) / {beta})",
        ("beta", 1.0), ("threshold", 20.0), flops=5.0,
    ),
    "hardsigmoid": _form("tl.minimum(tl.maximum({a} / 6.0 + 0.5, 0.0), 1.0)", _INPLACE, flops=4.0),
    "hardswish": _form("{a} * tl.minimum(tl.maximum({a} + 3.0, 0.0), 6.0) / 6.0", _INPLACE, flops=5.0),
    "softsign": _form("{a} / (1.0 + tl.abs({a}))", flops=3.0),
    "clamp": Operation((*_A, ("min", None), ("max", None)), _clamp, 2.0),
    "hardtanh": Operation((*_A, ("min", -1.0), ("max", 1.0), _INPLACE), _clamp, 2.0),
}  # fmt: skip

_RENAMED = {"input": "a", "other": "b", "exponent": "b", "min_val": "min", "max_val": "max", "self": "a"}


def expression(node: OpNode, name: str, variables: Mapping[str, str]) -> str:
    """The Triton expression of one node; `variables` maps node names to value names. Raises ValueError for what it cannot write."""
    operation = OPERATIONS[name]
    given: dict[str, Any] = dict(node.attributes) if node.op == "call_module" else {}
    given = {_RENAMED.get(key, key): value for key, value in given.items()}
    given |= dict(zip((key for key, _ in operation.parameters), node.args, strict=False))
    if len(node.args) > len(operation.parameters):
        raise ValueError(f"{node.target} with {len(node.args)} arguments")
    given |= {_RENAMED.get(key, key): value for key, value in node.kwargs.items()}
    values: dict[str, str | None] = {}
    for key, default in operation.parameters:
        value = given.get(key, default)
        if value is _REQUIRED:
            raise ValueError(f"{node.target} without its operand {key}")
        values[key] = _literal(value, variables, node)
    return operation.render(values)


def _literal(value: Any, variables: Mapping[str, str], node: OpNode) -> str | None:
    if isinstance(value, dict) and "ref" in value:
        if value["ref"] not in variables:
            raise ValueError(f"{node.target} of {value['ref']}")
        return variables[value["ref"]]
    if isinstance(value, bool) or value is None:
        return None if value is None else str(value)
    if isinstance(value, (int, float)):
        text = repr(float(value))
        return f"({text})" if value < 0 else text
    if isinstance(value, str):
        return value
    raise ValueError(f"{node.target} with {value!r}")
