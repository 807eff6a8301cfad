"""Kernels are judged on the inputs and the weights that a task brings along, beside drawn ones."""


import pytest
import torch

from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Status, Task
from tritonsmith.evaluator.tasks.files import load_task

MODEL = """
import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, x):
        return {result}
"""
REST = """

WEIGHTS = "weights.pt"
INPUTS = "inputs.pt"


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""
RIGHT = "x * self.scale + 1"
CANDIDATES = {
    "right": (RIGHT, "quick", Status.OK),
    "wrong on the real inputs": ("torch.where(x == 1234.5, x, x * self.scale + 1)", "quick", Status.INACCURATE),
    "right on the real weights too": (RIGHT, "strict", Status.OK),
    "wrong with the real weights": ("torch.where(self.scale == 0.375, x, x * self.scale + 1)", "strict", Status.INACCURATE),
    "wrong with both": ("torch.where((x == 1234.5) & (self.scale == 0.375), x, x * self.scale + 1)", "strict", Status.INACCURATE),
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("brought")
    inputs, weights = torch.randn(4, 8), torch.rand(8)
    inputs[2, 5], weights[5] = 1234.5, 0.375
    torch.save([inputs], folder / "inputs.pt")
    torch.save({"scale": weights}, folder / "weights.pt")
    (folder / "scaled.py").write_text(MODEL.format(name="Model", result=RIGHT) + REST)
    return load_task(folder / "scaled.py")


@pytest.mark.parametrize(("result", "profile", "status"), CANDIDATES.values(), ids=CANDIDATES)
def test_real_inputs_and_weights_are_judged(
    evaluator: LocalEvaluator, task: Task, result: str, profile: str, status: Status
) -> None:
    verdict = evaluator.evaluate_now(task, MODEL.format(name="ModelNew", result=result), profile)
    assert verdict.status is status, f"{verdict.status}: {verdict.message}"
