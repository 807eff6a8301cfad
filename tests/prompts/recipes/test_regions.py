"""Regions: how indices are simplified, where a forward is cut, and that what is written is right."""

import asyncio
import re

import pytest

from recipe_cases.regions import MODULES, RegionCase
from tritonsmith.evaluator.cards import CARDS
from tritonsmith.evaluator.local import LocalEvaluator
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import KernelFacts, Label, LaunchFacts, Status, Task, TaskFacts, Verdict
from tritonsmith.prompts.recipes.book import match
from tritonsmith.prompts.recipes.regions.cutting.regions import CallRegion, PointwiseRegion, RowRegion
from tritonsmith.prompts.recipes.regions.gains import describe_gain
from tritonsmith.prompts.recipes.regions.plan import RegionPlan, read_regions
from tritonsmith.prompts.recipes.regions.recipes import REGIONS
from tritonsmith.prompts.recipes.regions.values.indices import Index, ravel, unravel, variable
from tritonsmith.prompts.recipes.regions.writing.tiling import evaluate

BY_NAME = {case.name: case for case in MODULES}
QUICK = ("group norm", "cross entropy", "attention in parts")
"""Judged in every run: rows, losses with lookups, and PyTorch calls between kernels."""
RECIPE = REGIONS.recipes[0]


def describe(case: RegionCase) -> tuple[Task, TaskFacts]:
    task = Task(name="a_task", path="a_task.py", source=case.source())
    facts, _ = probe(task)
    return task.model_copy(update={"precision": facts.precision}), facts


def plan_of(forward: str, inputs: str, **rest: str) -> RegionPlan:
    return read_regions(*describe(RegionCase("one", forward, inputs, **rest)))


def write(plan: RegionPlan, **changed: int) -> str:
    settings = RECIPE.defaults(plan, CARDS["h200"], Task(name="a", path="a", source="").precision)
    assert settings is not None
    return RECIPE.render(plan, settings | changed)


ROW, PLACE = variable("row", 24), variable("k", 60)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (ravel(unravel(ROW * 60 + PLACE, (2, 12, 5, 12)), (2, 12, 5, 12)), "row * 60 + k"),
        (unravel(ROW * 60 + PLACE, (2, 12, 60))[1], "row % 12"),
        (unravel(ROW * 60 + PLACE, (2, 720))[1], "(row % 12) * 60 + k"),
        ((ROW // 2) // 3, "row // 6"),
        ((ROW * 4 + 3) // 8, "row // 2"),
        ((ROW % 12) % 4, "row % 4"),
        (PLACE * -1 + 59, "-k + 59"),
    ],
    ids=str,
)
def test_indices_read_as_a_person_would_write_them(index: Index, text: str) -> None:
    assert index.text == text


def test_simplified_indices_keep_their_values() -> None:
    """The same numbers as Python's own arithmetic gives, at every row and place."""
    coordinates = unravel(ROW * 60 + PLACE, (4, 9, 40))
    moved = ravel((coordinates[1], coordinates[0], coordinates[2] * -1 + 39), (9, 4, 40))
    for row in range(24):
        for place in range(60):
            first, rest = divmod(row * 60 + place, 360)
            assert evaluate(moved, row, place) == (rest // 40 * 4 + first) * 40 + 39 - rest % 40


def test_work_along_the_same_rows_is_one_kernel() -> None:
    plan = plan_of("return torch.softmax(self.n(x) * 2, -1)", "torch.randn(8, 100)", init="self.n = nn.LayerNorm(100)")
    (region,) = plan.regions
    assert isinstance(region, RowRegion) and len(region.anchors) == 2
    assert write(plan).count("tl.load(x_ptr") == 1, "a row that fits is read once"
    assert write(plan, whole_row=32, tile=32).count("tl.load(x_ptr") == 3, "else once for each pass"


def test_products_stay_calls_and_what_follows_is_one_kernel() -> None:
    plan = plan_of("return torch.tanh(self.l(x)) * 2 + x[:, :4]", "torch.randn(8, 9)", init="self.l = nn.Linear(9, 4)")
    assert [type(region) for region in plan.regions] == [CallRegion, PointwiseRegion]
    assert plan.calls == ("nn.Linear",) and "PyTorch does nn.Linear." in write(plan)


def test_a_value_that_many_read_is_stored_once() -> None:
    """A sum of four tensors would be read by two kernels; the first one stores it."""
    plan = plan_of("s = a + b + c + d; return s.sum(0), s.cumsum(1)", ", ".join(["torch.randn(33, 70)"] * 4), arguments="a, b, c, d")
    reading = [len(region.reads) for region in plan.regions]
    assert reading == [4, 1], "the first kernel stores the sum, and the second one reads it"


def test_few_long_rows_are_shared_by_programs() -> None:
    plan = plan_of("return x / x.norm()", "torch.randn(4, 50000)")
    text = write(plan)
    assert re.findall(r"^def (\w+)\(", text, re.M)[:3] == ["norm_kernel", "join_norm_kernel", "div_kernel"]


def test_settings_of_every_stage_change_the_text() -> None:
    plan = plan_of("return F.layer_norm(x, (9000,)) + x.sum(), x * 2", "torch.randn(300, 9000)")
    plain = write(plan)
    for stage in RECIPE.tunables:
        for name, values in RECIPE.list_tunables(plan, stage).items():
            assert len({plain, *(write(plan, **{name: int(value)}) for value in values)}) > 1, name


def test_an_analysis_names_the_region_with_most_to_gain() -> None:
    plan = plan_of("return torch.softmax(self.l(x), -1)", "torch.randn(4096, 512)", init="self.l = nn.Linear(512, 512)")
    said = describe_gain(plan, CARDS["h200"], slow_verdict("softmax_kernel", 3.0))
    assert said.startswith("of 2 regions softmax_kernel has most to gain: it takes 3 ms, and its bytes take 0.00")
    assert describe_gain(plan_of("return x.softmax(-1)", "torch.randn(8, 9)"), CARDS["h200"], None) == ""


def slow_verdict(name: str, device_ms: float) -> Verdict:
    kernel = KernelFacts(name=name, launches=1, device_ms=device_ms)
    return Verdict(status=Status.RACY, facts=LaunchFacts(kernels=(kernel,)))


def judge(evaluator: LocalEvaluator, case: RegionCase) -> None:
    task, facts = describe(case)
    found = match(task, facts, evaluator.hardware)
    assert found is not None
    plan = read_regions(task, facts)
    settings = RECIPE.defaults(plan, evaluator.hardware, task.precision)
    assert settings is not None
    verdict = asyncio.run(evaluator.evaluate(task, RECIPE.render(plan, settings)))
    assert verdict.status is Status.OK, verdict.message
    assert verdict.label is (Label.HYBRID if plan.calls else Label.KERNEL) and not verdict.facts.races


@pytest.mark.parametrize("name", QUICK)
def test_regions_are_right(evaluator: LocalEvaluator, name: str) -> None:
    judge(evaluator, BY_NAME[name])


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in MODULES if case.name not in QUICK], ids=lambda case: case.name)
def test_every_kind_of_region_is_right(evaluator: LocalEvaluator, case: RegionCase) -> None:
    judge(evaluator, case)
