"""Convolutions of each channel by itself whose channels are neighbours in memory."""

import asyncio
import re
from pathlib import Path

import pytest

from compiled_products import import_file
from tritonsmith.author.cards.model import model_card
from tritonsmith.author.compiler.contests import list_parts
from tritonsmith.author.compiler.plan import RegionPlan, read_regions
from tritonsmith.author.compiler.reading.choices import Choice, write_cut
from tritonsmith.author.compiler.recipes import PLAIN_RECIPE
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Status, Task

MODULE = """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {members}
        self.to(torch.{dtype})

    def forward(self, x):
        {forward}

def get_inputs():
    return [torch.randn({shape}, dtype=torch.{dtype})]

def get_init_inputs():
    return []
"""
CARD = CARDS["h200"]


def make_task(members: str, forward: str, shape: str, dtype: str = "float16") -> Task:
    """A module of statements."""
    lines = {"members": members.replace("; ", "\n        "), "forward": forward.replace("; ", "\n        ")}
    return Task(name="module", path="module.py", source=MODULE.format(**lines, shape=shape, dtype=dtype))


def make_conformer(batch: int, steps: int, channels: int, taps: int) -> Task:
    """The convolution module of a Conformer layer."""
    members = (
        f"self.norm, self.p1 = nn.LayerNorm({channels}), nn.Conv1d({channels}, {2 * channels}, 1); "
        f"self.d = nn.Conv1d({channels}, {channels}, {taps}, padding={taps // 2}, groups={channels}); "
        f"self.bn, self.p2 = nn.BatchNorm1d({channels}), nn.Conv1d({channels}, {channels}, 1)"
    )
    forward = (
        "h = F.glu(self.p1(self.norm(x).transpose(1, 2)), dim=1); "
        "return x + self.p2(F.silu(self.bn(self.d(h)))).transpose(1, 2)"
    )
    return make_task(members, forward, f"{batch}, {steps}, {channels}")


def plan(task: Task, **choices: Choice) -> RegionPlan:
    """The plan of a task with choices for its convolutions, by their names."""
    return read_regions(task, probe(task)[0], model_card(CARD)).take_cut(write_cut(choices))


def write(task: Task, **choices: Choice) -> str:
    """Its text."""
    found = plan(task, **choices)
    settings = PLAIN_RECIPE.defaults(found, CARD, task.precision)
    assert settings is not None
    return PLAIN_RECIPE.render(found, settings)


def find_windows(text: str) -> str:
    """The first kernel that keeps windows in registers; empty where there is none."""
    kernels = re.findall(r"@triton\.jit\n(def .*?)(?=\n\n\n)", text, re.DOTALL)
    return next((kernel for kernel in kernels if "window = ()" in kernel), "")


@pytest.fixture(scope="module")
def conformer() -> Task:
    return make_conformer(2, 9, 24, 5)


@pytest.mark.slow  # the next test has windows along one axis judged
def test_a_conformer_s_convolution_has_channels_last_throughout(evaluator: LocalEvaluator, conformer: Task) -> None:
    text = write(conformer, d=Choice.OWN_LAST, p1=Choice.OWN_LAST, p2=Choice.OWN_LAST)
    assert "F.conv1d" not in text and find_windows(text)
    assert "torch.empty((5, 1, 24), dtype=torch.float16).permute(2, 1, 0)" in text  # the copy of the launch costs nothing
    verdict = asyncio.run(evaluator.evaluate(conformer, text))
    assert verdict.status is Status.OK, verdict.message


STEPS = make_task(
    "self.p = nn.Conv2d(16, 36, 1); self.d = nn.Conv2d(36, 36, (5, 3), padding=(2, 1), stride=2, groups=36); "
    "self.e = nn.Conv2d(36, 36, 3, dilation=2, padding=2, groups=36); self.q = nn.Conv2d(36, 16, 1)",
    "h = self.e(F.gelu(self.d(self.p(x)))); return self.q(h) + x[..., ::2, ::2]", "1, 16, 7, 11",
)
"""Strides, distances of taps, channels that no block divides, and an image that is asked for twice."""
MATRICES = make_task(
    "self.d, self.n = nn.Conv2d(40, 40, 5, padding=2, groups=40), nn.LayerNorm(40)",
    "return self.n(self.d(x).permute(0, 2, 3, 1))", "1, 40, 3, 6", "float32",
)
CAUSAL = make_task(
    "self.d = nn.Conv1d(40, 40, 4, padding=3, groups=40)",
    "return F.silu(self.d(torch.tanh(x).transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)", "2, 9, 40", "bfloat16",
)
"""Work ahead of the windows, and places of the result that nobody asks for."""


