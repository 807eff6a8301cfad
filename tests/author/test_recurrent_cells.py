"""Every recurrent cell, in one direction and two, at small ragged sizes before the evaluator: right, and free of races."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tritonsmith.author.book import Match, match
from tritonsmith.author.families.recurrent.plan import RecurrentPlan
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Status, Task
from tritonsmith.evaluator.tasks.files import load_task

H200 = CARDS["h200"]
TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, inputs, hidden, layers):
        super().__init__()
        self.rnn = nn.{kind}(inputs, hidden, layers{options})
        self.fc = nn.Linear({width}, 5)

    def forward(self, {arguments}):
        states, last = self.rnn({given})
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{sizes}]
"""
ROWS, ONE_STEP = "torch.rand(4, 3, 20)", "torch.rand(1, 1, 20)"
H0, C0 = "torch.rand({n}, 3, 33) - 0.5", "torch.rand({n}, 3, 33) * 4 - 2"


def write(
    kind: str, options: str = "", result: str = "states", inputs: str = ROWS, sizes: str = "20, 33, 2",
    arguments: str = "x", given: str = "x",
) -> str:  # fmt: skip
    """A task; the linear layer takes the states of all directions."""
    width = 66 if "bidirectional" in options else 33
    return TASK.format(**locals())


def start(kind: str, options: str = "", result: str = "states", layers: int = 2) -> str:
    """The same with the batch in front and given initial states."""
    count = layers * (2 if "bidirectional" in options else 1)
    pair = kind == "LSTM"
    inputs = ", ".join(["torch.rand(3, 4, 20)", *(text.format(n=count) for text in (H0, C0)[: 2 if pair else 1])])
    arguments, given = ("x, h0, c0", "x, (h0, c0)") if pair else ("x, h0", "x, h0")
    return write(kind, f", batch_first=True{options}", result, inputs, f"20, 33, {layers}", arguments, given)


def make_half(kind: str, dtype: str, options: str = "") -> str:
    """The same with weights and inputs of a type."""
    text = start(kind, options, "self.fc(states[:, -1]), last[1]" if kind == "LSTM" else "self.fc(states[:, -1]), last")
    text = text.replace("\n\n    def forward", f"\n        self.to(torch.{dtype})\n\n    def forward")
    return text.replace("def get_inputs", "def draw") + f"\ndef get_inputs():\n    return [one.to(torch.{dtype}) for one in draw()]\n"


TWO, BARE, RELU = ", bidirectional=True", ", bias=False", ", nonlinearity='relu'"
CASES = {
    "LSTM": write("LSTM", result="states, last[0], last[1]"),
    "LSTM, one step": write("LSTM", BARE, "last[1]", ONE_STEP, "20, 33, 1"),
    "LSTM, given states": start("LSTM", result="self.fc(states[:, -1, :]), last[1]"),
    "RNN": write("RNN", result="states[1:3], last"),
    "RNN, given states": start("RNN", BARE, "self.fc(states[:, -1])", layers=3),
    "RNN relu": start("RNN", RELU, "self.fc(states[:, -1]), last"),
    "GRU, no bias": write("GRU", BARE, "last[-1]", ONE_STEP),
    "GRU, two directions": start("GRU", TWO, "self.fc(states[:, -1]), last"),
    "GRU, two directions, one step": write("GRU", TWO + BARE, "last", ONE_STEP, "20, 33, 1"),
    "LSTM, two directions": start("LSTM", TWO, "self.fc(states[:, -1, :]), last[0], last[1]"),
    "LSTM, two directions, no bias": write("LSTM", TWO + BARE, "self.fc(states)"),
    "RNN, two directions": write("RNN", TWO, "last[-2], states[..., :4]", sizes="20, 33, 3"),
    "RNN relu, two directions": write("RNN", TWO + RELU + BARE, "states[-1]"),
}
HALVES = {
    "GRU, bf16": make_half("GRU", "bfloat16"),
    "LSTM, fp16, given states": make_half("LSTM", "float16"),
    "RNN relu, bf16": make_half("RNN", "bfloat16", RELU),
    "LSTM, bf16, two directions": make_half("LSTM", "bfloat16", TWO),
}
"""Weights, inputs and results of 16 bits."""
PER_STEP, ROWWISE, LAYERS, WAVEFRONT = ("recurrent_per_step", "recurrent_persistent_batch", "recurrent_layers", "recurrent_wavefront")
FAST = {("GRU, bf16", WAVEFRONT)}
"""What `make test` judges; the others wait for `make test-all`."""
TRIALS = [
    (name, recipe, PrecisionClass.IEEE)
    for name in CASES
    for recipe in (PER_STEP, ROWWISE, LAYERS if "two" in name else WAVEFRONT)
] + [
    (name, LAYERS if "two" in name else WAVEFRONT, precision)
    for name in ("LSTM, given states", "RNN relu", "GRU, two directions", "RNN relu, two directions")
    for precision in (PrecisionClass.TF32, PrecisionClass.HALF)
] + [
    (name, recipe, PrecisionClass.HALF)
    for name in HALVES
    for recipe in (PER_STEP, ROWWISE, LAYERS if "two" in name else WAVEFRONT)
]  # fmt: skip


def read(name: str, precision: PrecisionClass = PrecisionClass.IEEE, hardware: Hardware = H200) -> tuple[Task, Match]:
    task = Task(name="a_task", path="a_task.py", source=(CASES | HALVES)[name], precision=precision)
    found = match(task, probe(task)[0], hardware)
    assert found is not None and isinstance(found.plan, RecurrentPlan)
    return task, found


