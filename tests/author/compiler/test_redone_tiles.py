"""Tiles whose values fp16 parts cannot hold are done again as a whole, behind their stores; the others stay."""

import asyncio

import pytest

from recipe_cases.reading import AHEAD, change_card, describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.compiler.plan import read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Status, Task

IMAGES, CONV = "torch.randn(3, 8, 18, 18) * torch.tensor([1.0, 1e6, 1e-6])[:, None, None, None]", "self.c = nn.Conv2d(8, 64, 3, padding=1)"
CASES = {
    "a pool and extremes": ("y = torch.tanh(self.c(x) * 1e-3); return F.max_pool2d(y, 2), y.amax((2, 3))", IMAGES, CONV),
    "a pool and sums": ("y = torch.tanh(self.c(x) * 1e-3); return F.max_pool2d(y, 2), y.mean((2, 3))", IMAGES, CONV),
    "a pool of volumes": (
        "return F.max_pool3d(self.c(x), 2)", "torch.randn(2, 8, 8, 8, 10) * torch.tensor([1.0, 1e6])[:, None, None, None, None]",
        "self.c = nn.Conv3d(8, 64, 3)",
    ),
    "a linear layer": ("return F.gelu(self.c(x))", "torch.randn(150, 76) * 1e6", "self.c = nn.Linear(76, 33)"),
    "phases": ("return torch.softmax(self.c(x), 1)", "torch.randn(2, 32, 5, 6) * 1e6", "self.c = nn.ConvTranspose2d(32, 20, 4, 2, 1)"),
    "two operands": ("return (x @ x.transpose(1, 2)).relu()", "torch.randn(2, 37, 44) * 1e-6", "self.c = nn.Identity()"),
    "written in place": ("x.add_(self.c(x)); return x * 2", "torch.randn(150, 76) * 1e6", "self.c = nn.Linear(76, 76)"),
}  # fmt: skip

RARE = ("(tl.max(right_wide, 0) > 0) | is_rough(tl.max(exponent, 1)):", "rough:")
"""The condition in kernels that multiply the whole depth at once, and in others."""


@pytest.mark.parametrize("name", [one if one == "two operands" else pytest.param(one, marks=pytest.mark.slow) for one in CASES])
def test_a_tile_that_is_done_again_is_right(evaluator: LocalEvaluator, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    task, text, _ = write(evaluator, monkeypatch, name)
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_tile_that_should_be_done_again_and_is_not_is_refused(
    evaluator: LocalEvaluator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    task, text, rare = write(evaluator, monkeypatch, name)
    broken = asyncio.run(evaluator.evaluate(task, text.replace(f"    if {rare}", f"    if (tl.program_id(0) < 0) & ({rare[:-1]}):")))
    assert broken.status is Status.INACCURATE


def write(evaluator: LocalEvaluator, monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[Task, str, str]:
    """The task, the text, and the condition at which a tile is done again."""
    monkeypatch.setattr("tritonsmith.author.compiler.plan.prefers_call", lambda *_: False)
    forward, inputs, init = CASES[name]
    case = RegionCase(name, forward, inputs, init)
    task, facts = describe_case(case)
    plan = read_regions(task, facts, change_card(AHEAD, rows={"l2_cached": 0.0, "on_chip": 0.0}))
    settings = REGIONS.recipes[0].defaults(plan, evaluator.hardware, plan.precision)
    assert settings is not None
    text = REGIONS.recipes[0].render(plan, settings)
    rare = next(one for one in RARE if f"    if {one}" in text)
    assert (rare == RARE[0]) == (name == "a pool and extremes")
    assert ("@triton.jit(noinline=True)" in text) == ("num_warps=4, num_stages" in text)
    return task, text, rare
