"""Running sum along rows: one row per program, block by block with a carry."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024
WARPS = 4


@triton.jit
def running_sum(x, out, columns, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * columns
    carry = 0.0
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        place = first + column
        value = tl.load(x + place, mask=inside, other=0.0)
        total = tl.sum(value, 0)
        value = tl.cumsum(value, 0) + carry
        carry += total
        tl.store(out + place, value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        running_sum[(rows,)](x, out, columns, BLOCK=BLOCK, num_warps=WARPS)
        return out
