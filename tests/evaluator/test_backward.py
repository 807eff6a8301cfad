"""Tasks with BACKWARD: gradients are judged as results, and a missing or wrong one is named."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import FORWARD_AND_BACKWARD, Status, Verdict
from tritonsmith.evaluator.tasks.files import load_task

TASK = '''
import torch
from torch import nn

BACKWARD = True
rows, width = 4, 16


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.shift = nn.Parameter(torch.rand(width))

    def forward(self, x, places):
        return torch.tanh(x) * self.weight[places] + self.shift


def get_inputs():
    return [torch.randn(rows, width), torch.randint(0, width, (width,))]


def get_init_inputs():
    return [width]
'''
CANDIDATE = '''
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def forward_kernel(x_ptr, places_ptr, weight_ptr, shift_ptr, y_ptr, WIDTH: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row * WIDTH + k)
    weight = tl.load(weight_ptr + tl.load(places_ptr + k))
    tanh = 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)
    tl.store(y_ptr + row * WIDTH + k, tanh * weight + tl.load(shift_ptr + k))


class Kernels(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, places, weight, shift):
        ctx.save_for_backward(x, places, weight, shift)
        y = torch.empty_like(x)
        forward_kernel[(x.shape[0],)](x, places, weight, shift, y, WIDTH=x.shape[1])
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, places, weight, shift = (tensor.detach() for tensor in ctx.saved_tensors)
        wanted = [tensor.requires_grad_() for tensor in (x, weight, shift)]
        with torch.enable_grad():
            y = torch.tanh(x) * weight[places] + shift
        of_x, of_weight, of_shift = torch.autograd.grad(y, wanted, gradient)
        return of_x, None, of_weight, of_shift


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.shift = nn.Parameter(torch.empty(width))

    def forward(self, x, places):
        return Kernels.apply(x, places, self.weight, self.shift)
'''
KEPT = """Kernels.kept = kept = getattr(Kernels, "kept", of_x)
        return kept, None,"""
FAULTS = {
    "a wrong gradient of a weight": ("return of_x, None, of_weight,", "return of_x, None, 1.01 * of_weight,", "the gradient of weight at"),
    "a result that is detached": ("self.shift)\n", "self.shift).detach()\n", "output 0 has no gradient: it is detached"),
    "a result outside autograd": ("Kernels.apply(", "Kernels.forward(Mute(), ", "output 0 has no gradient"),
    "the gradient of the first call": ("return of_x, None,", KEPT, "the gradient of argument x"),
    "a constant gradient": ("return of_x, None,", "return torch.ones_like(x), None,", "the gradient of argument x at"),
    "no gradient of an input": ("Kernels.apply(x,", "Kernels.apply(x.detach(),", "the gradient of argument x is missing"),
    "no gradient of a weight": ("return of_x, None, of_weight,", "return of_x, None, None,", "the gradient of weight is missing"),
}  # fmt: skip
MUTE = """

class Mute:
    def save_for_backward(self, *tensors):
        pass
"""


def _judge(evaluator: LocalEvaluator, folder: Path, text: str, task: str = TASK) -> Verdict:
    path = folder / "task.py"
    path.write_text(task)
    return evaluator.evaluate_now(load_task(path), KernelText.of(text), "quick")


def test_the_originals_backward_is_right(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    verdict = _judge(evaluator, tmp_path, CANDIDATE)
    assert verdict.status is Status.OK, verdict.message
    assert verdict.environment["call"] == FORWARD_AND_BACKWARD and verdict.timing is not None
    assert verdict.facts.library_calls["tanh_backward"] == 1, "backward counts as work"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_the_gradient(fault: str, evaluator: LocalEvaluator, tmp_path: Path) -> None:
    before, after, said = FAULTS[fault]
    assert before in CANDIDATE
    verdict = _judge(evaluator, tmp_path, CANDIDATE.replace(before, after, 1) + MUTE)
    assert verdict.status is Status.INACCURATE and said in verdict.message, verdict.message


def test_a_weight_that_is_a_buffer_has_no_gradient(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    text = CANDIDATE.replace("self.weight = nn.Parameter(torch.empty(width))", 'self.register_buffer("weight", torch.empty(width))')
    verdict = _judge(evaluator, tmp_path, text)
    assert verdict.status is Status.WRONG_WEIGHTS and "the gradient of weight is missing" in verdict.message


def test_backward_is_part_of_the_estimates(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK)
    both, forward = (probe(load_task(tmp_path / "task.py", backward=asked)) for asked in (None, False))
    assert [node.target for node in both[0].ops] == [node.target for node in forward[0].ops], "authors see forward alone"
    assert len(both[1]) > len(forward[1]) and math.isfinite(sum(cost.bytes for cost in both[1]))
    assert load_task(tmp_path / "task.py").sha != load_task(tmp_path / "task.py", backward=False).sha


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("return torch.tanh(x).long() + places", "whole numbers alone"),
        ("return x.detach() * 2.0", "detaches what it returns"),
        ("return x.mul_(2.0) * self.weight", "writes to an argument in place"),
    ],
)
def test_a_task_without_gradients_is_refused(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK.replace("return torch.tanh(x) * self.weight[places] + self.shift", line))
    with pytest.raises(TaskError, match=said):
        probe(load_task(tmp_path / "task.py"))


def test_backward_is_a_plain_truth(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK.replace("BACKWARD = True", "BACKWARD = 'yes'"))
    with pytest.raises(TaskError, match="write BACKWARD = True"):
        load_task(tmp_path / "task.py")


RECURRENT = '''
import torch
from torch import nn

BACKWARD = True


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.GRU(64, 64, 2, batch_first=True)

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.randn(32, 16, 64)]


def get_init_inputs():
    return []
'''


@pytest.fixture(scope="module")
def on_card() -> Iterator[LocalEvaluator]:
    with LocalEvaluator("auto") as opened:
        yield opened


@pytest.mark.gpu
@pytest.mark.parametrize("profile", ["quick", "strict"])
def test_forward_and_backward_are_timed_together(profile: str, on_card: LocalEvaluator, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK.replace("rows, width = 4, 16", "rows, width = 4096, 1024"))
    verdict = on_card.evaluate_now(load_task(tmp_path / "task.py"), KernelText.of(CANDIDATE), profile)
    assert verdict.status is Status.OK and verdict.timing is not None, verdict.message
    told = (verdict.timing.baselines_ms, verdict.timing.notes, verdict.timing.forms_ms, verdict.label)
    assert set(verdict.timing.baselines_ms) >= {"eager", "cuda_graph", "compile", "compile_reduce_overhead"}, told


@pytest.mark.gpu
def test_a_wrong_gradient_is_named_on_a_card(on_card: LocalEvaluator, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(TASK.replace("rows, width = 4, 16", "rows, width = 4096, 1024"))
    wrong = KernelText.of(CANDIDATE.replace("None, of_weight", "None, 1.01 * of_weight", 1))
    verdict = on_card.evaluate_now(load_task(tmp_path / "task.py"), wrong, "quick")
    assert verdict.status is Status.INACCURATE and "the gradient of weight" in verdict.message, verdict.message


@pytest.mark.gpu
def test_recurrent_layers_have_gradients_in_evaluation(on_card: LocalEvaluator, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(RECURRENT)
    copy = KernelText.of(RECURRENT.replace("class Model(", "class ModelNew("))
    verdict = on_card.evaluate_now(load_task(tmp_path / "task.py"), copy, "quick")
    assert verdict.status is Status.OK and verdict.timing is not None, verdict.message
    assert "eager" in verdict.timing.baselines_ms, verdict.timing.notes
