"""Elementwise torch operations as Triton expressions over fp32 values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tritonsmith.author.compiler.ir.code import Expression, Name
from tritonsmith.author.compiler.ir.operators import (
    A,
    B,
    Constant,
    Operand,
    Operator,
    Tree,
    chain,
    count_cost,
    iterate,
    read_number,
    replace_operands,
    write,
)
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.evaluator.schema import OpNode

_REQUIRED = object()
Values = Mapping[str, Any]
"""By parameter: the tree that an operand is, a word such as `tanh`, or None."""


@dataclass(frozen=True)
class Operation:
    """One operation: parameters in torch's order with defaults, what it makes of them, and its operations for one element."""

    parameters: tuple[tuple[str, Any], ...]
    make: Callable[[Values], Tree]
    flops: float = 1.0


def _form(tree: Tree, *parameters: tuple[str, Any], flops: float | None = None) -> Operation:
    """An operation that is always the same tree: of its operands, then of its other parameters as far as the tree has them."""
    names = ("a", "b")[: 2 if B in iterate(tree) else 1]
    places = dict(zip((2, 3), (name for name, _ in parameters), strict=False))

    def make(values: Values) -> Tree:
        leaves = [values[names[0]], values[names[-1]], *(values[name] for name in places.values())]
        return replace_operands(tree, leaves)

    given = tuple((name, _REQUIRED) for name in names) + parameters
    return Operation(given, make, count_cost(tree) if flops is None else flops)


def _clamp(values: Values) -> Tree:
    tree: Tree = values["a"]
    if values["min"] is not None:
        tree = Op.MAXIMUM(tree, values["min"])
    return tree if values["max"] is None else Op.MINIMUM(tree, values["max"])


def _gelu(values: Values) -> Tree:
    a: Tree = values["a"]
    if values["approximate"] == "tanh":
        return 0.5 * a * (1.0 + Op.TANH(math.sqrt(2 / math.pi) * (a + 0.044715 * a * a * a)))
    return 0.5 * a * (1.0 + Op.ERF(a * math.sqrt(0.5)))


def _power(values: Values) -> Tree:
    exponent = read_number(values["b"])
    if exponent is None:
        raise ValueError("pow with a tensor as exponent")
    if exponent in (0.5, -0.5):  # as PyTorch computes them: -inf has no root
        return Op.SQRT(values["a"]) if exponent > 0 else 1.0 / Op.SQRT(values["a"])
    if exponent in (-1.0, -2.0):
        return 1.0 / values["a"] if exponent == -1.0 else 1.0 / Op.GROUP(values["a"] * values["a"])
    if exponent not in (1.0, 2.0, 3.0, 4.0):
        raise ValueError(f"pow with exponent {exponent:g}")
    return chain(Op.MUL, [values["a"]] * int(exponent))


def _sum(operator: Operator) -> Callable[[Values], Tree]:
    def make(values: Values) -> Tree:
        right = values["b"] if values["alpha"] == Constant(1.0) else values["alpha"] * values["b"]
        return operator(values["a"], right)

    return make


def _divide(values: Values) -> Tree:
    if values["rounding_mode"] is not None:
        raise ValueError("div with rounding_mode")
    return Op.DIV(values["a"], values["b"])


