"""Rows that several programs hold together: right for every kind of reduction and raggedness, and taken where they save a pass."""

import asyncio

import pytest

from recipe_cases.reading import change_card, describe_case, plan_of
from recipe_cases.regions import RegionCase
from tritonsmith.author.compiler.plan import read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import Status

RECIPE = REGIONS.recipes[-1]
SMALL = {"held": 2, "held_block": 64, "processors": 5, "whole_row": 64, "tile": 64}
"""Ten programs, each with 64 places."""
CASES = [
    RegionCase("softmax", "return x.softmax(-1)", "torch.randn(7, 320)"),
    RegionCase("hidden", "return x.masked_fill(y < 0, float('-inf')).softmax(-1)",
               "torch.randn(3, 600), torch.arange(600).float()[None] - 500", arguments="x, y"),
    RegionCase("layer norm", "return F.layer_norm(x, (333,), self.w, self.b)", "torch.randn(2, 4, 333)",
               init="self.w = nn.Parameter(torch.rand(333)); self.b = nn.Parameter(torch.rand(333))"),
    RegionCase("instance norm", "return F.instance_norm(x) + 1", "torch.randn(2, 3, 20, 17) + 30"),
    RegionCase("norms", "return x / x.norm(dim=1, keepdim=True) + x / x.abs().amax(1, keepdim=True), torch.exp(x)", "torch.rand(9, 500)"),
    RegionCase("16 bits", "return x.log_softmax(-1)", "torch.randn(5, 130).half()"),
]  # fmt: skip
LONG = dict.fromkeys(("softmax", "layer norm", "instance norm", "norms", "16 bits"), pytest.mark.slow)


@pytest.mark.parametrize("case", [pytest.param(case, marks=LONG.get(case.name, ())) for case in CASES], ids=lambda case: case.name)
def test_held_rows_are_right(evaluator: LocalEvaluator, case: RegionCase) -> None:
    task, facts = describe_case(case)
    plan = read_regions(task, facts, change_card(rows={"l2_lost": 0.0}))
    settings = REGIONS.recipes[0].defaults(plan, CARDS["h200"], task.precision)
    assert settings is not None
    text = RECIPE.render(plan, settings | SMALL)
    assert "launch_cooperative_grid=True" in text
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message
    assert not verdict.facts.races and all(kernel.registers <= 255 for kernel in verdict.facts.kernels)


@pytest.mark.parametrize(("forward", "inputs"), [
    ("return x.softmax(-1)", "torch.empty(64, 4096, device='meta')"),
    ("return x.sum(-1)", "torch.empty(512, 262144, device='meta')"),
])  # fmt: skip
def test_rows_are_not_shared_where_that_saves_nothing(forward: str, inputs: str) -> None:
    plan = plan_of(forward, inputs.replace(", device='meta'", ""))
    assert RECIPE.defaults(plan, CARDS["h200"], plan.precision) is None


def test_rows_with_weights_are_not_shared_unasked() -> None:
    plan = plan_of("return F.layer_norm(x, (262144,), w)", "torch.empty(512, 262144), torch.empty(262144)", arguments="x, w")
    assert RECIPE.defaults(plan, CARDS["h200"], plan.precision) is None
