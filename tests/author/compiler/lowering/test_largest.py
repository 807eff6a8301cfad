"""The largest elements of rows: their values and places, also of equal ones and of NaN, and what is made of them."""

import pytest

from recipe_cases.lowered import compare_with_torch
from recipe_cases.reading import plan_of
from tritonsmith.author.compiler.ir.values import LibraryCall, Stacked
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.cards.cards import CARDS

ROWS = "torch.randn(7, 30)"
EQUAL = "(torch.randn(7, 30) * 2).round()"
SPECIAL = "torch.where(torch.rand(7, 30) < 0.3, torch.nan, torch.where(torch.rand(7, 30) < 0.4, -torch.inf, torch.randn(7, 30)))"


@pytest.mark.parametrize(("forward", "given"), [
    ("return torch.topk(x, 4)", ROWS),
    ("v, i = torch.topk(x, 1, dim=1); return v, i", "torch.randn(3, 9, 5)"),
    ("v, i = x.topk(3, 1, False); return v * 2, i", "torch.randn(3, 9, 5)"),
    ("v, i = torch.topk(x, 20); return v, i", "torch.randn(3, 500)"),
    ("v, i = torch.topk(x, 20); return v, i", "torch.randn(3, 100)"),
    ("v, i = torch.topk(x, 4); return v, i", "torch.randperm(60).reshape(2, 30).to(torch.int32)"),
    ("return torch.topk(x, 4)[0].float().sum(-1)", "torch.randn(7, 30).half()"),
])  # fmt: skip
def test_values_and_places_are_torchs(forward: str, given: str) -> None:
    assert not any(isinstance(value, LibraryCall) for value in compare_with_torch(forward, given).stored)


@pytest.mark.parametrize("given", [EQUAL, SPECIAL], ids=["equal", "special"])
@pytest.mark.parametrize("largest", [True, False])
def test_of_equal_elements_each_is_picked_once(given: str, largest: bool) -> None:
    """PyTorch may pick others of equal ones, so what is compared does not depend on which."""
    picked = f"v, i = torch.topk(x, 6, largest={largest})"
    compare_with_torch(f"{picked}; return v, x.gather(1, i), F.one_hot(i, 30).sum(1).amax(1), F.one_hot(i, 30).sum((1, 2))", given)


@pytest.mark.parametrize("forward", [
    "v, i = x.topk(3); return v / v.sum(-1, keepdim=True), v.softmax(-1), v.mean(1), v.amax(-1), v.std(1), v.logsumexp(1)",
    "v, i = x.topk(3); return v[:, 0] - v[:, 2], i[:, :2] * 2, v.unsqueeze(-1) * x.unsqueeze(1), v.view(-1), v.t(), v.unsqueeze(0)",
    "v, i = x.topk(3); return torch.zeros_like(x).scatter_(1, i, v), torch.zeros_like(x).scatter(1, i, 1.0), x.scatter_add(1, i, v)",
    "v, i = x.sigmoid().topk(3); return F.one_hot(i, 30), F.one_hot(i, 30).permute(2, 1, 0), (x * 2).gather(1, i), x[:, i[0]]",
    "v, i = x.topk(3); return x.scatter(1, i, v[:, :3] * 2), torch.zeros(7, 30, dtype=torch.bool).scatter(1, i, True), v + self.w",
])  # fmt: skip
def test_what_is_made_of_the_largest_elements_is_torchs(forward: str) -> None:
    compare_with_torch(forward, ROWS, init="self.w = nn.Parameter(torch.randn(7, 3))")


def test_work_on_a_few_values_is_done_on_each() -> None:
    found = compare_with_torch("v, i = x.topk(3); return v / v.sum(-1, keepdim=True), i", ROWS)
    assert all(isinstance(value, Stacked) and value.shape == (7, 3) for value in found.stored)


def test_float64_and_many_of_long_rows_stay_calls() -> None:
    for number, given in ((3, "torch.randn(7, 30).double()"), (40, "torch.randn(2, 5000)")):
        assert plan_of(f"return x.topk({number})[0] + 1", given).calls == ("Tensor.topk",)


@pytest.mark.parametrize("experts", [16, 64])
def test_a_router_is_one_kernel(experts: int) -> None:
    routed = "w, i = torch.topk(self.gate(x).softmax(-1), 3, dim=-1); return w / w.sum(-1, keepdim=True), i, F.one_hot(i, EXPERTS)"
    plan = plan_of(
        routed.replace("EXPERTS", str(experts)), "torch.randn(50, 64)", init=f"self.gate = nn.Linear(64, {experts}, bias=False)"
    )
    assert plan.kernels == 1 and not plan.calls


def test_rows_of_many_tables_are_read_ahead_of_all_stores() -> None:
    """A load behind a store waits for it."""
    plan = plan_of(
        "return torch.cat([m(ids[:, k]) for k, m in enumerate(self.tables)], 1)", "torch.randint(0, 50, (6, 11))", arguments="ids",
        init="self.tables = nn.ModuleList(nn.Embedding(50, 16) for _ in range(11))",
    )  # fmt: skip
    recipe = REGIONS.recipes[0]
    settings = recipe.defaults(plan, CARDS["h200"], plan.precision)
    assert settings is not None
    body = recipe.render(plan, settings).partition("def embedding")[2].partition("COMPILED")[0]
    assert plan.kernels == 1 and not plan.calls and body.count("tl.store(") == 11
    assert body.rindex("tl.load(") < body.index("tl.store(")
