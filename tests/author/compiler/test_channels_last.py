"""Images whose channels are neighbours in memory: what kernels around the library's convolutions read and write."""

import asyncio
import importlib.util
import re
from pathlib import Path

import pytest

from recipe_cases.operands import list_left_operands
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
RAGGED = """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.c2, self.n2 = nn.Conv2d(32, FILTERS, 3, padding=1, bias=False), nn.BatchNorm2d(FILTERS)
        self.half()

    def forward(self, x):
        return F.relu(self.n2(self.c2(F.relu(self.n1(self.c1(x))))))

def get_inputs():
    return [torch.randn(BATCH, 32, SIDE, SIDE, dtype=torch.float16)]

def get_init_inputs():
    return []
"""
SIDES = {28: (1, 4, 32), 14: (1, 8, 16), 7: (2, 8, 8)}
"""Sides of an image that no box of 128 places divides, and the boxes."""
AUTHOR = RecipeAuthor()


def make_ragged(batch: int, side: int, filters: int = 40) -> Task:
    """Two convolutions with batch norm of that many images of side x side."""
    source = f"BATCH, SIDE, FILTERS = {batch}, {side}, {filters}\n{RAGGED}"
    return Task(name="ragged", path="ragged.py", source=source)


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


@pytest.mark.slow  # the next test has a convolution of each kind judged
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


@pytest.mark.slow
@pytest.mark.parametrize("side", SIDES)
def test_boxes_that_do_not_divide_an_image_are_right(evaluator: LocalEvaluator, side: int) -> None:
    task = make_ragged(3 if side == 7 else 1, side)
    text = write(task, c1=Choice.OWN_LAST, c2=Choice.OWN_LAST)
    box = ", ".join(map(str, SIDES[side]))
    assert text.count(f"[{box}, BLOCK_K])") == 2
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


def test_operands_of_a_convolution_are_read_from_shared_memory(tmp_path: Path) -> None:
    """On Hopper registers of a left operand may be written while tensor cores still read them, by ptxas below 13.3."""
    text = write(make_ragged(8, 32, 640), c1=Choice.OWN_LAST, c2=Choice.OWN_LAST)
    assert "REST=64" in text
    assert list_left_operands(text, "images = ", tmp_path) == ["memdesc"] * 3  # 32 filters, and 256 + 64 filters


@pytest.mark.gpu
@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.parametrize("side", [56, *SIDES])
def test_a_convolution_gives_the_same_bits_each_time(side: int, replayed: bool, tmp_path: Path) -> None:
    import torch  # which most tests here do without

    text = write(make_ragged(32, side, 320), c1=Choice.OWN_LAST, c2=Choice.OWN_LAST)
    (tmp_path / "text.py").write_text(text)  # Triton reads a kernel's source from its file
    spec = importlib.util.spec_from_file_location("text", tmp_path / "text.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    model = module.ModelNew().cuda()
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data.uniform_(0.01, 0.1)
    x = torch.randn(32, 32, side, side, device="cuda", dtype=torch.float16)
    graph, result = torch.cuda.CUDAGraph(), None
    with torch.no_grad():
        first = model(x)
        if replayed:
            with torch.cuda.graph(graph):
                result = model(x)
        different = 0
        for _ in range(200):
            if replayed:
                graph.replay()
            different += not torch.equal(first, result if replayed else model(x))
    assert first.isfinite().all() and different == 0


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
