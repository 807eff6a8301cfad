"""Regions at other sizes of the leading axis: right where no kernel depends on it, refused in one sentence elsewhere."""

import asyncio

import pytest

from recipe_cases.regions import RegionCase
from tritonsmith.evaluator.cards import CARDS
from tritonsmith.evaluator.local import LocalEvaluator
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task
from tritonsmith.prompts.recipes.regions.plan import read_regions
from tritonsmith.prompts.recipes.regions.recipes import REGIONS

RECIPE = REGIONS.recipes[0]
ROWS = RegionCase(
    "rows", "h=self.l(x); return torch.softmax(self.n(h)*y, -1), (x*2).flatten(1)", "torch.randn(B, 3, 20), torch.randn(B, 1, 24)",
    init="self.l=nn.Linear(20, 24); self.n=nn.LayerNorm(24)", arguments="x, y",
)  # fmt: skip
HEADS = RegionCase(
    "heads", "return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(q.shape[0], 20, 48)",
    ", ".join(["torch.randn(B, 3, 20, 16)"] * 3), arguments="q, k, v",
)  # fmt: skip


def task_of(case: RegionCase, batch: int) -> Task:
    return Task(name="a_task", path="a_task.py", source=case.source().replace("(B, ", f"({batch}, "))


def write(case: RegionCase, batch: int = 40) -> str:
    task = task_of(case, batch)
    plan = read_regions(task, probe(task)[0])
    settings = RECIPE.defaults(plan, CARDS["h200"], PrecisionClass.IEEE)
    assert settings is not None
    return RECIPE.render(plan, settings)


@pytest.mark.parametrize("case", [ROWS, HEADS], ids=lambda case: case.name)
def test_kernels_are_right_for_another_batch(evaluator: LocalEvaluator, case: RegionCase) -> None:
    text = write(case)
    assert ".shape[0]\n" in text and "[a, 3, 20" in text
    verdict = asyncio.run(evaluator.evaluate(task_of(case, 7), text))
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.parametrize(
    "forward",
    [
        "return x.mean(0)",
        "return x.cumsum(0)",
        "return x/x.shape[0]",
        "return x[:3]*2",
        "return x[:100]*2",
        "return torch.relu(x@x.t())",
        "return torch.softmax(x.t(), 0)",
        "return torch.relu(x.roll(1, 0))",
        "return x+torch.arange(40)[:, None]",
        "return x*self.p",
        "return torch.cat([x, self.p], 1)",
        "return F.cross_entropy(x, x)",
    ],
)
def test_what_depends_on_the_batch_is_for_one_size(forward: str) -> None:
    text = write(RegionCase("one", forward, "torch.randn(B, 30)", init="self.p=nn.Parameter(torch.ones(40, 30))"))
    assert "x.shape != (40, 30)" in text and "batch = " not in text


def test_a_recorded_forward_that_asks_for_sizes_is_for_one_size() -> None:
    """Numbers of such a trace may follow from the batch, and look like any other number."""
    case = RegionCase("one", "s=[one*x.shape[0] for one in range(x.shape[1]-28)]; return torch.softmax(x*s[1], -1)", "torch.randn(B, 30)")
    assert "x.shape != (40, 30)" in write(case)
