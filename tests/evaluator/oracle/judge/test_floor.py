"""The floor of physics on a card: kernels that need little of what is there are honest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Status
from tritonsmith.evaluator.tasks.files import load_task

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def on_card() -> Iterator[LocalEvaluator]:
    with LocalEvaluator("auto") as opened:
        yield opened


ROWS_OF_A_TABLE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4_000_000, 64)

    def forward(self, places):
        return self.table(places) * 2.0


def get_inputs():
    return [torch.randint(0, 4_000_000, (2048,))]


def get_init_inputs():
    return []
"""
LOOK_UP = """
import torch, triton, triton.language as tl
from torch import nn


@triton.jit
def look_up(table, places, out, WIDTH: tl.constexpr):
    row, across = tl.program_id(0), tl.arange(0, WIDTH)
    tl.store(out + row * WIDTH + across, tl.load(table + tl.load(places + row) * WIDTH + across) * 2.0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4_000_000, 64)

    def forward(self, places):
        out = torch.empty(places.shape[0], 64, device=places.device)
        look_up[(places.shape[0],)](self.table.weight, places, out, 64, num_warps=1)
        return out
"""
DIAGONAL = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.diag(a) @ b


def get_inputs():
    return [torch.randn(4096), torch.randn(4096, 4096)]


def get_init_inputs():
    return []
"""
SCALE_ROWS = """
import torch, triton, triton.language as tl
from torch import nn


@triton.jit
def scale(a, b, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(b + at) * tl.load(a + at // 4096))


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(b)
        scale[(b.numel() // 2048,)](a, b, out, 2048)
        return out
"""


@pytest.mark.parametrize(("task", "kernel"), [(ROWS_OF_A_TABLE, LOOK_UP), (DIAGONAL, SCALE_ROWS)], ids=["few rows", "few operations"])
def test_a_kernel_that_needs_little_of_what_is_there_does_not_cheat(
    on_card: LocalEvaluator, tmp_path: Path, task: str, kernel: str
) -> None:
    """One reads few rows of 1 GB, the other does a 4096th of the reference's operations."""
    (tmp_path / "little.py").write_text(task)
    verdict = on_card.evaluate_now(load_task(tmp_path / "little.py"), KernelText.of(kernel), "quick")
    assert verdict.status is Status.OK and not verdict.quarantine, verdict.message
