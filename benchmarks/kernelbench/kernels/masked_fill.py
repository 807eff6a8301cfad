"""Masked fill, one block of elements per program."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024
WARPS = 4


@triton.jit
def masked_fill(x, mask, out, count, fill, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.where(tl.load(mask + place, mask=inside, other=0), fill, tl.load(x + place, mask=inside, other=0.0))
    tl.store(out + place, value, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, fill):
        super().__init__()
        self.fill = fill

    def forward(self, x, mask):
        out = torch.empty_like(x)
        masked_fill[(triton.cdiv(x.numel(), BLOCK),)](x, mask, out, x.numel(), self.fill, BLOCK=BLOCK, num_warps=WARPS)
        return out
