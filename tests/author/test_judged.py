"""Rendered recipes before the evaluator: right, free of races, one launch where one is promised; and refused once their barrier is gone."""

import asyncio
from typing import Any

import pytest

from tritonsmith.author.book import match
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Label, PrecisionClass, Status, Task, Verdict

GRU = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, inputs, hidden, layers):
        super().__init__()
        self.rnn = nn.GRU(inputs, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, 5)

    def forward(self, x):
        y, h = self.rnn(x)
        return self.fc(y[:, -1, :])

def get_inputs():
    return [torch.rand(3, 4, 20)]

def get_init_inputs():
    return [20, 64, 2]
"""
CHAIN = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(6, 1))
        self.softplus = nn.Softplus(beta=2.0)

    def forward(self, x, y):
        return self.softplus(torch.tanh(x) * self.scale - y / 3).clamp(0.1, 2.0)

def get_inputs():
    return [torch.randn(4, 6, 7), torch.randn(6, 7)]

def get_init_inputs():
    return []
"""
LINEAR = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(40, 24), nn.GELU())

    def forward(self, x):
        return self.body(x) * 0.5

def get_inputs():
    return [torch.randn(17, 40)]

def get_init_inputs():
    return []
"""
CASES = [
    (GRU, "recurrent_per_step", PrecisionClass.IEEE),
    (GRU, "recurrent_persistent_batch", PrecisionClass.IEEE),
    (GRU, "recurrent_wavefront", PrecisionClass.IEEE),
    (GRU, "recurrent_wavefront", PrecisionClass.TF32),
    (CHAIN, "pointwise", PrecisionClass.IEEE),
    (LINEAR, "product", PrecisionClass.IEEE),
    (LINEAR, "product", PrecisionClass.TF32),
]


def rendered(evaluator: LocalEvaluator, source: str, name: str, precision: PrecisionClass) -> tuple[Task, str]:
    task = Task(name="a_task", path="a_task.py", source=source, precision=precision)
    found = match(task, asyncio.run(evaluator.describe(task)), evaluator.hardware)
    assert found is not None
    recipe = found.recipe(name)
    assert recipe is not None
    settings = recipe.defaults(found.plan, evaluator.hardware, precision)
    assert settings is not None
    return task, recipe.render(found.plan, settings)


def judged(evaluator: LocalEvaluator, task: Task, text: str) -> Verdict:
    return asyncio.run(evaluator.evaluate(task, text))


def _case(source: str, name: str, precision: PrecisionClass) -> Any:
    """The demo judges both seeds, and TF32 takes the same kernels with another setting: those wait for `make test-all`."""
    slow = name.startswith("recurrent_") or precision is not PrecisionClass.IEEE  # the demo's test has two of them judged
    return pytest.param(source, name, precision, id=f"{name}-{precision.value}", marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize(("source", "name", "precision"), [_case(*case) for case in CASES])
def test_recipes_are_right(evaluator: LocalEvaluator, source: str, name: str, precision: PrecisionClass) -> None:
    task, text = rendered(evaluator, source, name, precision)
    verdict = judged(evaluator, task, text)
    assert verdict.status is Status.OK, verdict.message
    assert verdict.label is Label.KERNEL and not verdict.facts.races
    if source != GRU:
        assert verdict.facts.launches_per_forward == 1
    if name == "recurrent_wavefront":
        assert next(kernel.launches for kernel in verdict.facts.kernels if kernel.name == "gru_wavefront") == 1


@pytest.mark.slow
def test_a_wavefront_without_its_barriers_is_racy(evaluator: LocalEvaluator) -> None:
    task, text = rendered(evaluator, GRU, "recurrent_wavefront", PrecisionClass.IEEE)
    broken = text.replace("tl.debug_barrier()", "pass")
    assert broken != text
    assert judged(evaluator, task, broken).status is Status.RACY
