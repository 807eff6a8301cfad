"""Inputs of timed calls: no content comes twice, whole numbers included where they may stand anywhere."""

from pathlib import Path

import pytest
import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.timing.fresh_inputs import Inputs
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, ids, order, places):
        return x[order].sum() + ids.sum() + places.sum()


def get_inputs():
    return [torch.randn(64, 8), torch.randint(0, 1 << 40, (4, 40)), torch.stack([torch.randperm(64)]), torch.randint(0, 9, (40,)).cumsum(0)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    (tmp_path / "task.py").write_text(TASK)
    return Inputs(LoadedTask(load_task(tmp_path / "task.py"), named_card("h200"), "cpu"))


def test_ids_change_from_call_to_call_and_permutations_stay_such(inputs: Inputs) -> None:
    seen = [[tensor.clone() for tensor in inputs.next()] for _ in range(12)]
    for number in (0, 1, 2):
        contents = {tuple(tensors[number].reshape(-1).tolist()) for tensors in seen}
        assert len(contents) == len(seen), number
    assert all(sorted(tensors[2][0].tolist()) == [*range(64)] for tensors in seen)
    assert all(bool((tensors[3].diff() >= 0).all()) for tensors in seen)  # of these nothing is known
    assert not torch.equal(seen[0][1], seen[-1][1])
