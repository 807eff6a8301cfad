"""Runs every recipe at sizes and arguments that it was not written for. Under TRITON_INTERPRET=1 it prints {recipe: {trial: outcome}}."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tritonsmith.author.book import match
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.confined.interpreter import schedule
from tritonsmith.evaluator.confined.runner.candidate import import_candidate
from tritonsmith.evaluator.reference.module import flatten, load_reference
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task

CARD = CARDS["h200"].model_copy(update={"processors": 4})
"""So small that a wider GRU does not fit."""
Inputs = Callable[[], list[torch.Tensor]]
TASK = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {init}
    def forward(self, {arguments}):
        {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return [{made_with}]
"""


@dataclass(frozen=True)
class Case:
    """A module, and what its kernels are tried with; `own` is what they are made for."""

    forward: str
    inputs: str
    trials: dict[str, Inputs]
    init: str = "pass"
    parameters: str = ""
    made_with: str = ""
    arguments: str = "x"
    others: dict[str, list[Any]] = field(default_factory=dict)
    """Arguments of the constructor, tried with the case's own inputs."""

    def source(self) -> str:
        """The task."""
        fields = {name: getattr(self, name) for name in ("forward", "inputs", "init", "parameters", "made_with", "arguments")}
        return TASK.format(**fields)


