"""One module for every size that a task declares: right at each of them, and refused in one sentence where it cannot be had."""

import asyncio

import pytest

from recipe_cases.declared import SizedCase
from recipe_cases.regions import RegionCase
from tritonsmith.author.book import explain_refusal, list_matches, match
from tritonsmith.author.compiler.plan import RegionPlan
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task
from tritonsmith.evaluator.tasks.files import at_shape

SOFTMAX = RegionCase("softmax", "return torch.softmax(x*2, -1)", "torch.randn(R, N)")
NORM = RegionCase("norm", "return torch.softmax(self.n(x), 1)", "torch.randn(R, N, 12)", init="self.n=nn.LayerNorm(12)")
POOL = RegionCase("pool", "return F.max_pool2d(torch.relu(x), 2)*3", "torch.randn(2, 3, R, N)")
ATTENTION = RegionCase(
    "attention", "return F.scaled_dot_product_attention(x, y, y)+x", "torch.randn(2, 3, R, 16), torch.randn(2, 3, N, 16)", arguments="x, y"
)
IMAGES = RegionCase("images", "return torch.relu(self.b(self.c(x)))", "torch.randn(2, 3, R, N)",
                    init="self.c=nn.Conv2d(3, 8, 3, stride=2, padding=1); self.b=nn.BatchNorm2d(8)")  # fmt: skip
RESAMPLED = RegionCase("resampled", "return torch.relu(F.interpolate(x, scale_factor=2, mode='bilinear'))", "torch.randn(2, 3, R, N)")
STEPS = RegionCase("steps", "return torch.relu(self.g(x)[0]).mean(1)", "torch.randn(R, N, 6)", init="self.g=nn.GRU(6, 8, batch_first=True)")


def task_of(case: RegionCase, shapes: str, sizes: str = "R, N = 4, 20", constructor: str = "") -> Task:
    sized = SizedCase(**vars(case), shapes=shapes, sizes=sizes, constructor=constructor)
    return Task(name="a_task", path="a_task.py", source=sized.source())


def write(task: Task) -> str:
    found = match(task, probe(task)[0], CARDS["h200"])
    assert found is not None
    settings = found.recipes[0].defaults(found.plan, CARDS["h200"], PrecisionClass.IEEE)
    assert settings is not None
    return found.recipes[0].render(found.plan, settings)


def explain(task: Task) -> str:
    facts = probe(task)[0]
    assert match(task, facts, CARDS["h200"]) is None
    return explain_refusal(task, facts, CARDS["h200"])


def judge(evaluator: LocalEvaluator, task: Task, text: str, *sizes: dict[str, int]) -> None:
    for changes in sizes:
        verdict = asyncio.run(evaluator.evaluate(at_shape(task, dict(changes)), text))
        assert verdict.status is Status.OK, (changes, verdict.message)


def test_sizes_that_differ_in_numbers_alone_share_a_forward_and_its_kernels(evaluator: LocalEvaluator) -> None:
    task = task_of(NORM, "[{'N': 7}, {'N': 33, 'R': 2}]")
    text = write(task)
    assert text.count("@triton.jit") == 2 and text.count("def forward") == 1
    assert "x float32[a, n, 12], n one of 20, 7, 33, a up to" in text and "x.shape[1] not in (20, 7, 33)" in text
    assert "spread = torch.empty((batch, n, 1)" in text and "N: tl.constexpr" in text
    judge(evaluator, task, text, {"N": 33, "R": 2})
    refused = asyncio.run(evaluator.evaluate(at_shape(task, {"N": 8}), text))
    assert refused.status is Status.RUNTIME_ERROR and "and was given x float32[4, 8, 12]" in refused.message


def test_other_kernels_for_other_sizes_have_a_forward_of_their_own(evaluator: LocalEvaluator) -> None:
    task = task_of(POOL, "[{'R': 5}, {'N': 7, 'R': 6}]")
    text = write(task)
    assert "return self.forward_1(x)" in text and "def forward_2(self, x):\n        \"\"\"For x float32[" in text
    judge(evaluator, task, text, {"R": 5})


