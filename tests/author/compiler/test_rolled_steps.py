"""What forward repeats with numbers that grow evenly is a loop, and anything else is not."""

import asyncio

import pytest

from recipe_cases.records import read_module
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.compiler.module.rolling import roll_steps
from tritonsmith.author.compiler.plan import read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Status, Task

LAYERS = "self.a = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.LayerNorm(32)) for _ in range(5))"
FORWARD = "found = []\nfor layer in self.a: x = x + layer(x); found.append(x.mean())\nreturn x, torch.stack(found)"


def roll(lines: list[str], returned: str) -> tuple[list[str], str]:
    text = roll_steps(read_module(lines, returned)).as_text()
    return text.forward, text.returned


def repeat(line: str, count: int = 10, first: int = 0) -> list[str]:
    return [line.format(n=n, before=n - 1, last=n - 3) for n in range(first, first + count)]


def test_equal_layers_are_a_loop_over_them(evaluator: LocalEvaluator) -> None:
    """Each layer has weights of its own, and reads what the one before left."""
    task = Task(name="a_task", path="a_task.py", source=RegionCase("one", FORWARD, "torch.randn(6, 32)", LAYERS, "x").source())
    facts = asyncio.run(evaluator.describe(task))
    task = task.model_copy(update={"precision": facts.precision})
    plan = read_regions(task, facts, FIRST)
    settings = REGIONS.recipes[0].defaults(plan, evaluator.hardware, plan.precision)
    assert settings is not None
    text = REGIONS.recipes[0].render(plan, settings)
    assert "for step in range(" in text and 'self.a[str(step)]["0"].weight' in text and "last_add = add" in text
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


def test_what_grows_evenly_follows_the_counter() -> None:
    lines, returned = roll(repeat('y_{n} = f(y_{before}, self.a["{n}"], "a.{n}.b", at=3, begin=7)', 10, 1), "y_10")
    repeated = '    y = f(y, self.a[str(step)], f"a.{step}.b", at=3, begin=7)'
    assert lines == ["y = y_0", "for step in range(1, 11):", repeated] and returned == "y"
    lines, returned = roll([f"y_{n} = f(x, {5 + 3 * n}, -{n})" for n in range(10)], "torch.stack([y_9, y_0, y_3])")
    assert lines[1:3] == ["for step in range(10):", "    y = f(x, 5 + 3 * step, -(step))"]
    assert returned == "torch.stack([y_by_step[9], y_by_step[0], y_by_step[3]])"
    lines, returned = roll(repeat("y_{n} = f(x, {n})"), f"({', '.join(repeat('y_{n}'))},)")
    assert returned == "(*y_by_step,)"


def test_what_a_step_still_reads_of_the_one_before_keeps_its_value() -> None:
    lines, returned = roll([part for n in range(1, 8) for part in (f"y_{n} = f(x, {n})", f"g(y_{n}, y_{n - 1})")], "y_7")
    assert lines == ["last_y = y_0", "for step in range(1, 8):", "    y = f(x, step)", "    g(y, last_y)", "    last_y = y"]
    assert returned == "y"


def test_a_variable_that_is_set_again_behind_is_no_step() -> None:
    lines, returned = roll([*(f"y_{n} = f(x, {n} + n)" for n in range(10)), "y_0 = f(y_9)"], "y_0")
    assert lines == ["y_0 = f(x, 0 + n)", "for step in range(1, 10):", "    y = f(x, (step) + n)", "y_0 = f(y)"] and returned == "y_0"


@pytest.mark.parametrize(
    "lines",
    [
        repeat("y_{n} = f(y_{last}, {n})", 10, 3),  # three steps back, and so three steps of three statements
        [f"y_{n} = f(x, {n * n})" for n in range(10)],  # no even growth
        repeat("y_{n} = f(x, {n})", 3),  # three steps are read as easily
        [f"y_{n}, z_{n} = f(x, {n})" for n in range(10)],  # several results of one call
        [f"y_{n % 3} = f(x, {n})" for n in range(10)] + ["y_9 = f(y_0)"],  # a variable that several steps set
    ],
)
def test_other_repetitions_stay_as_they_are(lines: list[str]) -> None:
    assert roll(lines, "y_9") == (lines, "y_9")
