"""Images whose channels are neighbours in memory: what kernels around the library's convolutions read and write."""

import asyncio
import re

import pytest

from tritonsmith.author.built_in import RecipeAuthor
from tritonsmith.author.compiler.reading.choices import Choice, write_cut
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Candidate, Stage, Status, Task
from tritonsmith.nodes.evaluators.scripted import scripted_verdict
from tritonsmith.prompts.analysis import Analysis
from tritonsmith.prompts.author import Attempt, Brief

BLOCK = """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(2, 16), nn.Conv2d(16, 24, 3, padding=1)
        self.t = nn.Linear(10, 24)
        self.n2, self.c2 = nn.GroupNorm(3, 24), nn.Conv2d(24, 24, 3, padding=1)
        self.skip = nn.Conv2d(16, 24, 1)
        self.half()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))

def get_inputs():
    return [torch.randn(2, 16, 5, 7, dtype=torch.float16), torch.randn(2, 10, dtype=torch.float16)]

def get_init_inputs():
    return []
"""
AUTHOR = RecipeAuthor()


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(name="block", path="block.py", source=BLOCK)


@pytest.fixture(scope="module")
def text(task: Task) -> str:
    """The module with its convolutions left to the library, channels last."""
    brief = Brief(task=task, facts=probe(task)[0], hardware=CARDS["h200"].model_copy(update={"present": True}))
    draft = asyncio.run(AUTHOR.seed(brief))
    candidate = Candidate(id="c1", sha="1", stage=Stage.SEED, recipe=draft.recipe, settings=draft.settings)
    current = Attempt(candidate=candidate, source=draft.source, verdict=scripted_verdict(0.3))
    analysis = Analysis(
        bottleneck="", optimisation_method="another cut", modification_plan="", category="algorithm_replacement",  # type: ignore[arg-type]
        kernel_type="regions", settings={"cut": write_cut(dict.fromkeys(("c1", "c2", "skip"), Choice.CHANNELS_LAST))},
    )
    changed = asyncio.run(AUTHOR.optimize(brief.model_copy(update={"current": current, "analysis": analysis})))
    assert changed is not None
    return changed.source


def test_such_a_module_is_right(evaluator: LocalEvaluator, task: Task, text: str) -> None:
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


def test_no_bias_is_left_to_a_launch_of_its_own(text: str) -> None:
    calls = re.findall(r"F\.conv2d\(.*", text)
    assert len(calls) == 2 and all("bias=None" in call for call in calls)
    for bias in ("self.c1.bias", "self.c2.bias", "self.skip.bias"):
        assert re.search(rf"\w+\[\(\d+,\)\]\((?s:.)*?{re.escape(bias)}", text), bias


def test_a_window_of_one_place_is_a_product_of_matrices(text: str) -> None:
    assert re.search(r"F\.linear\(\w+, self\.skip\.weight\.reshape\(\(24, 16\)\)\)", text)


def test_moments_of_a_group_go_along_its_channels_first(text: str) -> None:
    (line,) = [line for line in text.splitlines() if "tl.load(c1_ptr" in line and "row" in line]
    assert "(k // 8) * 24" in line and "k % 8" in line


def test_what_changes_the_order_of_an_image_has_tiles(text: str) -> None:
    tiled = [kernel for kernel in text.split("@triton.jit") if "ACROSS: tl.constexpr" in kernel]
    assert len(tiled) == 2  # into the first convolution, and out of the last one
    assert all("%" not in line for kernel in tiled for line in kernel.splitlines() if "tl.load" in line)