def render(task: Task, found: Match, name: str) -> str:
    recipe = found.recipe(name)
    assert recipe is not None
    return recipe.render(found.plan, recipe.defaults(found.plan, H200, task.precision) or {})


def _trial(name: str, recipe: str, precision: PrecisionClass) -> Any:
    marks = () if (name, recipe) in FAST and (precision is PrecisionClass.IEEE or name in HALVES) else pytest.mark.slow
    return pytest.param(name, recipe, precision, id=f"{name}: {recipe}, {precision.value}", marks=marks)


@pytest.mark.parametrize(("name", "recipe", "precision"), [_trial(*trial) for trial in TRIALS])
def test_every_cell_is_right(evaluator: LocalEvaluator, name: str, recipe: str, precision: PrecisionClass) -> None:
    task, found = read(name, precision)
    verdict = asyncio.run(evaluator.evaluate(task, render(task, found, recipe)))
    assert verdict.status is Status.OK, verdict.message
    assert not verdict.facts.races
    waiting = [kernel for kernel in verdict.facts.kernels if kernel.cooperative]
    assert bool(waiting) is (recipe in (LAYERS, WAVEFRONT))
    assert all(kernel.registers and not kernel.spills for kernel in waiting), "compiled for the card"


@pytest.mark.slow
def test_two_directions_without_barriers_are_racy(evaluator: LocalEvaluator) -> None:
    task, found = read("LSTM, two directions")
    text = render(task, found, LAYERS)
    broken = text.replace("tl.debug_barrier()", "pass")
    assert broken != text
    assert asyncio.run(evaluator.evaluate(task, broken)).status is Status.RACY


def names(found: Match) -> list[str]:
    return [recipe.name for recipe in found.recipes]


def test_layers_run_one_by_one_only_where_no_wavefront_can() -> None:
    """The wavefront where its programs fit, else a launch per layer, else one program per row."""
    small = {count: H200.model_copy(update={"processors": count}) for count in (1, 3, 4)}
    one, two = "LSTM", "LSTM, two directions"
    assert names(read(one)[1]) == [PER_STEP, ROWWISE, WAVEFRONT]
    assert names(read(two)[1]) == [PER_STEP, ROWWISE, LAYERS]
    assert names(read(one, hardware=small[4])[1]) == [PER_STEP, ROWWISE, WAVEFRONT], "one layer of two slices and two sides"
    assert names(read(one, hardware=small[3])[1]) == [PER_STEP, ROWWISE, LAYERS]
    assert names(read(two, hardware=small[4])[1]) == [PER_STEP, ROWWISE, LAYERS]
    assert names(read(two, hardware=small[1])[1]) == [PER_STEP, ROWWISE]


@pytest.mark.parametrize("name", CASES)
def test_every_release_follows_a_barrier(name: str) -> None:
    task, found = read(name)
    text = render(task, found, found.recipes[-1].name)
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    releases = [n for n, line in enumerate(lines) if 'sem="release"' in line]
    assert len(releases) == (1 if found.recipe(LAYERS) else 2)
    assert all(lines[n - 1] == "tl.debug_barrier()" for n in releases)
    assert "launch_cooperative_grid=True" in text
    assert not {"nn.GRU(", "nn.LSTM(", "nn.RNN(", "torch.matmul", "F.linear"} & set(text.split())


MADE = "self.rnn(x, ({h0}, {c0}))"


@pytest.mark.parametrize(
    ("h0", "c0", "states"),
    [
        ("torch.zeros(2, x.size(1), 33, device=x.device)", "x.new_zeros(2, x.shape[1], 33)", ("None", "None")),
        (
            "torch.randn(2, x.size(1), 33, device=x.device)",
            "torch.rand((2, x.shape[1], 33)).to(x.device)",
            ("torch.randn(2, x.size(1), 33, device=x.device)", "torch.rand(2, x.shape[1], 33).to(x.device)"),
        ),
    ],
)
def test_states_that_forward_makes(tmp_path: Path, h0: str, c0: str, states: tuple[str, str]) -> None:
    """Zeros need no tensor; random numbers are drawn as the reference draws them."""
    path = tmp_path / "task.py"
    long = write("LSTM", result="states[-1]", inputs="torch.rand(400, 3, 20)")  # what is drawn leaves no trace at its end
    path.write_text(long.replace("self.rnn(x)", MADE.format(h0=h0, c0=c0)))
    task = load_task(path)
    found = match(task, probe(task)[0], H200)
    assert found is not None and isinstance(found.plan, RecurrentPlan)
    assert (found.plan.h0, found.plan.c0) == states


def test_a_layer_that_regions_leave_to_pytorch_is_made_with_its_constructor() -> None:
    """Many rows of few steps, which the library is faster at."""
    source = write("GRU", result="torch.relu(states) * 2", inputs="torch.rand(3, 4096, 64)", sizes="64, 512, 1")
    task = Task(name="a_task", path="a_task.py", source=source.replace("(66,", "(512,").replace("(33,", "(512,"))
    found = match(task, probe(task)[0], H200)
    assert found is not None and "nn.GRU" in found.plan.calls
    settings = found.recipes[0].defaults(found.plan, H200, PrecisionClass.IEEE)
    assert settings is not None
    text = found.recipes[0].render(found.plan, settings)
    assert "self.rnn = nn.GRU(input_size=64, hidden_size=512" in text and "self.rnn(x)" in text
