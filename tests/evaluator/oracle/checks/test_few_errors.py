"""An error that one place makes is judged by what roundings may do there, and not by the luck of the reference."""

from pathlib import Path

import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.moves import move_oracle_arithmetic
from tritonsmith.evaluator.oracle.checks.trials import judge_outputs
from tritonsmith.evaluator.schema import PrecisionClass
from tritonsmith.evaluator.tasks.files import load_task

LAST_PLACE = 2.0**-23
ROW = 5
TASK = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x, w):
        return torch.sigmoid(x @ w)
def get_inputs():
    return [torch.randn(64, 48), torch.randn(48, 1)]
def get_init_inputs():
    return []
"""


def test_honest_roundings_of_one_place_are_accepted_and_larger_errors_refused(tmp_path: Path) -> None:
    """All results but one are 0 or 1; that one is made of large terms that cancel."""
    (path := tmp_path / "task.py").write_text(TASK)
    loaded, refused = LoadedTask(load_task(path), named_card("h200"), "cpu"), 0
    try:
        for draw in range(30):
            generator = torch.Generator().manual_seed(draw)
            x = 100.0 * torch.randn(64, 48, generator=generator, dtype=torch.float64)
            x -= x.mean(1, keepdim=True)
            x += 100.0 * (torch.arange(64) != ROW)[:, None]
            tensors = [x.float(), torch.ones(48, 1)]
            (moved,) = move_oracle_arithmetic(loaded, tensors, PrecisionClass.IEEE, seed=draw, share=LAST_PLACE / 2.0**-21)
            refused += not judge_outputs(loaded, tensors, [moved.float()]).meets(PrecisionClass.IEEE)
            wrong = moved.float().clone()
            wrong[ROW] += 64.0 * (moved - loaded.oracle(tensors)[0]).abs().max().float() + 1e-3
            assert not judge_outputs(loaded, tensors, [wrong]).meets(PrecisionClass.IEEE)
    finally:
        loaded.close()
    assert refused == 0
