"""What all candidates of a task share: sets of inputs with their answers, and draws of weights."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.shared_inputs import SharedInputs
from tritonsmith.evaluator.schema import PrecisionClass
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.register_buffer("shift", torch.ones(8))
    def forward(self, x):
        return self.a(x) + self.shift
def get_inputs():
    return [torch.rand(16, 8)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[LoadedTask]:
    (tmp_path / "task.py").write_text(TASK)
    session = LoadedTask(load_task(tmp_path / "task.py"), named_card("h200"), "cpu")
    session.take_plan(replace(session.plan, kept=1e6))
    yield session
    session.close()


def count_answers(loaded: LoadedTask, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    computed: list[int] = []
    compute = loaded.oracle
    monkeypatch.setattr(loaded, "oracle", lambda tensors: computed.append(1) or compute(tensors))
    return computed


def test_a_set_is_drawn_and_answered_once_for_all_candidates(loaded: LoadedTask, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, computed = SharedInputs(loaded), count_answers(loaded, monkeypatch)
    first = shared.take("signed", 0)
    right = loaded.reference_outputs(first.tensors, PrecisionClass.IEEE)
    assert first.expect([]).trial(right).meets(PrecisionClass.IEEE)
    spent = len(computed)
    again = shared.take("signed", 0)
    assert again is first and again.expect([]).trial([right[0] * 1.001]).meets(PrecisionClass.IEEE) is False
    assert spent and len(computed) == spent
    assert not torch.equal(shared.take("signed", 1).tensors[0], first.tensors[0])
    assert shared.take("sided", 0) is not first


def test_other_weights_have_answers_of_their_own_and_come_back(loaded: LoadedTask) -> None:
    shared = SharedInputs(loaded)
    before = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    first = shared.take("own", 1)
    right = loaded.reference_outputs(first.tensors, PrecisionClass.IEEE)
    loaded.use_weights(1)
    moved = torch.load(loaded.weights_path, weights_only=True)
    assert not torch.equal(moved["a.weight"], before["a.weight"])
    other = shared.take("own", 1)
    assert other is not first and not other.expect([]).trial(right).meets(PrecisionClass.IEEE)
    loaded.use_weights(0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in torch.load(loaded.weights_path, weights_only=True).items())
    assert all(torch.equal(tensor, before[name].double()) for name, tensor in loaded.model64.state_dict().items())
    assert shared.take("own", 1) is first
    loaded.use_weights(1)
    assert torch.equal(torch.load(loaded.weights_path, weights_only=True)["a.weight"], moved["a.weight"])


def test_a_set_serves_so_many_verdicts_and_no_more_memory_is_taken_than_the_plan_has(loaded: LoadedTask) -> None:
    shared = SharedInputs(loaded)
    first = shared.take("signed", 0)
    assert all(shared.take("signed", 0) is first for _ in range(15))
    assert shared.take("signed", 0) is not first
    loaded.take_plan(replace(loaded.plan, kept=float(first.nbytes)))
    little = SharedInputs(loaded)
    assert little.take("signed", 0) is little.take("signed", 0)
    assert little.take("own", 1) is not little.take("own", 1)
