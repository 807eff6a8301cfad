"""Inductor's own text for a task: one file that needs nothing of Inductor, judged like any other; or half a sentence that says why not."""

import ast
import asyncio
from pathlib import Path

import pytest

from tritonsmith.evaluator.caller.questions.compiler_seed import ask_inductor
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Status
from tritonsmith.evaluator.tasks.files import load_task

H200 = named_card("h200")
FRAME = """
import torch
from torch import nn
from torch.nn import functional as F

{settings}


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        {members}

    def forward(self, {arguments}):
        return {result}


def get_inputs():
    return {inputs}


def get_init_inputs():
    return [12]
"""
BLOCK = {
    "members": "self.linears = nn.Sequential(nn.Linear(size, 20), nn.Linear(20, 6)); self.norm = nn.LayerNorm(20)",
    "result": "(F.softmax(self.linears[1](F.gelu(self.norm(self.linears[0](x)))), -1), {'mean': x.mean(0)})",
}
KINDS = {
    "several outputs": {"result": "x.std(1), (x > 0).any(1), x.argmax(1), x.logsumexp(1)", "inputs": "[torch.randn(9, 130)]"},
    "concatenation": {
        "result": "torch.cat([x, x.relu() * 2, y], 1)", "arguments": "x, y", "inputs": "[torch.randn(5, 7), torch.randn(5, 9)]",
    },
    "scan": {"result": "x.cumsum(1)", "inputs": "[torch.randn(3, 5000)]"},
    "training": {
        "members": "self.conv = nn.Conv2d(3, 8, 3); self.norm = nn.BatchNorm2d(8)", "result": "F.relu(self.norm(self.conv(x)))",
        "inputs": "[torch.randn(2, 3, 9, 9)]", "settings": 'MODE = "train"',
    },
    "attention": {
        "members": "self.attention = nn.MultiheadAttention(size, 3, batch_first=True)", "result": "self.attention(x, x, x)[0] + 1",
        "inputs": "[torch.randn(2, 10, 12)]",
    },
    "constants": {
        "members": "self.register_buffer('mask', torch.tril(torch.ones(size, size)), persistent=False)",
        "result": "(x * torch.tensor(0.5, device=x.device)).masked_fill(self.mask == 0, float('-inf')).softmax(-1)",
        "inputs": "[torch.randn(4, 12, 12)]",
    },
    "views and types": {
        "result": "torch.where(flags, x.t().reshape(30, 20), number).roll(2, 1)", "arguments": "x, flags, number",
        "inputs": "[torch.randn(20, 30).bfloat16(), torch.rand(30, 20) > 0.5, 0.25]",
    },
    "functions": {"result": "torch.lgamma(x.abs() + 1) + torch.i0(x) + torch.atan2(x, x + 1)", "inputs": "[torch.randn(7, 33)]"},
}  # fmt: skip


def write_task(folder: Path, members: str = "pass", arguments: str = "x", inputs: str = "[torch.randn(7, 12)]", settings: str = "", **rest):
    path = folder / "1_task.py"
    path.write_text(FRAME.format(members=members, arguments=arguments, inputs=inputs, settings=settings, **rest))
    return load_task(path)


def refused(folder: Path, **parts: str) -> str:
    seed = ask_inductor(write_task(folder, **parts), H200)
    assert not seed.text
    return seed.reason


@pytest.mark.slow
def test_the_text_stands_alone_and_is_accepted(tmp_path, evaluator):
    task = write_task(tmp_path, **BLOCK)
    text = ask_inductor(task, H200).text
    imports = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in ast.walk(ast.parse(text))
               if isinstance(node, ast.Import | ast.ImportFrom)}  # fmt: skip
    assert imports == {"torch", "torch.nn", "triton", "triton.language", "triton.language.extra"}
    assert not {"inductor", "triton_helpers", "triton_heuristics", "autotune"} & set(text.replace("_", " ").split())
    verdict = evaluator.evaluate_now(task, text)
    assert verdict.status is Status.OK, verdict.message
    assert verdict.facts.launches_per_forward >= 3, "two products stay with the library, and the rest is Inductor's"
    assert asyncio.run(evaluator.read_code(task, KernelText.of(text))), "it compiles for the card"
    assert evaluator.evaluate_now(task, text.replace("(7, 12)", "(7, 13)")).status is Status.RUNTIME_ERROR, "other sizes are refused"


@pytest.mark.slow
def test_what_inductor_leaves_to_libraries_has_a_reason(tmp_path):
    assert refused(tmp_path, members="self.rnn = nn.GRU(size, 4)", result="self.rnn(x)[0]") == (
        "Inductor leaves nn.GRU to cuDNN and writes no kernel for it"
    )


@pytest.mark.slow
def test_a_faulty_task_is_the_users(tmp_path):
    with pytest.raises(TaskError, match=r"1_task.py, line 12: Model\(12\) raised ZeroDivisionError"):
        ask_inductor(write_task(tmp_path, members="1 / 0", result="x"), H200)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_text_is_accepted(tmp_path, evaluator, kind):
    task = write_task(tmp_path, **KINDS[kind])
    seed = ask_inductor(task, H200)
    assert seed.text, seed.reason
    verdict = evaluator.evaluate_now(task, seed.text)
    assert verdict.status is Status.OK, verdict.message
    assert asyncio.run(evaluator.read_code(task, KernelText.of(seed.text)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"result": "x @ x.t()"}, "it leaves all of the work to libraries"),
        ({"result": "x * 2 if x.sum() > 0 else x"}, "torch.export cannot trace the module"),
        ({"members": "self.register_buffer('table', torch.rand(7, 12), persistent=False)", "result": "x + self.table"}, "of 84 values"),
    ],
)
def test_every_refusal_names_its_piece(tmp_path, parts, reason):
    assert reason in refused(tmp_path, **parts)
