"""Softmax without the maximum: overflows for large entries."""
# family: W12
# task: softmax
# expect: inaccurate|cheating

import torch
import triton
import triton.language as tl
from torch import nn

WARPS = 4


@triton.jit
def softmax_row(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside, other=float("-inf")) * 40.0
    value = tl.exp(value)
    tl.store(out + row * columns + column, value / tl.sum(value, 0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_row[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=WARPS)
        return out
