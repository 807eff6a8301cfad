"""Scaled residual, one block of elements per program."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024
WARPS = 4


@triton.jit
def scaled_residual(x, residual, gate, out, count, columns, scale, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    factor = scale * tl.load(gate + place % columns, mask=inside, other=0.0)
    value = tl.load(x + place, mask=inside, other=0.0) + factor * tl.load(residual + place, mask=inside, other=0.0)
    tl.store(out + place, value, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns, scale):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(columns))
        self.scale = scale

    def forward(self, x, residual):
        out = torch.empty_like(x)
        count, columns = x.numel(), x.shape[1]
        scaled_residual[(triton.cdiv(count, BLOCK),)](x, residual, self.gate, out, count, columns, self.scale, BLOCK=BLOCK, num_warps=WARPS)
        return out
