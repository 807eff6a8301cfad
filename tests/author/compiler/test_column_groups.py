"""Reductions along a few neighbouring columns are done on the tiles of a product, which is never stored without them."""

import asyncio

import pytest

from recipe_cases.reading import describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.plan import RegionPlan, read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Status, Task

LINEAR = "self.c=nn.Linear(76, 64)"
GROUPED = {
    "a norm by groups": RegionCase("", "return self.n(F.silu(self.c(x)))", "torch.randn(150, 76)",
                                   "self.c=nn.Linear(76, 80); self.n=nn.GroupNorm(5, 80)"),
    "two norms": RegionCase("", "return self.m(self.n(self.c(x)).relu())", "torch.randn(37, 76)",
                            f"{LINEAR}; self.n=nn.GroupNorm(8, 64); self.m=nn.LayerNorm(64)"),
    "softmax of each head": RegionCase("", "y=self.c(x).view(37, 8, 8)*1e3; return torch.softmax(y, -1), y", "torch.randn(37, 76)", LINEAR),
    "numbers alone": RegionCase("", "y=self.c(x).view(37, 8, 8); return y.mean(-1), y.amax(-1).tanh()", "torch.randn(37, 76)", LINEAR),
    "two operands": RegionCase("", "return torch.softmax(x @ x.transpose(1, 2), -1)", "torch.randn(2, 32, 20)"),
}  # fmt: skip
APART = {
    "groups of twelve": RegionCase("", "return self.n(self.c(x))", "torch.randn(37, 76)",
                                   "self.c=nn.Linear(76, 60); self.n=nn.GroupNorm(5, 60)"),
    "columns that are not neighbours": RegionCase("", "return torch.softmax(self.c(x).view(37, 4, 16), 1)", "torch.randn(37, 76)", LINEAR),
    "heads in another order": RegionCase("", "return F.normalize(self.c(x).view(3, 20, 4, 16).transpose(1, 2), dim=-1)",
                                         "torch.randn(3, 20, 76)", LINEAR),
}  # fmt: skip


def _write(case: RegionCase, evaluator: LocalEvaluator) -> tuple[Task, RegionPlan, str]:
    task, facts = describe_case(case)
    plan = read_regions(task, facts, FIRST)
    settings = REGIONS.recipes[0].defaults(plan, evaluator.hardware, plan.precision)
    assert settings is not None
    return task, plan, REGIONS.recipes[0].render(plan, settings)


@pytest.fixture(autouse=True)
def _no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonsmith.author.compiler.plan.prefers_call", lambda *_: False)


@pytest.mark.parametrize("name", [one if one == "two norms" else pytest.param(one, marks=pytest.mark.slow) for one in GROUPED])
def test_groups_of_columns_are_reduced_on_the_tile(evaluator: LocalEvaluator, name: str) -> None:
    task, plan, text = _write(GROUPED[name], evaluator)
    (region,) = plan.regions
    assert isinstance(region, ProductRegion)
    assert all(one.group for one in region.tiled)
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.parametrize("name", APART)
def test_other_columns_are_reduced_in_a_kernel_of_their_own(evaluator: LocalEvaluator, name: str) -> None:
    _, plan, _ = _write(APART[name], evaluator)
    assert len(plan.regions) == 2


@pytest.mark.slow  # the judge has its own tests of wrong kernels
def test_a_wrong_group_is_refused(evaluator: LocalEvaluator) -> None:
    task, _, text = _write(GROUPED["a norm by groups"], evaluator)
    assert "BLOCK_N // 16, 16)" in text
    verdict = asyncio.run(evaluator.evaluate(task, text.replace("BLOCK_N // 16, 16)", "BLOCK_N // 8, 8)").replace(" / 16 ", " / 8 ")))
    assert verdict.status is Status.INACCURATE
