"""What baselines leave in the module, and how the profiler's spans are counted."""

import torch
from torch import nn

from tritonsmith.evaluator.confined.runner.baselines import TensorAttributes
from tritonsmith.evaluator.confined.runner.launches import join_spans


class Keeper(nn.Module):
    """Keeps its last result as a plain attribute, in a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Module()
        self.part.last = torch.zeros(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.part.last = self.part.last + x
        return self.part.last


def test_each_baseline_has_the_tensors_that_it_left() -> None:
    """A baseline goes on from its own last call; the first call of each starts from what the module had."""
    model = Keeper()
    attributes = TensorAttributes(model)
    found = []
    for mode in (0, 2, 0, 2, 2):
        attributes.switch(mode)
        found.append(model(torch.ones(2)).tolist()[0])
    assert found == [1.0, 1.0, 2.0, 2.0, 3.0]


def test_a_change_in_place_stays_with_its_baseline() -> None:
    model = Keeper()
    attributes = TensorAttributes(model)
    attributes.switch(0)
    model.part.last += 5.0
    attributes.switch(2)
    assert model.part.last.tolist() == [0.0, 0.0]


def test_kernels_that_overlap_count_once() -> None:
    """The busy time of kernels on several streams is that of their union."""
    assert join_spans([]) == 0.0
    assert join_spans([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 1.75)]) == 4.0
