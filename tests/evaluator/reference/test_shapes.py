"""The probe at the sizes that a task declares."""

import pytest

from tritonsmith.evaluator.reference import shapes
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task, TaskFacts

SOURCE = """
import torch
from torch import nn

rows, width = 6, 8
SHAPES = [{"rows": 3}, {"width": 9, "rows": (1, 2)}, {"width": 64}]


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x[:, :60].expand(-1, width) if width > 60 else x)


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
"""


def describe() -> TaskFacts:
    return probe(Task(name="a_task", path="a_task.py", source=SOURCE))[0]


def test_each_declared_size_has_facts_of_its_own() -> None:
    facts = describe()
    first, one, two, broken = facts.other_shapes
    assert facts.sizes == {} and [found.sizes for found in (first, one, two)] == [
        {"rows": 3}, {"width": 9, "rows": 1}, {"width": 9, "rows": 2},
    ]  # fmt: skip
    assert [found.inputs[0].shape for found in (first, one, two) if found.inputs[0]] == [(3, 8), (1, 9), (2, 9)]
    assert two.init_inputs == ("9",) and two.parameters["norm.weight"].shape == (9,) and len(two.ops) == 3
    assert not broken.ops and broken.trace_error.startswith("a_task.py, line 15: ")
    assert TaskFacts.model_validate_json(facts.model_dump_json()) == facts


def test_sizes_beyond_a_limit_are_told_without_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_MOST_SIZES", 1)
    first, *others = describe().other_shapes
    assert first.ops and not any(found.ops for found in others)
    assert {found.trace_error for found in others} == {"the task declares more sizes than are looked at"}
