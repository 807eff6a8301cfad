"""Operators against torch, and what is asked of trees."""

from __future__ import annotations

import math
from functools import reduce
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tritonsmith.author.compiler.ir.code import Name
from tritonsmith.author.compiler.ir.operators import (
    A,
    B,
    Constant,
    Operand,
    Operator,
    chain,
    count_cost,
    drop_ones,
    is_cast,
    read_number,
    write,
)
from tritonsmith.author.compiler.ir.printer import print_expression

_BITS = ("AND", "OR", "XOR", "INVERT", "SHIFT_LEFT", "SHIFT_RIGHT", "FLOOR_QUOTIENT", "FLOOR_REMAINDER")
_SPECIAL = [0.0, -0.0, 0.3, -0.7, 1.0, -1.0, 2.5, -3.5, 40.0, math.inf, -math.inf, math.nan]


def _resolve(name: str) -> Any:
    return reduce(getattr, name.split("."), torch)


def _text(tree: Any, *names: str) -> str:
    return print_expression(write(tree, [Name(name) for name in names]))


def _stand_ins() -> dict[str, Any]:
    """What kernels call, by the names of the devices' own libraries and not by those of the table."""
    renamed = {"cyl_bessel_i0": torch.special.i0, "cyl_bessel_i1": torch.special.i1, "lgamma": torch.lgamma, "rint": torch.round,
               "erfcx": torch.special.erfcx}  # fmt: skip

    class Library:
        PropagateNan = SimpleNamespace(ALL=True)

        def __getattr__(self, name: str) -> Any:
            return renamed.get(name) or getattr(torch, name)

        def maximum(self, left: Any, right: Any, propagate_nan: bool = False) -> Any:
            return torch.maximum(left, right) if propagate_nan else torch.fmax(left, right)

        def minimum(self, left: Any, right: Any, propagate_nan: bool = False) -> Any:
            return torch.minimum(left, right) if propagate_nan else torch.fmin(left, right)

    quotients = {name: torch.floor_divide for name in ("floor_quotient", "real_quotient")}
    rests = {name: torch.remainder for name in ("floor_remainder", "real_remainder")}
    helpers = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "mish": torch.nn.functional.mish}
    return {"tl": Library(), "libdevice": Library(), **quotients, **rests, **helpers}


@pytest.mark.parametrize("operator", [operator for operator in Operator if operator.value.torch], ids=lambda operator: operator.name)
def test_operator_is_what_torch_does(operator: Operator) -> None:
    if operator.name in _BITS:
        given = [torch.tensor([5, -7, 0, 12]), torch.tensor([3, 2, 1, 4])][: operator.arity]
    else:
        left, right = torch.meshgrid(torch.tensor(_SPECIAL), torch.tensor(_SPECIAL), indexing="ij")
        given = [left.flatten(), right.flatten(), -left.flatten()][: operator.arity]
    if operator is Operator.WHERE:
        given[0] = given[0] > 0
    text = _text(operator(*(Operand(place) for place in range(operator.arity))), *"xyz")
    made = eval(text, {**_stand_ins(), **dict(zip("xyz", given, strict=False))})
    torch.testing.assert_close(made, _resolve(operator.value.torch)(*given), equal_nan=True)


def test_numbers_have_parentheses_only_where_they_came_as_operands() -> None:
    assert _text(A * -2.0, "x") == "x * -2.0"
    assert _text(A * Constant(-2.0, "float32"), "x") == "x * (-2.0)"
    assert _text(Operator.FMAX(A, -math.inf), "x") == 'tl.maximum(x, float("-inf"))'


@pytest.mark.parametrize(
    ("number", "dtype", "text"),
    [
        (0.1, "float32", "x > 0.1"),
        (0.1, "float64", "x > tl.full((), 0.1, tl.float64)"),
        (0.5, "float64", "x > 0.5"),
        (-0.1, "float64", "x > tl.full((), -0.1, tl.float64)"),
        (1e300, "float64", "x > tl.full((), 1e+300, tl.float64)"),
        (1e-40, "float32", "x > tl.full((), 1e-40, tl.float32)"),
        (-0.0, "float32", "x > (tl.full((), 0.0, tl.float32) * -1.0)"),
        (2**31, "int64", "x > tl.full((), 2147483648, tl.int64)"),
        (2**31 - 1, "int64", "x > 2147483647"),
    ],
)
def test_a_number_has_its_type_beside_it_where_triton_would_read_another(number: float, dtype: str, text: str) -> None:
    assert print_expression(write(A > number, [Name("x")], dtype)) == text


def test_an_operand_that_binds_less_gets_parentheses() -> None:
    assert print_expression(write(A * B, [write(A + B, [Name("x"), Name("y")]), Name("z")])) == "(x + y) * z"
    assert _text((A >> 32).to("int32"), "x") == "(x >> 32).to(tl.int32)"


def test_constants_are_equal_where_they_are_written_alike() -> None:
    assert Constant(0.0, "float32") == Constant(0.0)
    assert Constant(0.0) != Constant(0) and Constant(0.0) != Constant(-0.0)
    assert Constant(math.nan) == Constant(math.nan)


def test_only_a_factor_of_one_is_dropped() -> None:
    assert _text(drop_ones(1.0 * A), "x") == "x"
    assert _text(drop_ones(21.0 * A), "x") == "21.0 * x"
    assert _text(drop_ones(1.0 * (A + B)), "x", "y") == "(x + y)"


def test_questions() -> None:
    assert count_cost(A * Operator.SIGMOID(A)) == 4.0
    assert read_number(-Constant(2.0)) == -2.0 and read_number(A) is None
    assert is_cast(A.to("float16").to("float32")) and not is_cast(-A)
    assert _text(chain(Operator.AND, [A, B, A]), "x", "y") == "x & y & x"


def test_another_number_of_arguments_is_refused() -> None:
    with pytest.raises(ValueError, match="EXP takes 1"):
        Operator.EXP(A, B)
