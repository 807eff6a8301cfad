"""Large products of 16-bit matrices are read by tensor descriptors, in programs that take tiles in turn; others by pointers."""

import asyncio

import pytest

from recipe_cases.reading import change_card, describe_case, plan_of
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import CardModel, model_card
from tritonsmith.author.compiler.fusing.calls import predict_call, predict_kernel
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.kernels.product_tiles import POINTERS, ProductTile, choose_tile
from tritonsmith.author.compiler.plan import RegionPlan, read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import PrecisionClass, Status

FEW = change_card(hardware={"processors": 2}, calls={"matrix": 1e-9})
"""A card on which a few tiles are many, and a library is slow."""
OWN = change_card(calls={"matrix": 1e-9})


def matrices(*shapes: str, dtype: str = "bfloat16") -> str:
    return ", ".join(f"torch.randn({shape}).to(torch.{dtype})" for shape in shapes)


CASES = {
    "whole tiles": RegionCase("", "return self.l(x)", matrices("256, 64"), "self.l=nn.Linear(64, 512, bias=False).bfloat16()"),
    "ragged tiles with work behind": RegionCase(
        "", "return F.gelu(self.l(x), approximate='tanh') + y", matrices("300, 136", "300, 264"),
        "self.l=nn.Linear(136, 264).bfloat16()", "x, y",
    ),
    "columns that no stride takes": RegionCase(
        "", "return torch.relu(x @ y.T)*2", matrices("520, 72", "250, 72", dtype="float16"), arguments="x, y",
    ),
    "a gate": RegionCase(
        "", "return F.silu(self.g(x))*self.u(x)", matrices("260, 64"),
        "self.g=nn.Linear(64, 264).bfloat16(); self.u=nn.Linear(64, 264, bias=False).bfloat16()",
    ),
    "a plain right operand": RegionCase("", "return x @ y", matrices("260, 64", "64, 520", dtype="float16"), arguments="x, y"),
    "a turned left operand": RegionCase("", "return x.T @ y", matrices("72, 264", "72, 520"), arguments="x, y"),
    "a result of fp32": RegionCase("", "return (x @ y).float() + 1", matrices("260, 64", "64, 520"), arguments="x, y"),
}  # fmt: skip
QUICK = ("ragged tiles with work behind", "a plain right operand")


def choose_tiles(plan: RegionPlan, **asked: int | str) -> list[ProductTile]:
    settings = REGIONS.recipes[0].defaults(plan, plan.card.hardware, plan.precision)
    assert settings is not None
    return [choose_tile(one, settings | asked) for one in plan.regions if isinstance(one, ProductRegion)]


def read_plan(case: RegionCase, card: CardModel) -> RegionPlan:
    return read_regions(*describe_case(case), card)


@pytest.mark.parametrize("name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in CASES])
def test_what_descriptors_read_is_right(evaluator: LocalEvaluator, name: str) -> None:
    task, facts = describe_case(CASES[name])
    plan = read_regions(task, facts, FEW)
    recipe = REGIONS.recipes[0]
    settings = recipe.defaults(plan, FEW.hardware, plan.precision)
    assert settings is not None and any(one.described for one in choose_tiles(plan))
    text = recipe.render(plan, settings)
    assert "make_tensor_descriptor" in text and "make_tensor_descriptor" not in recipe.render(plan, settings | {"form": POINTERS})
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message
