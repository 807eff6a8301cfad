"""min(scale * gelu(x + bias), limit); a program walks over one row and keeps to columns that exist."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 128


@triton.jit
def gelu_row(x, bias, out, columns, scale, limit, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(x + row * columns + column, mask=inside, other=0.0) + tl.load(bias + column, mask=inside, other=0.0)
        value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
        tl.store(out + row * columns + column, tl.minimum(value * scale, limit), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, scale, limit):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.scale = scale
        self.limit = limit

    def forward(self, x):
        out = torch.empty_like(x)
        gelu_row[(x.shape[0],)](x, self.bias, out, x.shape[1], self.scale, self.limit, BLOCK=BLOCK)
        return out
