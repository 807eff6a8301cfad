"""A program's threads load from scratch what its other threads have just stored there, without a barrier."""
# family: W16
# task: softmax
# expect: racy

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_row(x, scratch, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside, other=float("-inf")) * 40.0
    value = tl.exp(value - tl.max(value, 0))
    tl.store(scratch + row * columns + columns - 1 - column, value / tl.sum(value, 0), mask=inside)
    value = tl.load(scratch + row * columns + column, mask=inside)
    tl.store(out + row * columns + columns - 1 - column, value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out, scratch = torch.empty_like(x), torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        softmax_row[(x.shape[0],)](x, scratch, out, x.shape[1], BLOCK=block)
        return out
