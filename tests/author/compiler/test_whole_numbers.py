"""Whole numbers are PyTorch's to the bit: places are of int64 there, and kernels count in int32 only where that is proven to be enough."""

import json
import re

import pytest

from interpreted import Interpreted
from project import HELPERS
from recipe_cases.reading import describe_case, plan_of
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.compiler.module.lengths import lengthen
from tritonsmith.author.compiler.plan import RegionPlan, read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.cards.cards import CARDS

QUICK = ("hash of a place", "large numbers beside places", "sums of places", "ends of int32", "lookups at computed places")


def run_cases(interpreted: Interpreted, *names: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(interpreted.run(HELPERS / "recipe_cases" / "whole_numbers.py", *names))
    return found


def write(plan: RegionPlan) -> str:
    recipe = REGIONS.recipes[0]
    settings = recipe.defaults(plan, CARDS["h200"], plan.precision)
    assert settings is not None
    return recipe.render(plan, settings)


def test_modules_of_whole_numbers_are_right_to_the_bit(interpreted: Interpreted) -> None:
    assert run_cases(interpreted, *QUICK) == dict.fromkeys(QUICK, "right")


@pytest.mark.slow
def test_every_module_of_whole_numbers_is_right_to_the_bit(interpreted: Interpreted) -> None:
    found = run_cases(interpreted)
    assert len(found) > 15 and set(found.values()) == {"right"}, found


@pytest.mark.parametrize(("rows", "wide"), [(2**31 // 100003, False), (2**31 // 100003 + 2, True)])
def test_kernels_count_in_32_bits_as_long_as_all_numbers_fit(rows: int, wide: bool) -> None:
    """Along an axis whose size the kernel is made for."""
    text = write(plan_of("return x * (torch.arange(x.shape[1]) * 100003 % 1009)", f"torch.randn(2, {rows})"))
    assert (".to(tl.int64)" in text) is wide


def test_a_kernel_for_any_size_counts_in_the_bits_of_the_largest() -> None:
    """At 64 rows no number leaves 32 bits, and at 30,000 rows some do. The same module takes both."""
    text = write(plan_of("return x * (torch.arange(x.shape[0]) * 100003 % 1009)[:, None]", "torch.randn(64, 4)"))
    assert ".to(tl.int64) * 100003" in text
    assert int(re.findall(r"x.shape\[0\] > (\d+)", text)[0]) > 30000


def test_places_beyond_32_bits_are_computed_in_64_though_no_tensor_is_so_large() -> None:
    """The sum of an outer product of 70,000 numbers with 70,000."""
    task, facts = describe_case(RegionCase("one", "return (x[:, None] * y).sum()", "torch.randn(70), torch.randn(70000)", arguments="x, y"))
    text = write(read_regions(task, lengthen(facts, ("x",), 70, 70000), FIRST))
    assert "(tl.program_id(0) % PARTS).to(tl.int64) *" in text


def test_a_computed_place_in_a_large_table_is_widened() -> None:
    """A kernel has it in 32 bits, and the table has more elements than these can count."""
    case = RegionCase("one", "return t[torch.arange(5) * 3] * i", "torch.randn(70, 64), torch.randn(5, 1)", arguments="t, i")
    task, facts = describe_case(case)
    text = write(read_regions(task, lengthen(facts, ("t",), 70, 70000000), FIRST))
    assert re.search(r"tl\.load\(t_ptr \+ \w+\.to\(tl\.int64\) \* 64", text)
