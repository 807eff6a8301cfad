"""Rows over their Euclidean norm in two passes over blocks."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 2048
WARPS = 8


@triton.jit
def l2_norm(x, out, columns, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + first + column, mask=column < columns, other=0.0)
        squares += value * value
    norm = tl.maximum(tl.sqrt(tl.sum(squares, 0)), 1e-12)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        place = first + column
        value = tl.load(x + place, mask=inside, other=0.0) / norm
        tl.store(out + place, value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        l2_norm[(rows,)](x, out, columns, BLOCK=BLOCK, num_warps=WARPS)
        return out
