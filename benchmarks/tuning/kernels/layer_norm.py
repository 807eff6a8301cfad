"""Layer norm of a row: one pass for sum and sum of squared distances to the row's first value, one for the result."""

import torch
import triton
import triton.language as tl
from torch import nn

# tunable: BLOCK = 512, 1024, 2048, 4096, 8192 [block]
# tunable: num_warps = 2, 4, 8, 16 [memory]
# tunable: num_stages = 1, 2, 3, 4 [memory]
TUNED = {"BLOCK": 1024, "num_warps": 4, "num_stages": 3}


@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    origin = tl.load(x + row)
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + column, mask=column < columns, other=0.0)
        value = tl.where(column < columns, value - origin, 0.0)
        total += value
        squares += value * value
    mean = tl.sum(total, 0) / columns
    scale = 1.0 / tl.sqrt(tl.sum(squares, 0) / columns - mean * mean + eps)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        value = (tl.load(x + row + column, mask=inside, other=0.0) - origin - mean) * scale
        value = value * tl.load(weight + column, mask=inside, other=0.0) + tl.load(bias + column, mask=inside, other=0.0)
        tl.store(out + row + column, value, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        out = torch.empty_like(x)
        norm = self.norm
        layer_norm[(x.shape[0],)](x, norm.weight, norm.bias, out, x.shape[1], norm.eps, **TUNED)
        return out