@pytest.mark.parametrize(
    ("task", "names"), [(CAUSAL, "d"), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((STEPS, "pdeq"), (MATRICES, "d")))],
    ids=["causal", "steps", "fp32"],
)
def test_windows_are_right(evaluator: LocalEvaluator, task: Task, names: str) -> None:
    text = write(task, **dict.fromkeys(names, Choice.OWN_LAST))
    assert text.count("window = ()") == len(set(names) & {"d", "e"})
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


def test_costs_choose_channels_last_for_16_bits() -> None:
    kernel = find_windows(write(make_conformer(16, 512, 512, 31)))
    assert kernel.count("tl.static_range(31)") == 1 and "RUN" in kernel
    ahead, _, behind = kernel.partition("total = ")
    assert "sigmoid" not in ahead and "sigmoid" in behind  # the gate is stored once, and SiLU is done on the sums


def test_a_small_window_of_fp32_stays_as_it_is() -> None:
    text = write(make_task("self.d = nn.Conv2d(16, 16, 3, groups=16)", "return self.d(x)", "4, 16, 64, 64", "float32"))
    assert not find_windows(text) and text.count("@triton.jit") == 1


def test_a_gate_ahead_of_many_taps_is_stored_once() -> None:
    members, shape = "self.d = nn.Conv1d(64, 64, {taps}, padding={rim}, groups=64)", "16, 128, 512"
    many = make_task(members.format(taps=31, rim=15), "return self.d(F.glu(x, dim=1))", shape, "float32")
    one = make_task(members.format(taps=1, rim=0), "return self.d(F.glu(x, dim=1))", shape, "float32")
    assert len(plan(many, d=Choice.OWN).regions) == 2 and len(plan(one, d=Choice.OWN).regions) == 1


def test_a_race_compares_all_ways() -> None:
    parts = {part.nodes: part for part in list_parts(plan(make_conformer(16, 512, 512, 31)), CARD)}
    ways = [one.name for one in parts[("d",)].contest.alternatives]
    assert ways == ["own", "library", "own_last"] and parts[("d",)].now is Choice.OWN_LAST
    chained = parts[("d",)].chained
    assert chained is not None and [one.name for one in chained.alternatives] == ["own_last"]
    assert [one.name for one in parts[("p1",)].contest.alternatives] == ["own", "library", "channels_last", "own_last"]


@pytest.mark.gpu
@pytest.mark.parametrize("task", [make_conformer(4, 130, 264, 31), CAUSAL, STEPS, MATRICES], ids=["conformer", "causal", "steps", "fp32"])
def test_windows_are_right_on_a_card(task: Task, tmp_path: Path) -> None:
    import torch  # which most tests here do without

    (tmp_path / "text.py").write_text(write(task, **dict.fromkeys(("p1", "p", "d", "e", "q", "p2"), Choice.OWN_LAST)))
    (tmp_path / "task.py").write_text(task.source)
    torch.manual_seed(0)
    reference = import_file(tmp_path / "task.py").Model().cuda().eval()
    kernel = import_file(tmp_path / "text.py").ModelNew().cuda().eval()  # Triton reads a kernel's source from its file
    kernel.load_state_dict(reference.state_dict())
    (x,) = (one.cuda() for one in import_file(tmp_path / "task.py").get_inputs())
    with torch.no_grad():
        found = kernel(x).double()
        usual = reference(x).double()
        exact = reference.double()(x.double())
    assert (found - exact).abs().max() <= 3 * (usual - exact).abs().max() + 1e-6
