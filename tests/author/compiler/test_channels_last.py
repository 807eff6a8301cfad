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
        self.n1, self.c1 = nn.GroupNorm(2, 32), nn.Conv2d(32, 64, 3, padding=1)
        self.t = nn.Linear(10, 64)
        self.n2, self.c2 = nn.GroupNorm(8, 64), nn.Conv2d(64, 33, 3, padding=1)
        self.skip = nn.Conv2d(32, 33, 1)
        self.half()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))

def get_inputs():
    return [torch.randn(2, 32, 5, 7, dtype=torch.float16), torch.randn(2, 10, dtype=torch.float16)]

def get_init_inputs():
    return []
"""
STEPS = """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(32, 64, 3, padding=1, stride=2), nn.Conv2d(64, 330, (1, 3), padding="same")
        self.n = nn.BatchNorm2d(330)
        self.bfloat16()

    def forward(self, x):
        return F.relu(self.n(self.c2(F.silu(self.c1(x)))))

def get_inputs():
    return [torch.randn(1, 32, 16, 18, dtype=torch.bfloat16)]

def get_init_inputs():
    return []
"""
AUTHOR = RecipeAuthor()


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(name="block", path="block.py", source=BLOCK)


def write(task: Task, **choices: Choice) -> str:
    """The module with choices for its convolutions, by their names."""
    brief = Brief(task=task, facts=probe(task)[0], hardware=CARDS["h200"].model_copy(update={"present": True}))
    draft = asyncio.run(AUTHOR.seed(brief))
    candidate = Candidate(id="c1", sha="1", stage=Stage.SEED, recipe=draft.recipe, settings=draft.settings)
    current = Attempt(candidate=candidate, source=draft.source, verdict=scripted_verdict(0.3))
    analysis = Analysis(
        bottleneck="", optimisation_method="another cut", modification_plan="", category="algorithm_replacement",  # type: ignore[arg-type]
        kernel_type="regions", settings={"cut": write_cut(choices)},
    )
    changed = asyncio.run(AUTHOR.optimize(brief.model_copy(update={"current": current, "analysis": analysis})))
    assert changed is not None
    return changed.source


@pytest.fixture(scope="module")
def text(task: Task) -> str:
    """The module with its convolutions left to the library."""
    return write(task, **dict.fromkeys(("c1", "c2", "skip"), Choice.CHANNELS_LAST))


@pytest.fixture(scope="module")
def own_text(task: Task) -> str:
    """The module with two convolutions of its own."""
    return write(task, c1=Choice.OWN_LAST, c2=Choice.OWN_LAST, skip=Choice.CHANNELS_LAST)


@pytest.mark.parametrize("fixture", ["text", "own_text"])
def test_such_a_module_is_right(evaluator: LocalEvaluator, task: Task, fixture: str, request: pytest.FixtureRequest) -> None:
    verdict = asyncio.run(evaluator.evaluate(task, request.getfixturevalue(fixture)))
    assert verdict.status is Status.OK, verdict.message


def test_a_convolution_whose_windows_lie_apart_is_written_another_way(evaluator: LocalEvaluator) -> None:
    task = Task(name="steps", path="steps.py", source=STEPS)
    text = write(task, c1=Choice.OWN_LAST, c2=Choice.OWN_LAST)
    assert text.count("images = tl.make_tensor_descriptor(") == 1 and text.count("memory_format=torch.channels_last") == 1
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


def test_a_convolution_reads_boxes_of_an_image_whose_rim_is_zero(own_text: str) -> None:
    assert "F.conv2d(" not in own_text and own_text.count("self.c1.weight.permute(0, 2, 3, 1).contiguous()") == 1
    assert "[2, 5, 7, 32], [1120, 224, 32, 1], [2, 8, 8, BLOCK_K]" in own_text
    assert "memory_format=torch.channels_last" in own_text


def test_no_bias_is_left_to_a_launch_of_its_own(text: str) -> None:
    calls = re.findall(r"F\.conv2d\(.*", text)
    assert len(calls) == 2 and all("bias=None" in call for call in calls)
    for bias in ("self.c1.bias", "self.c2.bias", "self.skip.bias"):
        assert re.search(rf"\w+\[\(\d+,\)\]\((?s:.)*?{re.escape(bias)}", text), bias


def test_a_window_of_one_place_is_a_product_of_matrices(text: str) -> None:
    assert re.search(r"F\.linear\(\w+, self\.skip\.weight\.reshape\(\(33, 32\)\)\)", text)


def test_moments_of_a_group_go_along_its_channels_first(text: str) -> None:
    (line,) = [line for line in text.splitlines() if "tl.load(c1_ptr" in line and "row" in line]
    assert "(k // 8) * 64" in line and "k % 8" in line


def test_what_changes_the_order_of_an_image_has_tiles(text: str) -> None:
    tiled = [kernel for kernel in text.split("@triton.jit") if "ACROSS: tl.constexpr" in kernel]
    assert len(tiled) == 2  # into the first convolution, and out of the last one
    assert all("%" not in line for kernel in tiled for line in kernel.splitlines() if "tl.load" in line)