def draw(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Inputs:
    """Inputs of these shapes."""
    return lambda: [torch.rand(shape).to(dtype) - 0.5 for shape in shapes]


GRU = {"parameters": ", inputs, hidden, layers=1, bias=True, batch_first=False", "made_with": "12, 20, 2", "arguments": "x, h0"}
GRU_INIT = "self.gru = nn.GRU(inputs, hidden, layers, bias=bias, batch_first=batch_first)"
CASES = {
    "rows": Case(
        "return torch.tanh(x * self.scale - y / 3).clamp(-1.0, self.limit)", "torch.rand(4, 6, 7), torch.rand(6, 7)",
        {
            "fewer rows": draw((2, 6, 7), (6, 7)), "no row": draw((0, 6, 7), (6, 7)), "columns": draw((4, 6, 9), (6, 9)),
            "rank": draw((6, 7), (6, 7)), "doubles": draw((4, 6, 7), (6, 7), dtype=torch.float64), "operand": draw((4, 6, 7), (1, 7)),
            "strided": lambda: [torch.rand(7, 6, 3).transpose(0, 2), torch.rand(7, 6).t()],
        },
        init="self.scale, self.limit = nn.Parameter(torch.randn(rows, 1)), limit", parameters=", rows, limit=0.2", made_with="6",
        arguments="x, y", others={"own": [6], "all": [6, 0.2], "rows": [5], "limit": [6, 0.4]},
    ),
    "any shape": Case(
        "return torch.sigmoid(x) * y + 1.5", "torch.rand(3, 5), torch.rand(3, 5)",
        {"rank": draw((2, 3, 4), (2, 3, 4)), "broadcast": draw((3, 5), (1, 5))}, arguments="x, y",
    ),
    "one row": Case("return torch.relu(x + self.shift)", "torch.rand(1, 8)", {"rows": draw((3, 8))},
                    init="self.shift = nn.Parameter(torch.randn(1, 8))"),
    "outer": Case("return x + y * 2.0", "torch.rand(4, 1), torch.rand(1, 6)",
                  {"rows": draw((9, 1), (1, 6)), "columns": draw((4, 1), (1, 5))}, arguments="x, y"),
    "all fixed": Case("return x * self.scale", "torch.rand(4, 6)", {"rows": draw((2, 6)), "columns": draw((4, 3))},
                      init="self.scale = nn.Parameter(torch.randn(4, 6))"),
    "product": Case(
        "return torch.relu(self.dense(x)) * y", "torch.rand(2, 5, 20), torch.rand(5, 24)",
        {
            "rows": draw((7, 5, 20), (5, 24)), "steps": draw((2, 4, 20), (4, 24)), "inner": draw((2, 5, 21), (5, 24)),
            "halves": draw((2, 5, 20), (5, 24), dtype=torch.float16),
            "strided": lambda: [torch.rand(20, 5, 3).transpose(0, 2), torch.rand(5, 24)],
        },
        init="self.dense = nn.Linear(inputs, 24)", parameters=", inputs", made_with="20", arguments="x, y",
        others={"own": [20], "inner": [16]},
    ),
    "residual": Case("return self.dense(x) + x", "torch.rand(5, 16)", {"rows": draw((19, 16)), "rank": draw((2, 3, 16))},
                     init="self.dense = nn.Linear(16, 16, bias=False)"),
    "states": Case(
        "return self.gru(x, h0)[0]", "torch.rand(3, 2, 12), torch.rand(2, 2, 20)",
        {
            "steps and rows": draw((2, 17, 12), (2, 17, 20)), "no step": draw((0, 2, 12), (2, 2, 20)),
            "width": draw((3, 2, 13), (2, 2, 20)),
            "other start": draw((3, 2, 12), (2, 1, 20)), "doubles": draw((3, 2, 12), (2, 2, 20), dtype=torch.float64),
            "rank": draw((3, 12), (2, 20)), "strided": lambda: [torch.rand(12, 2, 3).transpose(0, 2), torch.rand(20, 2, 2).transpose(0, 2)],
        },
        init=GRU_INIT, others={"own": [12, 20, 2], "layout": [12, 20, 2, True, True], "bare": [12, 20, 2, False]}, **GRU,
    ),
    "last states": Case(
        "return self.gru(x)[1]", "torch.rand(2, 2, 12)", {"one step": draw((1, 3, 12))}, init=GRU_INIT,
        others={"own": [12, 20, 2], "deep": [12, 20, 3], "wide": [12, 40, 2]}, **GRU | {"arguments": "x"},
    ),
    "both ways": Case(
        "y, (h, c) = self.lstm(x, (h0, c0)); return y, c", "torch.rand(2, 3, 12), torch.rand(4, 2, 20), torch.rand(4, 2, 20)",
        {
            "steps and rows": draw((17, 2, 12), (4, 17, 20), (4, 17, 20)), "width": draw((2, 3, 13), (4, 2, 20), (4, 2, 20)),
            "other start": draw((2, 3, 12), (4, 2, 20), (4, 1, 20)), "strided": lambda: [
                torch.rand(12, 3, 2).transpose(0, 2), torch.rand(20, 2, 4).transpose(0, 2), torch.rand(4, 20, 2).transpose(1, 2)],
        },
        init="self.lstm = nn.LSTM(inputs, hidden, layers, bias, batch_first, bidirectional=both)",
        others={
            "own": [12, 20, 2, True, True], "bare": [12, 20, 2, False], "layout": [12, 20, 2, True, False],
            "one way": [12, 20, 2, True, True, False], "wide": [12, 80, 2],
        },
        parameters=", inputs, hidden, layers=1, bias=True, batch_first=True, both=True", made_with="12, 20, 2", arguments="x, h0, c0",
    ),
    "relu": Case(
        "return self.rnn(x)[1]", "torch.rand(2, 2, 12)", {"one step": draw((1, 3, 12)), "large": lambda: [torch.rand(2, 2, 12) * 1e6]},
        init="self.rnn = nn.RNN(inputs, hidden, layers, kind, bias, batch_first)", others={"own": [12, 20, 2], "tanh": [12, 20, 2, "tanh"]},
        parameters=", inputs, hidden, layers=1, kind='relu', bias=True, batch_first=False", made_with="12, 20, 2",
    ),
    "images": Case(
        "return self.fc(torch.relu(self.conv(x)).flatten(1))", "torch.rand(2, 3, 8, 6)",
        {
            "rows": draw((5, 3, 8, 6)), "no row": draw((0, 3, 8, 6)), "lines": draw((2, 3, 9, 6)), "rank": draw((3, 8, 6)),
            "doubles": draw((2, 3, 8, 6), dtype=torch.float64), "strided": lambda: [torch.rand(6, 8, 2, 3).permute(2, 3, 1, 0)],
        },
        init="self.conv, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(192, classes)", parameters=", classes", made_with="7",
        others={"own": [7], "classes": [9]},
    ),
    "last step": Case(
        "return self.fc(self.gru(x)[0][:, -1])", "torch.rand(2, 3, 12)",
        {"steps and rows": draw((3, 2, 12)), "width": draw((2, 3, 20))},
        init="self.gru, self.fc = None, None\n        self.gru = nn.GRU(inputs, hidden, batch_first=first, dropout=p)\n"
             "        self.fc = nn.Linear(hidden, outputs)",
        parameters=", inputs, hidden, outputs, first=True, p=0.0", made_with="12, 20, 5",
        others={
            "own": [12, 20, 5], "outputs": [12, 20, 6], "hidden": [12, 16, 5], "layout": [12, 20, 5, False],
            "dropout": [12, 20, 5, True, 0.5],
        },
    ),
}  # fmt: skip


def main() -> None:
    """Every case, for every recipe that can write it."""
    torch.manual_seed(0)
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            for recipe, module in write_kernels(case, Path(folder)):
                found[f"{name}: {recipe}"] = dict(try_kernel(case, module))
    json.dump(found, sys.stdout)


def write_kernels(case: Case, folder: Path) -> Iterator[tuple[str, Any]]:
    """The case's kernels, imported."""
    task = Task(name="case", path="case.py", source=case.source())
    facts = probe(task)[0]
    matched = match(task, facts, CARD)
    assert matched is not None, task.source
    for recipe in matched.recipes:
        settings = recipe.defaults(matched.plan, CARD, task.precision)
        assert settings is not None
        path = folder / f"{recipe.name}_{len(list(folder.iterdir()))}.py"
        path.write_text(recipe.render(matched.plan, settings))
        yield recipe.name, import_candidate(path)


def try_kernel(case: Case, module: Any) -> Iterator[tuple[str, str]]:
    """Each trial with its outcome: `right`, `wrong`, or the sentence of a refusal."""
    reference = load_reference(Task(name="case", path="case.py", source=case.source()))
    made_with = reference.init_inputs()
    yield "own", attempt(module, reference, made_with, reference.module.get_inputs)
    for trial, inputs in case.trials.items():
        yield trial, attempt(module, reference, made_with, inputs)
    for trial, arguments in case.others.items():
        yield f"arguments: {trial}", attempt(module, reference, arguments, reference.module.get_inputs)
    yield "training", attempt(module, reference, case.others.get("dropout", made_with), reference.module.get_inputs, training=True)


def attempt(module: Any, reference: Any, arguments: list[Any], inputs: Inputs, training: bool = False) -> str:
    """What the kernel makes of these arguments and inputs, compared with the reference."""
    with torch.no_grad(), refusing() as said:
        model = module.ModelNew(*arguments).train(training)
        wanted = reference.module.Model(*arguments).eval()
        model.load_state_dict(wanted.state_dict())
        tensors = inputs()
        with schedule.session("round_robin", 0, detect_races=False):
            got = model(*tensors)
        expected = wanted(*tensors)
        same = [one.shape for one in flatten(got)] == [one.shape for one in flatten(expected)]
        close = same and all(near(a, b) for a, b in zip(flatten(got), flatten(expected), strict=True))
        said.append("right" if close else "wrong")
    return said[0]


def near(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two results agree; of one with values above a hundred the largest sets the bound, as sums of such values cancel."""
    scale = max(1.0, float(expected.abs().max()) / 100) if expected.numel() else 1.0
    return torch.allclose(got / scale, expected / scale, atol=2e-5)


@contextmanager
def refusing() -> Iterator[list[str]]:
    """Collects the sentence of a ValueError; every other exception goes on."""
    said: list[str] = []
    try:
        yield said
    except ValueError as error:
        said.append(str(error))


if __name__ == "__main__":
    main()
