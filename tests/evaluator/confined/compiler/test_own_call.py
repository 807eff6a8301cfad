"""What candidates are called with where they run by themselves, as under compute-sanitizer."""

from pathlib import Path

import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.confined.compiler.own_call import open_call
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask, write_own_call
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4)
        i, j = torch.tril_indices(6, 6, offset=-1)
        self.register_buffer("i", i)
        self.register_buffer("j", j)

    def forward(self, x, ids, count):
        return (x @ x.transpose(1, 2))[:, self.i, self.j] * count + self.table(ids).sum()


def get_inputs():
    return [torch.randn(3, 4, 6).transpose(1, 2), torch.randint(10, 50, (7,)), 2]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4)
        self.i = nn.Parameter(torch.full((15,), 1 << 40), requires_grad=False)
        self.j = nn.Parameter(torch.full((15,), 1 << 40), requires_grad=False)
"""


def test_index_buffers_and_ids_are_those_of_a_caller(tmp_path: Path) -> None:
    """A candidate's own buffers may hold anything before weights are copied into them."""
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "candidate.py").write_text(CANDIDATE)
    loaded = LoadedTask(load_task(tmp_path / "task.py"), named_card("h200"), "cpu")
    try:
        model, (x, ids, count) = open_call(tmp_path / "candidate.py", write_own_call(loaded), "cpu")
        assert torch.equal(torch.stack([model.i, model.j]), torch.tril_indices(6, 6, offset=-1))
        assert torch.equal(model.table.weight, loaded.model.table.weight)
        assert x.stride() == (24, 1, 6) and x.std() > 0 and count == 2
        assert int(ids.min()) >= 10 and int(ids.max()) < 50 and len(set(ids.tolist())) > 1
    finally:
        loaded.close()