_A: tuple[tuple[str, Any], ...] = (("a", _REQUIRED),)
_INPLACE: tuple[str, Any] = ("inplace", False)
P, Q = Operand(2), Operand(3)
"""The first parameters behind operands, of which there may be two."""
OPERATIONS: dict[str, Operation] = {
    "identity": _form(A, ("p", 0.5), ("training", False), _INPLACE),
    "add": Operation((("a", _REQUIRED), ("b", _REQUIRED), ("alpha", 1)), _sum(Op.ADD)),
    "sub": Operation((("a", _REQUIRED), ("b", _REQUIRED), ("alpha", 1)), _sum(Op.SUB)),
    "mul": _form(A * B),
    "div": Operation((("a", _REQUIRED), ("b", _REQUIRED), ("rounding_mode", None)), _divide),
    "maximum": _form(Op.MAXIMUM(A, B)),
    "minimum": _form(Op.MINIMUM(A, B)),
    "pow": Operation((("a", _REQUIRED), ("b", _REQUIRED)), _power, 2.0),
    "neg": _form(A * -1.0),
    "abs": _form(Op.ABS(A)),
    "exp": _form(Op.EXP(A)),
    "log": _form(Op.LOG(A)),
    "sqrt": _form(Op.SQRT(A)),
    "rsqrt": _form(1.0 / Op.SQRT(A)),
    "square": _form(A * A),
    "reciprocal": _form(1.0 / A),
    "sin": _form(Op.SIN(A)),
    "cos": _form(Op.COS(A)),
    "erf": _form(Op.ERF(A)),
    "relu": _form(Op.MAXIMUM(A, 0.0), _INPLACE),
    "relu6": _form(Op.MINIMUM(Op.MAXIMUM(A, 0.0), 6.0), _INPLACE),
    "sigmoid": _form(Op.SIGMOID(A)),
    "tanh": _form(Op.TANH(A)),
    "silu": _form(A * Op.SIGMOID(A), _INPLACE),
    "gelu": Operation((*_A, ("approximate", "none")), _gelu, 5.0),
    "leaky_relu": _form(Op.WHERE(A > 0.0, A, A * P), ("negative_slope", 0.01), _INPLACE),
    "elu": _form(Op.WHERE(A > 0.0, A, P * Op.EXPM1(A)), ("alpha", 1.0), _INPLACE, flops=3.0),
    "softplus": _form(Op.WHERE(A * P > Q, A, Op.LOG1P(Op.FAST_EXP(A * P)) / P), ("beta", 1.0), ("threshold", 20.0), flops=5.0),
    "hardsigmoid": _form(Op.MINIMUM(Op.MAXIMUM(A / 6.0 + 0.5, 0.0), 1.0), _INPLACE),
    "hardswish": _form(A * Op.MINIMUM(Op.MAXIMUM(A + 3.0, 0.0), 6.0) / 6.0, _INPLACE),
    "softsign": _form(A / (1.0 + Op.ABS(A))),
    "clamp": Operation((*_A, ("min", None), ("max", None)), _clamp, 2.0),
    "hardtanh": Operation((*_A, ("min", -1.0), ("max", 1.0), _INPLACE), _clamp, 2.0),
}  # fmt: skip

_NUMBERS = ("a", "b", "alpha", "min", "max")
"""Parameters for which a truth is 0 or 1."""
_RENAMED = {"input": "a", "other": "b", "exponent": "b", "min_val": "min", "max_val": "max", "self": "a"}


def write_operation(node: OpNode, name: str, variables: Mapping[str, str]) -> Expression:
    """The Triton expression of one node; `variables` maps node names to value names. Raises ValueError for what it cannot write."""
    places = {reference: Operand(place) for place, reference in enumerate(variables)}
    return write(read_operation(node, name, places), [Name(text) for text in variables.values()])


def read_operation(node: OpNode, name: str, variables: Mapping[str, Tree]) -> Tree:
    """What one node does to its operands.

    Args:
        node: the node of a trace.
        name: its operation, a key of `OPERATIONS`.
        variables: by node: the operand, or number, that its value is.

    Raises ValueError for what no kernel does.
    """
    operation = OPERATIONS[name]
    given: dict[str, Any] = dict(node.attributes) if node.op == "call_module" else {}
    given = {_RENAMED.get(key, key): value for key, value in given.items()}
    given |= dict(zip((key for key, _ in operation.parameters), node.args, strict=False))
    if len(node.args) > len(operation.parameters):
        raise ValueError(f"{node.target} with {len(node.args)} arguments")
    given |= {_RENAMED.get(key, key): value for key, value in node.kwargs.items()}
    values: dict[str, Any] = {}
    for key, default in operation.parameters:
        value = given.get(key, default)
        if value is _REQUIRED:
            raise ValueError(f"{node.target} without its operand {key}")
        values[key] = _read_value(key, value, variables, node)
    return operation.make(values)


def _read_value(key: str, value: Any, variables: Mapping[str, Tree], node: OpNode) -> Any:
    if isinstance(value, dict) and "ref" in value:
        if value["ref"] not in variables:
            raise ValueError(f"{node.target} of {value['ref']}")
        return variables[value["ref"]]
    if isinstance(value, int | float) and (key in _NUMBERS or not isinstance(value, bool)):
        return Constant(float(value))
    if value is None or isinstance(value, bool | str):
        return value
    raise ValueError(f"{node.target} with {value!r}")