def test_a_long_span_is_written_by_the_rule_that_sizes_within_follow(evaluator: LocalEvaluator) -> None:
    task = task_of(SOFTMAX, "[{'N': (3, 300), 'R': (1, 9)}]")
    text = write(task)
    assert "3 <= x.shape[1] <= 300" in text and "n from 3 to 300" in text
    assert "BLOCK=max(triton.next_power_of_2(n), 8)" in text and " if n <= " in text
    judge(evaluator, task, text, {"N": 256, "R": 1}, {"N": 40, "R": 7})


def test_arguments_of_the_constructor_may_differ_too(evaluator: LocalEvaluator) -> None:
    case = RegionCase("made", "return torch.softmax(self.n(x), -1)", "torch.randn(R, N)", init="self.n=nn.LayerNorm(n)")
    task = task_of(case, "[{'N': 33}, {'R': 7}]", constructor="n")
    text = write(task)
    assert 'MADE_WITH = (  # arguments of ModelNew, one of these sets\n    {"n": 20},\n    {"n": 33},\n)' in text
    assert "self.n.weight = nn.Parameter(torch.empty((n,)" in text and "(self.made, x.shape[1]) not in ((0, 20), (1, 33))" in text
    judge(evaluator, task, text, {"N": 33})


def test_a_family_whose_kernels_refuse_a_declared_size_leaves_the_task_to_regions() -> None:
    case = RegionCase("chain", "return torch.tanh(x*self.s)*2", "torch.randn(R, 3, N)", init="self.s=nn.Parameter(torch.ones(3, 1))")
    assert "A chain of elementwise operations" in write(task_of(case, "[{'R': 7}]"))
    assert "sizes of its inputs" in write(task_of(case, "[{'N': 7}]"))


def test_a_product_of_few_images_and_one_of_many_may_be_other_kernels() -> None:
    """In TF32 two images are products of their own, and very many are one with more columns: no kernel is for both."""
    case = RegionCase("images", "return torch.relu(self.c(x))", "torch.rand(R, 3, N, N)", init="self.c=nn.Conv2d(3, 64, 7, 2, 3)")
    task = task_of(case, "[{'R': 3}]", "R, N = 2, 40").model_copy(update={"precision": PrecisionClass.TF32})
    facts = probe(task)[0]
    (found,) = (one for one in list_matches(task, facts, CARDS["h200"]) if one.recipes[0].name == "regions")
    assert isinstance(found.plan, RegionPlan) and found.plan.free is None
    assert [plan.facts.inputs[0].shape[0] for plan in found.plan.all_sizes if plan.facts.inputs[0]] == [2, 3]


SAID = {
    "nothing shows it": (
        RegionCase("count", "y=x; y=[y:=torch.softmax(y*1.5, -1) for _ in range(N)][-1]; return y", "torch.randn(R, 8)"), "[{'N': 3}]",
        "the size N = 3 that SHAPES declares: nothing that the module is given shows it",
    ),
    "weights": (
        RegionCase("weights", "return self.n(x)*2", "torch.randn(R, N)", init="self.n=nn.LayerNorm(N)"), "[{'N': 3}]",
        "sizes that SHAPES declares whose weights differ, while the constructor gets the same arguments",
    ),
    "reference": (
        RegionCase("half", "return x.view(R, 2, 10).softmax(1)", "torch.randn(R, N)"), "[{'N': 3}]",
        "the size N = 3 that SHAPES declares (a_task.py, line 15: forward raised RuntimeError",
    ),
    "span": (
        RegionCase("sum", "return torch.relu(x).mean(1)", "torch.randn(R, N, 6)"), "[{'N': (2, 4000)}]",
        "every size of N = (2, 4000) that SHAPES declares, between which kernels differ; shorter spans or single sizes may do",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_a_size_that_cannot_be_had_is_told(name: str) -> None:
    case, shapes, said = SAID[name]
    assert explain(task_of(case, shapes)).startswith(said)


@pytest.mark.slow
@pytest.mark.parametrize("case", [ATTENTION, IMAGES, RESAMPLED, STEPS, POOL, NORM], ids=lambda case: case.name)
def test_every_kind_of_region_is_right_at_each_declared_size(evaluator: LocalEvaluator, case: RegionCase) -> None:
    others = ({"R": 5}, {"N": 9}, {"R": 6, "N": 11})
    task = task_of(case, repr(list(others)), sizes="R, N = 4, 8")
    judge(evaluator, task, write(task), {}, *others)
