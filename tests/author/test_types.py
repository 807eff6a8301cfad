"""The table of types: what a number becomes in each, and what kernels do with it."""

import math

import pytest
import torch

from tritonsmith.author.types import AS_THEY_ARE, FLOATS, IN_PARTS, TYPES, WHOLE, join_types, widen

NUMBERS = (0.0, -0.0, 0.1, -1.5, 1 / 3, 65519.9, 65520.0, 1e38, 3.4e38, 1e-45, 7e-46, 6e-8, 2.9e-8, 1e-40, math.inf, -math.inf)


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_rounded_as_pytorch_does(name: str) -> None:
    row, dtype = TYPES[name], getattr(torch, name)
    wanted = torch.tensor(NUMBERS, dtype=torch.float64).to(dtype).double().tolist()
    assert [row.round(number) for number in NUMBERS] == wanted
    assert math.isnan(row.round(math.nan))
    assert (row.largest, row.epsilon, row.bytes) == (torch.finfo(dtype).max, torch.finfo(dtype).eps, dtype.itemsize)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_begin_again_at_the_other_end(name: str) -> None:
    row, dtype = TYPES[name], getattr(torch, name)
    numbers = torch.tensor([0, 1, -1, 127, 128, 255, 256, -129, 2**31, 2**40 + 7])
    assert [row.round(number) for number in numbers.tolist()] == numbers.to(dtype).tolist()
    if name != "bool":
        assert row.ends == (str(torch.iinfo(dtype).min), str(torch.iinfo(dtype).max))


@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("right", FLOATS)
def test_types_of_a_formula_are_promoted_as_pytorch_does(left: str, right: str) -> None:
    assert join_types([left, right]) == str(torch.promote_types(getattr(torch, left), getattr(torch, right))).removeprefix("torch.")


def test_a_narrow_type_is_rounded_through_the_one_that_it_is_computed_in() -> None:
    assert TYPES["bfloat16"].rounding == ".to(tl.bfloat16).to(tl.float32)" and TYPES["bfloat16"].widening == ".to(tl.float32)"
    assert TYPES["float32"].widening == "" and widen("float16") == "float32" and widen("complex64") == "complex64"
    assert set(IN_PARTS).isdisjoint(AS_THEY_ARE) and "float64" not in (*IN_PARTS, *AS_THEY_ARE)
