"""What baselines leave in the module, what is compiled for them, and how the profiler's spans are counted."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from tritonsmith.evaluator.channel.doorbell import BASELINES, mode_number
from tritonsmith.evaluator.confined.runner import baselines
from tritonsmith.evaluator.confined.runner.baselines import Baselines, TensorAttributes
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


@pytest.mark.slow
def test_every_mode_of_the_compiler_is_compiled_with_and_without_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch compiles one forward eight times, and runs it eagerly from then on without a word: no baseline may be such a one."""
    compiled: list[str] = []
    real = torch.compile

    def compile_for(model: nn.Module, mode: str) -> Any:
        def count(graph: torch.fx.GraphModule, inputs: object) -> Any:
            compiled.append(mode)
            return graph.forward

        return real(model, backend=count)

    class Recurrent(nn.Module):
        """Torch compiles it anew for another number of steps."""

        steps = 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.steps

    model = Recurrent()
    monkeypatch.setattr(model, "cuda", lambda: model)
    monkeypatch.setattr(baselines, "load_reference", lambda task: SimpleNamespace(build=lambda seed: model))
    monkeypatch.setattr(baselines, "settle_tuning", lambda: None)
    monkeypatch.setattr(Baselines, "load_weights", lambda self, path: None)
    monkeypatch.setattr(torch, "compile", compile_for)
    modes = [mode_number(name, tf32) for name in BASELINES if name.startswith("compile") for tf32 in (False, True)]
    made, x = Baselines(cast(Any, None), "", [torch.ones(3)], modes), torch.ones(3)
    expected = ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
    assert compiled == [name for name in expected for _ in range(2)]
    model.steps = 2
    for mode in modes:
        assert torch.equal(made.call([x], mode)[0], 2 * x)
    assert len(compiled) == 2 * len(modes)
