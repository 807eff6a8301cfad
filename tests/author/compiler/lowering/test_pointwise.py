"""Elementwise operations: what they are lowered to is what torch computes, in the type that torch promotes to."""

import math

import pytest

from recipe_cases.lowered import compare_with_torch, result_of
from tritonsmith.author.compiler.ir.values import Formula, Held
from tritonsmith.author.compiler.lowering.calls import NotCovered
from tritonsmith.author.compiler.lowering.pointwise import as_type, broadcast, cast, common_type, constant

SPECIAL = "torch.tensor([0.0, -0.0, 0.3, -0.7, 1.0, -3.5, 30.0, -30.0, math.inf, -math.inf, math.nan])"
WHOLE = "torch.tensor([7, -7, 9, -9, 0]), torch.tensor([2, 2, -4, -4, 3])"


def held(dtype: str, *shape: int) -> Held:
    return Held(shape=shape, dtype=dtype, source="x")


@pytest.mark.parametrize("forward", [
    "return F.selu(x), F.mish(x), F.logsigmoid(x), F.tanhshrink(x), torch.sign(x), torch.atan(x)",
    "x = x[:-1]; return F.celu(x, 0.5), torch.threshold(x, 0.2, -1.0), F.hardshrink(x), F.softshrink(x, 0.25), F.rrelu(x)",
    "return torch.expm1(x), torch.log1p(x), torch.floor(x), torch.ceil(x), torch.trunc(x), torch.exp2(x)",
    "x = x[:-1]; return x.clamp(-1, 0.5), F.relu6(x), F.hardtanh(x, -0.2, 0.2), torch.where(x > 0, x, x * 2)",
    "return torch.isnan(x), torch.isinf(x), torch.isfinite(x), x.masked_fill(x.isnan(), 3.0), torch.nan_to_num(x)",
])  # fmt: skip
def test_functions_are_torchs_also_at_zero_infinity_and_nan(forward: str) -> None:
    compare_with_torch(forward, SPECIAL.replace("math.", "torch."))


def test_quotients_of_whole_numbers_round_down_by_a_number_and_by_a_tensor() -> None:
    compare_with_torch("return x // y, x % y, x // 3, x % -4, torch.div(x, y, rounding_mode='trunc'), x.fmod(y)", WHOLE, arguments="x, y")


def test_truths_are_combined_and_compared() -> None:
    given = "torch.tensor([True, False, True]), torch.tensor([True, True, False])"
    compare_with_torch("return x & y, x | y, x ^ y, ~x, x * y, x + y, torch.logical_not(x)", given, arguments="x, y")


@pytest.mark.parametrize(("forward", "given", "dtype"), [
    ("return x + y", "torch.ones(3, dtype=torch.float16), torch.ones(3)", "float32"),
    ("return x + y", "torch.ones(3, dtype=torch.int32), torch.ones(3, dtype=torch.bfloat16)", "bfloat16"),
    ("return x / y", "torch.tensor([3, 4]), torch.tensor([2, 3])", "float32"),
    ("return x * 1.5 + y", "torch.tensor([3, 4]), torch.tensor([2, 3], dtype=torch.uint8)", "float32"),
    ("return x == y", "torch.tensor([3, 4]), torch.tensor([3.0, 4.5])", "bool"),
])  # fmt: skip
def test_types_meet_as_in_torch(forward: str, given: str, dtype: str) -> None:
    assert result_of(compare_with_torch(forward, given, arguments="x, y", near=1e-3)).dtype == dtype


def test_a_number_promotes_only_to_another_kind() -> None:
    assert common_type(held("int64"), 1) == "int64" and common_type(held("int64"), 1.0) == "float32"
    assert common_type(held("float16"), 1.0) == "float16" and common_type(held("bfloat16"), held("float16")) == "float32"


def test_shapes_broadcast_or_are_refused() -> None:
    assert broadcast((3, 1), (4,), ()) == (3, 4)
    with pytest.raises(NotCovered, match="do not broadcast"):
        broadcast((3, 2), (4,))


def test_sixteen_bits_are_computed_with_in_thirty_two_and_rounded_where_forward_converts() -> None:
    half = held("float16", 2)
    assert as_type(half, "float32") is half
    assert isinstance(cast(half, "float32"), Formula) and cast(half, "float16") is half
    given = "torch.tensor([0.1, 2.7, -2.7])"
    compare_with_torch("return x.to(torch.float16).float(), x.to(torch.bfloat16).to(torch.int32)", given)
    compare_with_torch("return (x.half() * 3 + 1).float()", given, near=5e-3)  # between two operations nothing is rounded


def test_numbers_have_the_value_that_their_type_holds() -> None:
    assert cast(constant(3, "int64", (2,)), "float32").number == 3.0
    assert constant(300, "uint8").number == 44 and constant(-1, "bool").number is True and math.isinf(constant(math.inf, "float16").number)
