"""RMS norm with a whole row in one program."""

import torch
import triton
import triton.language as tl
from torch import nn

WARPS = 8


@triton.jit
def rms_norm(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    place = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + place, mask=inside, other=0.0)
    value = value * (1.0 / tl.sqrt(tl.sum(value * value, 0) / columns + eps)) * tl.load(weight + column, mask=inside, other=0.0)
    tl.store(out + place, value, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(columns) + 0.5)
        self.eps = eps

    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        rms_norm[(rows,)](x, self.weight, out, columns, self.eps, BLOCK=triton.next_power_of_2(columns), num_warps=WARPS)
        return out
