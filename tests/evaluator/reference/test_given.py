"""Weights and inputs that a task brings along: who reads them, in what order, and what is said where they do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.schema import Task
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
from torch import nn

rows, width = 4, 6
WEIGHTS = "weights.pt"
INPUTS = "inputs.pt"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(width, 5)
        self.norm = nn.BatchNorm1d(5)
        self.register_buffer("places", torch.zeros(5, dtype=torch.int64))

    def forward(self, x, y):
        return self.norm(self.linear(x) + y.t())[:, self.places]


def get_inputs():
    return [torch.randn(rows, width), torch.randn(5, rows)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def state(tmp_path: Path) -> dict[str, torch.Tensor]:
    """Weights beside a task, as they are written."""
    values = {
        "linear.weight": torch.randn(5, 6),
        "linear.bias": torch.ones(5),
        "norm.weight": torch.rand(5),
        "norm.bias": torch.randn(5),
        "norm.running_mean": torch.randn(5),
        "norm.running_var": torch.rand(5) + 1,
        "norm.num_batches_tracked": torch.tensor(7),
        "places": torch.tensor([4, 3, 2, 1, 0]),
    }
    torch.save(values, tmp_path / "weights.pt")
    return values


@pytest.fixture
def inputs(tmp_path: Path) -> list[torch.Tensor]:
    """Inputs beside it."""
    values = [torch.full((4, 6), 3.0), torch.arange(20.0).reshape(5, 4)]
    torch.save(values, tmp_path / "inputs.pt")
    return values


def write_task(folder: Path, text: str = TASK, **sizes: int) -> Task:
    (folder / "task.py").write_text(text)
    return load_task(folder / "task.py", overrides=sizes or None)


def test_the_first_draw_has_the_weights_and_later_ones_the_buffers(
    tmp_path: Path, state: dict[str, torch.Tensor], inputs: list[torch.Tensor]
) -> None:
    loaded = LoadedTask(write_task(tmp_path), CARDS["h200"], "cpu")
    try:
        own = loaded.model.state_dict()
        assert all(torch.equal(own[name], value) for name, value in state.items())
        loaded.new_weights()
        own = loaded.model.state_dict()
        assert not torch.equal(own["linear.weight"], state["linear.weight"])
        assert not torch.equal(own["norm.running_mean"], state["norm.running_mean"])
        assert torch.equal(own["places"], state["places"]), "places are no weights"
        loaded.use_weights(0)
        assert torch.equal(loaded.model.state_dict()["linear.weight"], state["linear.weight"])
        assert loaded.has_real and all(
            torch.equal(one, two) for one, two in zip(loaded.draw("real"), inputs, strict=True)
        )
        assert not torch.equal(loaded.draw("own")[0], inputs[0])
    finally:
        loaded.close()


def test_real_inputs_are_cut_to_a_smaller_size_and_left_out_at_a_larger_one(
    tmp_path: Path, state: dict[str, torch.Tensor], inputs: list[torch.Tensor]
) -> None:
    for rows, there in ((3, True), (9, False)):
        loaded = LoadedTask(write_task(tmp_path, rows=rows), CARDS["h200"], "cpu")
        assert loaded.has_real is there
        if there:
            assert [one.shape for one in loaded.draw("real")] == [(3, 6), (5, 3)]
            assert torch.equal(loaded.draw("real")[1], inputs[1][:, :3])
        loaded.close()


def test_what_is_brought_along_counts_as_read(
    tmp_path: Path, state: dict[str, torch.Tensor], inputs: list[torch.Tensor]
) -> None:
    reference = load_reference(write_task(tmp_path))
    assert {Path(path).name for path in reference.world.notes.opened} == {"weights.pt", "inputs.pt"}


def test_weights_that_do_not_fit_are_told(
    tmp_path: Path, state: dict[str, torch.Tensor], inputs: list[torch.Tensor]
) -> None:
    with pytest.raises(
        TaskError, match="WEIGHTS has linear.weight as .5, 6., and Model makes it .5, 8. at this size"
    ):
        load_reference(write_task(tmp_path, width=8)).build(1)
    torch.save({**state, "more": torch.ones(1)}, tmp_path / "weights.pt")
    with pytest.raises(TaskError, match="WEIGHTS has more, and Model has not"):
        load_reference(write_task(tmp_path)).build(1)
    torch.save([1], tmp_path / "weights.pt")
    with pytest.raises(TaskError, match="must hold a state_dict"):
        load_reference(write_task(tmp_path)).build(1)
    (tmp_path / "weights.pt").write_text("no file of torch")
    with pytest.raises(TaskError, match="cannot be read"):
        load_reference(write_task(tmp_path)).build(1)
    (tmp_path / "weights.pt").unlink()
    with pytest.raises(TaskError, match="WEIGHTS names weights.pt, and .* is no file"):
        load_reference(write_task(tmp_path))
    load_reference(write_task(tmp_path, TASK.replace('WEIGHTS = "weights.pt"', "WEIGHTS = [0.5] * 2"))).build(1)  # a name of its own
