"""relu(x @ weight) many times: the library's product and a rectifier of its own."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024
STEPS = 8


@triton.jit
def rectify(x, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(x + place, tl.maximum(tl.load(x + place, mask=inside), 0.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, size))

    def forward(self, x):
        for _ in range(STEPS):
            x = x @ self.weight
            rectify[(triton.cdiv(x.numel(), BLOCK),)](x, x.numel(), BLOCK=BLOCK)
        return x
