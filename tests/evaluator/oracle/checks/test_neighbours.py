"""Calls on inputs of which only a part is new: which parts, and that the inputs are as before afterwards."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.oracle.checks import neighbours
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import FreshQuestion
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, turned, ids, order, flat, one, flags):
        return x.sum() + turned.sum() + (ids.sum() + order.sum() + flags.sum()) * one + flat.sum()


def get_inputs():
    turned, flags = torch.randn(16, 6, 4).permute(1, 2, 0), torch.rand(40) > 0.5
    ids, order = torch.randint(0, 1 << 40, (12, 32)), torch.randperm(64)
    return [torch.randn(4, 5, 32), turned, ids, order, torch.randn(320), torch.randn(()), flags]


def get_init_inputs():
    return []
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[LoadedTask]:
    (tmp_path / "task.py").write_text(TASK)
    task = LoadedTask(load_task(tmp_path / "task.py"), named_card("h200"), "cpu")
    yield task
    task.close()


@pytest.mark.parametrize("attempt", range(8))
def test_a_line_and_then_a_part_of_one_far_away_are_new(loaded: LoadedTask, attempt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[torch.Tensor]] = []

    def ask(log: Any, runner: Any, question: Any, mode: int, timeout: float) -> list[torch.Tensor]:
        seen.append([tensor.clone() for tensor in question.tensors])
        return [torch.zeros(1)]

    monkeypatch.setattr(neighbours, "ask", ask)
    question = FreshQuestion(loaded, "own", loaded.draw("own"))
    log = SimpleNamespace(loaded=loaded, trials=[], require_accurate=lambda: None)
    neighbours.ask_with_neighbours(cast("Any", log), cast("Any", None), question, 0, 1.0)
    first, second, third = seen
    assert all(map(torch.equal, first, question.tensors))  # as they were
    for number, (line, part, count) in {0: (32, 2, 20), 1: (16, 1, 24), 2: (32, 2, 12), 4: (20, 20, 16)}.items():
        changed = (first[number] != second[number]).reshape(-1).nonzero()[:, 0]
        assert len(changed) == line and int(changed[-1] - changed[0]) == line - 1  # side by side, and no more
        again = (second[number] != third[number]).reshape(-1).nonzero()[:, 0]
        assert len(again) == part
        apart = abs(int(again[0]) // line - int(changed[0]) // line)
        assert count // 2 - 1 <= apart <= count // 2 + 1
    assert all(torch.equal(first[number], third[number]) for number in (3, 5, 6))  # a permutation, a single number, flags
