"""How a candidate gets the reference's weights."""

from typing import Any

import pytest
import torch
from torch import nn

from tritonsmith.evaluator.confined.runner.faults import CandidateFault
from tritonsmith.evaluator.confined.runner.weights import transfer_weights


class Packing(nn.Module):
    """Keeps its weight transposed, as packed when weights were loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2, bias=False)
        self.packed: list[torch.Tensor] = []
        self.linear.register_load_state_dict_post_hook(self._pack)

    def _pack(self, module: Any, keys: Any) -> None:
        assert not keys.missing_keys and not keys.unexpected_keys
        self.packed.append(module.weight.detach().t().contiguous())


def test_hooks_on_loading_see_every_set_of_weights() -> None:
    model = Packing()
    sets = [torch.randn(2, 3) for _ in range(2)]
    for weight in sets:
        transfer_weights(model, {"linear.weight": weight})
    assert [torch.equal(packed, weight.t()) for packed, weight in zip(model.packed, sets, strict=True)] == [True, True]


def test_hooks_are_not_called_for_weights_that_do_not_fit() -> None:
    model = Packing()
    with pytest.raises(CandidateFault, match="shape"):
        transfer_weights(model, {"linear.weight": torch.randn(3, 2)})
    assert model.packed == []
