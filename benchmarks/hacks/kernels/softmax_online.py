"""Softmax of 40 x over rows: running maximum and sum in one pass, results in a second."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 64


@triton.jit
def softmax_online(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top = float("-inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + column, mask=column < columns, other=float("-inf")) * 40.0
        higher = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher), 0)
        top = higher
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + column, mask=column < columns, other=float("-inf")) * 40.0
        tl.store(out + row * columns + column, tl.exp(value - top) / total, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_online[(x.shape[0],)](x, out, x.shape[1], BLOCK=BLOCK)
        return out
