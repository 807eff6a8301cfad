"""On a real card: the forms of a module without a recipe, and graphs of kernels that take any batch."""

import asyncio
from pathlib import Path

import pytest

from tritonsmith.author.book import match
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.schema import Status
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.graph.run import optimize
from tritonsmith.graph.storage.outcome import RunOutcome

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

BY_VALUE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else torch.relu(x) - 1


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []
"""
LAYERS = """
import torch
from torch import nn

ROWS = 64
SHAPES = [{"ROWS": (1, 256)}]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(8))
        self.norms = nn.ModuleList(nn.LayerNorm(256) for _ in range(8))

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = x + torch.tanh(layer(norm(x)))
        return x


def get_inputs():
    return [torch.randn(ROWS, 256)]


def get_init_inputs():
    return []
"""


def test_a_module_that_goes_by_values_is_kept_with_its_fastest_form(tmp_path: Path) -> None:
    (tmp_path / "by_value.py").write_text(BY_VALUE)
    summary = optimize(str(tmp_path / "by_value.py"), out=str(tmp_path / "out"), seeds=1)
    assert summary.outcome is RunOutcome.KEPT and summary.kept is not None and summary.kept.among >= 2
    assert summary.answer.startswith("keep your module; its fastest form here is ")
    print(f"{summary.seconds:.0f} s: {summary.answer}")  # noqa: T201 - a figure for the person at the card


def test_kernels_of_any_batch_are_right_in_graphs_of_their_own(tmp_path: Path) -> None:
    """The strict profile judges other batches too: each of them is recorded, up to eight, and further ones are launched one by one."""
    path = tmp_path / "layers.py"
    path.write_text(LAYERS)
    opened: LocalEvaluator
    with open_evaluator("auto", tmp_path / "raw") as opened:
        task = load_task(path)
        facts = asyncio.run(opened.describe(task))
        found = match(task, facts, opened.hardware)
        assert found is not None
        recipe = found.recipes[0]
        settings = recipe.defaults(found.plan, opened.hardware, task.precision)
        assert settings is not None
        text = recipe.render(found.plan, settings | {"replayed": True})
        assert "self.recorded" in text and "== 8" in text
        verdict = opened.evaluate_now(task, text, "strict")
    assert verdict.status is Status.OK, verdict.message
