"""Layer norm of a row: one pass for mean and squared distances (Welford, lane by lane, then put together), one for the result."""

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
    means = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    counts = tl.zeros((BLOCK,), tl.float32)
    tiles = 0.0
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        value = tl.load(x + row + column, mask=inside, other=0.0)
        tiles += 1.0
        distance = tl.where(inside, value - means, 0.0)
        means += distance * (1.0 / tiles)
        squares += distance * (value - means)
        counts += tl.where(inside, 1.0, 0.0)
    mean = tl.sum(means * counts, 0) / columns
    apart = means - mean
    scale = 1.0 / tl.sqrt(tl.sum(squares + counts * apart * apart, 0) / columns + eps)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < columns
        value = (tl.load(x + row + column, mask=inside, other=0.0) - mean) * scale
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
