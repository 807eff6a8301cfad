"""Texts of the built-in author for a task with BACKWARD: the original's operations run again for the gradients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tritonsmith.author.backward import add_backward, refuse_backward
from tritonsmith.author.book import match
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Status, Task, TaskFacts
from tritonsmith.evaluator.tasks.files import load_task

TASK = '''
import torch
from torch import nn

BACKWARD, MODE = True, "train"
rows, width = 32, 16


class Scale(nn.Module):
    """A helper that the text must hold too; its name is one that kernels may have."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.shift = nn.Parameter(torch.zeros(width), requires_grad=False)

    def forward(self, x):
        return x * self.weight + self.shift


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.scale = Scale(width)
        self.register_buffer("limit", torch.full((width,), 0.25))

    def forward(self, x):
        return torch.clamp(self.scale(self.norm(x)), min=self.limit - 1.0)


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
'''
TASK = TASK.replace('BACKWARD, MODE = True, "train"', 'BACKWARD = True\nMODE = "train"')


@dataclass(frozen=True)
class Written:
    """A task with the author's text, before and after it has a backward."""

    task: Task
    facts: TaskFacts
    forward: str
    text: str


@pytest.fixture
def written(evaluator: LocalEvaluator, tmp_path: Path) -> Written:
    (tmp_path / "task.py").write_text(TASK)
    task = load_task(tmp_path / "task.py")
    facts, _ = probe(task)
    found = match(task, facts, evaluator.hardware)
    assert found is not None and refuse_backward(task) == ""
    recipe = found.recipes[-1]
    settings = recipe.defaults(found.plan, evaluator.hardware, task.precision)
    assert settings is not None
    forward = recipe.render(found.plan, settings)
    return Written(task, facts, forward, add_backward(forward, task, facts))


def test_a_text_with_a_backward_is_right_and_complete_in_itself(evaluator: LocalEvaluator, written: Written) -> None:
    task, text = written.task, written.text
    assert "class Scale(" in text and "class ModelNew(ForwardByKernels)" in text
    assert add_backward(written.forward, task.model_copy(update={"backward": False}), written.facts) == written.forward
    verdict = evaluator.evaluate_now(task, KernelText.of(text), "quick")
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.slow  # tests/evaluator/test_backward.py has wrong gradients of every kind
def test_a_text_with_a_wrong_backward_is_refused(evaluator: LocalEvaluator, written: Written) -> None:
    text = written.text
    wrong = text.replace("return None, *[next(found, None)", "return None, *[1.01 * next(found)", 1)
    assert wrong != text
    refused = evaluator.evaluate_now(written.task, KernelText.of(wrong), "quick")
    assert refused.status is Status.INACCURATE and "the gradient of" in refused.message, refused.message


def test_a_file_that_no_function_can_hold_is_told(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK.replace("0.25", "len(__file__) * 0.01", 1))
    assert "reads other files next to it" in refuse_backward(load_task(tmp_path / "task.py"))
    (tmp_path / "helper.py").write_text("limit = 0.25\n")
    beside = TASK.replace("import torch\n", "import torch\nfrom helper import limit\n", 1).replace("0.25", "limit", 1)
    (tmp_path / "task.py").write_text(beside)
    assert "imports helper, which lies beside it" in refuse_backward(load_task(tmp_path / "task.py"))
    assert refuse_backward(load_task(tmp_path / "task.py", backward=False)) == ""
