"""Recurrent layers between other work: regions call the recurrent family's kernels, and results are the module's."""

import ast
import asyncio

import pytest

from tritonsmith.author.book import match
from tritonsmith.author.cards.model import model_card
from tritonsmith.author.compiler.ir.stacks import STACKS, StackSizes
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Status, Task

H200 = CARDS["h200"]
TASK = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, {arguments}):
        {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
CASES = {
    "tagger": (
        "self.emb, self.out = nn.Embedding(50, 12), nn.Linear(40, 7); self.lstm = nn.LSTM(12, 20, 2, batch_first=True, bidirectional=True)",
        "return self.out(self.lstm(self.emb(x))[0]).log_softmax(-1)", "torch.randint(0, 50, (3, 5))",
    ),
    "given states in 16 bits": (
        "self.inp = nn.Linear(9, 16); self.gru = nn.GRU(16, 24, 2); self.drop = nn.Dropout(0.1); self.out = nn.Linear(24, 5); self.half()",
        "h, last = self.gru(torch.relu(self.inp(x)), y); return self.out(self.drop(h[-1])), last",
        "torch.randn(8, 3, 9).half(), torch.randn(2, 3, 24).half()",
    ),
    "two kinds, one sequence": (
        "self.a = nn.LSTM(8, 20, 2, batch_first=True); self.b = nn.RNN(20, 17, 3, batch_first=True, nonlinearity='relu', bias=False)",
        "h, (n, c) = self.a(x * 2); k, m = self.b(torch.tanh(h)); return k.mean(1), n, c, m", "torch.randn(1, 8, 8)",
    ),
    "two alike, and another": (
        "self.a = nn.GRU(8, 20, 2); self.b = nn.GRU(20, 20, 2); self.c = nn.GRU(20, 20, 2, bidirectional=True)",
        "h = self.b(self.a(x)[0].relu())[0]; return self.c(h * 2)[0]", "torch.randn(8, 2, 8)",
    ),
}  # fmt: skip


def write(name: str) -> tuple[Task, str, tuple[str, ...]]:
    """The task of a case, the author's text, and what stays a call."""
    init, body, inputs = CASES[name]
    arguments = "x, y" if "y)" in body and ", y" in body else "x"
    task = Task(name="mine", path="mine.py", source=TASK.format(init=init, arguments=arguments, body=body, inputs=inputs))
    found = match(task, probe(task)[0], H200)
    assert found is not None
    recipe = found.recipes[-1]
    settings = recipe.defaults(found.plan, H200, task.precision)
    assert recipe.name == "regions" and settings is not None
    return task, recipe.render(found.plan, settings), found.plan.calls


@pytest.mark.parametrize("name", ["tagger", *(pytest.param(name, marks=pytest.mark.slow) for name in [*CASES][1:])])
def test_results_are_those_of_the_module(name: str, evaluator: LocalEvaluator) -> None:
    task, text, calls = write(name)
    assert "Stack(" in text and not {"nn.LSTM", "nn.GRU", "nn.RNN"} & {*calls}
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


def test_equal_stacks_share_a_class_and_others_have_names_of_their_own() -> None:
    _, text, _ = write("two alike, and another")
    classes = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    assert [name for name in classes if name.endswith("Stack")] == ["GRUStack", "GRU2Stack"]
    defined = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert len(defined) == len({*defined}), "no name is defined twice"
    assert text.count("= GRUStack(") == 2 and text.count("= GRU2Stack(") == 1


def test_a_stack_too_wide_for_the_card_has_no_text() -> None:
    sizes = StackSizes("LSTM", "tanh", 2, 1, 64, 65536, 10, 2, "float32", True)
    assert STACKS.write(sizes, model_card(H200)) is None
