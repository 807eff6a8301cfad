"""Softmax with a whole row in one program."""

import torch
import triton
import triton.language as tl
from torch import nn

WARPS = 16


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    place = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + place, mask=inside, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    value = value / tl.sum(value, 0)
    tl.store(out + place, value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        softmax[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=WARPS)
        return out
