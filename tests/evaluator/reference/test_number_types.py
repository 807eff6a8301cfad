"""The oracle rounds the numbers that a forward compares or selects as PyTorch does, for each family of operators."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tritonsmith.evaluator.reference.float64 import InFloat64, widen_module
from tritonsmith.evaluator.reference.number_types import stand_for

Forward = Callable[["_Thresholds", torch.Tensor], torch.Tensor]


class _Thresholds(nn.Module):
    """A forward with a threshold in a buffer, one by column, and one that is no buffer."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.register_buffer("limit", torch.tensor(0.3))
        self.register_buffer("row", torch.full((16,), 0.3))
        self.plain, self.run = torch.tensor(0.1), forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(self, x)


def _set(x: torch.Tensor, place: object) -> torch.Tensor:
    y = x.clone()
    y[place] = 0.1
    return y


FAMILIES: dict[str, tuple[Forward, ...]] = {
    "comparisons": (
        lambda m, x: x == 0.1, lambda m, x: x != 0.1, lambda m, x: x > 0.3, lambda m, x: x >= 0.7, lambda m, x: x < 0.7,
        lambda m, x: 0.3 >= x, lambda m, x: x.clone().gt_(0.3), lambda m, x: x.abs() > 0.3, lambda m, x: x[:, 3:] > 0.3,
        lambda m, x: torch.isin(x, 0.1), lambda m, x: (x * 0 + 2048) == 2049,
    ),
    "tensors without dimensions": (
        lambda m, x: x > torch.tensor(0.3, dtype=torch.float64), lambda m, x: x > m.limit, lambda m, x: x > m.limit.to(x.dtype),
        lambda m, x: x == m.plain, lambda m, x: torch.maximum(x, torch.tensor(0.3)) == 0.3,
        lambda m, x: torch.minimum(torch.tensor(0.3, dtype=torch.float64), x) == 0.3, lambda m, x: x.clamp(min=m.limit) == m.limit,
    ),
    "tensors of numbers": (
        lambda m, x: x - x.new_tensor(0.1), lambda m, x: (x - x.new_tensor(0.1)) == 0, lambda m, x: x == torch.tensor(0.1).to(x),
        lambda m, x: x == torch.tensor(0.1).type_as(x), lambda m, x: x == torch.full_like(x, 0.1), lambda m, x: x == x.new_full((16,), 0.1),
        lambda m, x: torch.bucketize(x, torch.tensor([0.1, 0.3], dtype=x.dtype)), lambda m, x: x > torch.tensor([0.3], dtype=torch.float64),
    ),
    "casts": (
        lambda m, x: x.half() == 0.1, lambda m, x: x.float() > 0.3, lambda m, x: x.double() > 0.3, lambda m, x: x > m.row.to(x.dtype),
        lambda m, x: x.bfloat16().float() == 0.1, lambda m, x: x.ge(0.3).to(x.dtype) * x,
    ),
    "selections": (
        lambda m, x: x.masked_fill(x > 0.3, 0.1) == 0.1, lambda m, x: torch.where(x > 0.3, 0.1, x) == 0.1,
        lambda m, x: F.pad(x, (1, 1), value=0.1) == 0.1, lambda m, x: _set(x, x > 0.3) == 0.1, lambda m, x: _set(x, (0, 0)) == 0.1,
        lambda m, x: x.clone().masked_fill_(x > 0.3, 0.1) == 0.1, lambda m, x: x.clamp(0.1, 0.3) >= 0.3,
        lambda m, x: x.index_fill(0, torch.tensor([0]), 0.3) == 0.3, lambda m, x: torch.nan_to_num(x / 0),
    ),
    "functions that jump": (
        lambda m, x: F.hardshrink(x, 0.7), lambda m, x: F.threshold(x, 0.3, 0.2), lambda m, x: F.hardtanh(x, -0.1, 0.3) == 0.3,
        lambda m, x: x % 0.1, lambda m, x: torch.fmod(x, 0.1), lambda m, x: x // 0.1, lambda m, x: torch.div(x, 0.1, rounding_mode="floor"),
    ),
    "smooth functions": (
        lambda m, x: F.softshrink(x, 0.3), lambda m, x: x * 0.1 + 0.3, lambda m, x: F.celu(x, 0.3), lambda m, x: F.leaky_relu(x, 0.1),
    ),
    "the type that the code asks for": (
        lambda m, x: x * 0 + torch.finfo(x.dtype).eps, lambda m, x: torch.full((3,), 0.1, dtype=x.dtype) == x[0, 0],
        lambda m, x: torch.arange(11) / 10 == 0.1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_are_rounded_as_pytorch_rounds_them(family: str, dtype: torch.dtype) -> None:
    """Comparisons give the same bits and others are within rounding, at inputs on the thresholds, in the first forward and later."""
    steps = torch.arange(256, dtype=torch.float64).view(16, 16)
    x = (steps % 13 / 10 - 0.3 * (steps % 7 == 0)).to(dtype)
    for number, forward in enumerate(FAMILIES[family]):
        model, inside = _Thresholds(forward), InFloat64()
        want, wide = model(x), widen_module(model)
        for _ in range(2):
            with inside(wide):
                found = wide(stand_for(x.double(), dtype))
            assert found.dtype == (torch.float64 if want.is_floating_point() else want.dtype)
            tolerance = 4 * torch.finfo(want.dtype).eps if want.is_floating_point() else 0.0
            assert torch.allclose(found.double(), want.double(), rtol=tolerance, atol=tolerance), f"{family} {number}"


def test_whole_numbers_stay_as_they_are() -> None:
    x = torch.tensor([-(2**31), 2**31 - 1, 1999999999, 0], dtype=torch.int32)
    with InFloat64()():
        found = x % 2147483647, x == 2147483647, x.clamp(max=2147483646)
    assert [part.tolist() for part in found] == [
        (x % 2147483647).tolist(), [False, True, False, False], [-(2**31), 2147483646, 1999999999, 0]
    ]  # fmt: skip
