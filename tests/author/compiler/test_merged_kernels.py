"""Kernels that differ in whole numbers alone are one kernel, which takes these numbers as arguments."""

import asyncio
import re

import pytest

from recipe_cases.reading import AHEAD
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST, CardModel
from tritonsmith.author.compiler.module.merging import merge_kernels
from tritonsmith.author.compiler.plan import PLAIN, RegionPlan, read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Status, Task

STEPS = "for t in range(6): y = torch.tanh(self.a(torch.cat((x[t], y), dim=1))); return y"
WIDTHS = "return torch.tanh(self.c(torch.tanh(self.b(torch.tanh(self.a(x))))))"
LAYERS = "self.a = nn.Conv1d(64, 32, 3); self.b = nn.Conv1d(32, 96, 3); self.c = nn.Conv1d(96, 32, 5)"


async def plan_of(
    evaluator: LocalEvaluator, forward: str, inputs: str, layers: str = "pass", card: CardModel = FIRST
) -> tuple[Task, RegionPlan]:
    source = RegionCase("one", forward, inputs, layers, "x, y" if "y" in forward else "x").source()
    task = Task(name="a_task", path="a_task.py", source=source)
    facts = await evaluator.describe(task)
    task = task.model_copy(update={"precision": facts.precision})
    return task, read_regions(task, facts, card)


def launches_of(text: str) -> list[tuple[str, str]]:
    """Kernel and arguments of each launch."""
    return re.findall(r"^        (\w+)\[.*?\]\((.*?)\)$", text, re.DOTALL | re.MULTILINE)


def write(plan: RegionPlan, evaluator: LocalEvaluator) -> str:
    recipe = REGIONS.recipes[0]
    settings = recipe.defaults(plan, evaluator.hardware, plan.precision)
    assert settings is not None
    return recipe.render(plan, settings)


def test_all_steps_of_a_loop_have_one_kernel(evaluator: LocalEvaluator) -> None:
    task, plan = asyncio.run(plan_of(evaluator, STEPS, "torch.randn(6, 4, 16), torch.randn(4, 16)", "self.a = nn.Linear(32, 16)"))
    text = write(plan, evaluator)
    assert "for step in range(1, 5):\n" in text and "x_start=64 * step, BLOCK=" in text and "x_start=320" in text
    assert "x_start, BLOCK: tl.constexpr" in text and "+ x_start" in text, "known at the launch only: it is compiled once"
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.slow
def test_weights_of_several_widths_are_split_by_one_kernel(evaluator: LocalEvaluator) -> None:
    task, plan = asyncio.run(plan_of(evaluator, WIDTHS, "torch.randn(2, 64, 24)", LAYERS))
    text = write(plan, evaluator)
    kept = re.findall(r'self\.keep\("\w\.weight", (\w+), self\.\w\.weight, \(.*?\), STEPS=(\d), M=(\d+), K=(\d+)\)\n', text)
    assert [one[1:] for one in kept] == [("3", "32", "64"), ("3", "96", "32"), ("5", "32", "96")] and len({one[0] for one in kept}) == 1
    assert "weight_at = m * (K * STEPS)" in text and "(m < M) & (across < K)" in text, "numbers that follow from others are no arguments"
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


def test_a_merged_kernel_is_called_with_its_numbers_on_several_lines(monkeypatch: pytest.MonkeyPatch, evaluator: LocalEvaluator) -> None:
    """The function that does a tile again has so many arguments that its call is wrapped."""
    monkeypatch.setattr("tritonsmith.author.compiler.plan.prefers_call", lambda *_: False)
    sizes = enumerate(((64, 128), (128, 256), (256, 64)))
    layers = "; ".join(f"self.c{n}=nn.Conv2d({a}, {b}, 3, padding=1, bias=False); self.n{n}=nn.BatchNorm2d({b})" for n, (a, b) in sizes)
    forward = "; ".join(f"x=F.relu(self.n{n}(self.c{n}(x)))" for n in range(3)) + "; return x"
    _, plan = asyncio.run(plan_of(evaluator, forward, "torch.randn(2, 64, 16, 16)", layers, AHEAD))
    text = write(plan, evaluator)
    assert compile(text, "kernel", "exec") and re.search(r"_exactly\(\n[^)]*, 16,\s+\d+, [^)]*\n +\)", text)


@pytest.mark.parametrize("forward", ["return x.softmax(-1), (y * 2.0).softmax(-1)", "return x.cumsum(-1), y.sum(-1)", "return x * 2.0 + y"])
def test_other_differences_keep_kernels_apart(evaluator: LocalEvaluator, forward: str) -> None:
    _, plan = asyncio.run(plan_of(evaluator, forward, "torch.randn(4, 48), torch.randn(4, 48)"))
    module = plan.compose(PLAIN)
    assert merge_kernels(module) is module
    assert not any("SIZE" in kernel or "LIMIT" in kernel for kernel in module.as_text().kernels)


def test_a_docstring_holds_for_all_launches(evaluator: LocalEvaluator) -> None:
    layers = "self.a = nn.LayerNorm(48); self.b = nn.LayerNorm(80)"
    _, plan = asyncio.run(plan_of(evaluator, "return self.a(x), self.b(y)", "torch.randn(4, 48), torch.randn(6, 80)", layers))
    text = plan.write(PLAIN)
    (kernel,) = text.kernels
    assert '"""layer_norm of rows of SIZE."""' in kernel and "/ SIZE + 1e-05" in kernel
    assert re.findall(r"\bSIZE=(\d+)", "\n".join(text.forward)) == ["48", "80"]
    assert plan.headline == "The reference's forward in 1 kernel." and set(plan.kernel_names) == {("layer_norm_kernel",)}
