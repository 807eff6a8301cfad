"""Regions at other sizes of the leading axis: right where no kernel depends on it, refused in one sentence elsewhere."""

import asyncio

import pytest

from recipe_cases.reading import AHEAD
from recipe_cases.regions import RegionCase
from tritonsmith.author.book import match
from tritonsmith.author.cards.model import FIRST, CardModel
from tritonsmith.author.compiler.plan import read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task

RECIPE = REGIONS.recipes[0]
ROWS = RegionCase(
    "rows", "h=self.l(x); return torch.softmax(self.n(h)*y, -1), (x*2).flatten(1)", "torch.randn(B, 3, 20), torch.randn(B, 1, 24)",
    init="self.l=nn.Linear(20, 24); self.n=nn.LayerNorm(24)", arguments="x, y",
)  # fmt: skip
HEADS = RegionCase(
    "heads", "return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(q.shape[0], 20, 48)",
    ", ".join(["torch.randn(B, 3, 20, 16)"] * 3), arguments="q, k, v",
)  # fmt: skip

PRODUCTS = [
    RegionCase(
        "rows of a layer", "return torch.softmax(self.n(self.l(x)), -1)", "torch.randn(B, 20)",
        init="self.l=nn.Linear(20, 24); self.n=nn.LayerNorm(24)",
    ),
    RegionCase(
        "images", "return self.f(torch.tanh(self.b(torch.relu(self.n(self.a(x))))).mean((2, 3)))", "torch.randn(B, 8, 6, 5)",
        init="self.a=nn.Conv2d(8, 16, 3, padding=1); self.n=nn.BatchNorm2d(16); self.b=nn.ConvTranspose2d(16, 8, 4, 2, 1); "
        "self.f=nn.Linear(8, 5)",
    ),
    RegionCase("pairs of matrices", "return torch.bmm(x, y).amax(1)", "torch.randn(B, 10, 20), torch.randn(B, 20, 9)", arguments="x, y"),
    RegionCase(
        "a transformer's block",
        "b, n, w = x.shape; q, k, v = self.qkv(self.n(x)).view(b, n, 3, 2, w // 2).permute(2, 0, 3, 1, 4); "
        "x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, w); return x + self.o(F.gelu(x))",
        "torch.randn(B, 7, 32)", init="self.n=nn.LayerNorm(32); self.qkv=nn.Linear(32, 96); self.o=nn.Linear(32, 32)",
    ),
]  # fmt: skip


LONG = dict.fromkeys(("images", "a transformer's block", "pairs of matrices"), pytest.mark.slow)


def task_of(case: RegionCase, batch: int) -> Task:
    return Task(name="a_task", path="a_task.py", source=case.source().replace("(B, ", f"({batch}, "))


def write(case: RegionCase, batch: int = 40) -> str:
    return write_text(task_of(case, batch))


def write_text(task: Task, card: CardModel = FIRST) -> str:
    plan = read_regions(task, probe(task)[0], card)
    settings = RECIPE.defaults(plan, CARDS["h200"], PrecisionClass.IEEE)
    assert settings is not None
    return RECIPE.render(plan, settings)


@pytest.mark.slow  # products have that judged in every run
@pytest.mark.parametrize("case", [ROWS, HEADS], ids=lambda case: case.name)
def test_kernels_are_right_for_another_batch(evaluator: LocalEvaluator, case: RegionCase) -> None:
    text = write(case)
    assert ".shape[0]\n" in text and "[a, 3, 20" in text
    verdict = asyncio.run(evaluator.evaluate(task_of(case, 7), text))
    assert verdict.status is Status.OK, verdict.message


def of_several_sizes(case: RegionCase, batch: int, *others: int) -> Task:
    shapes = [{"batch": other} for other in others]
    source = f"batch = {batch}\nSHAPES = {shapes}\n{case.source().replace('(B, ', '(batch, ')}"
    return Task(name="a_task", path="a_task.py", source=source)


@pytest.mark.parametrize("ahead", [pytest.param(False, marks=pytest.mark.slow), True], ids=["at once", "split ahead"])
@pytest.mark.parametrize("case", [pytest.param(case, marks=LONG.get(case.name, ())) for case in PRODUCTS], ids=lambda case: case.name)
def test_products_are_right_for_every_declared_batch(
    evaluator: LocalEvaluator, monkeypatch: pytest.MonkeyPatch, case: RegionCase, ahead: bool
) -> None:
    monkeypatch.setattr("tritonsmith.author.compiler.plan.prefers_call", lambda *_: False)
    text = write_text(of_several_sizes(case, 5, 1, 40), AHEAD if ahead else FIRST)
    assert ".shape[0]\n" in text and ("_largest_ptr" in text or not ahead)
    verdict = asyncio.run(evaluator.evaluate(of_several_sizes(case, 4, 1, 19), text))
    assert verdict.status is Status.OK, verdict.message


def test_products_of_a_task_of_one_batch_are_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonsmith.author.compiler.plan.prefers_call", lambda *_: False)
    assert "x.shape != (40, 20)" in write(PRODUCTS[0])


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


VALUES = [
    ("for _ in range(k):;    x = torch.cos(x) * 2;return x", "2", "3", "k = 2", "k = 3"),
    ("return (torch.relu(x) if k == 'relu' else torch.tanh(x)) * 2", "'relu'", "'tanh'", "k = 'relu'", "k = 'tanh'"),
    ("x = self.gru(x)[0]; return x[-1] if k else x[0]", "True", "False", "k = True", "k = False"),
]  # fmt: skip


NAMED = (
    pytest.param(*VALUES[0], id="a count"),
    pytest.param(*VALUES[1], id="a name", marks=pytest.mark.slow),
    pytest.param(*VALUES[2], id="a flag of a recurrence", marks=pytest.mark.slow),
)


@pytest.mark.parametrize(("forward", "own", "other", "made_for", "given"), NAMED)
def test_a_value_that_forward_goes_by_is_the_tasks_own_or_refused(
    evaluator: LocalEvaluator, forward: str, own: str, other: str, made_for: str, given: str
) -> None:
    case = RegionCase("values", forward, f"torch.randn(4, 3, 8), {own}", init="self.gru=nn.GRU(8, 8)", arguments="x, k")
    task = task_of(case, 4)
    found = match(task, probe(task)[0], CARDS["h200"])
    assert found is not None
    settings = found.recipes[0].defaults(found.plan, CARDS["h200"], PrecisionClass.IEEE)
    assert settings is not None
    text = found.recipes[0].render(found.plan, settings)
    assert asyncio.run(evaluator.evaluate(task, text)).status is Status.OK
    elsewhere = task.model_copy(update={"source": task.source.replace(f"8), {own}", f"8), {other}")})
    verdict = asyncio.run(evaluator.evaluate(elsewhere, text))
    assert verdict.status is Status.RUNTIME_ERROR
    assert f"with {made_for}, and was given x float32[4, 3, 8] on " in verdict.message
    assert verdict.message.endswith(given)
