"""Layer norm with a whole row in one program: the mean first, then the squares of the differences."""

import torch
import triton
import triton.language as tl
from torch import nn

WARPS = 8


@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    place = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + place, mask=inside, other=0.0)
    value = tl.where(inside, value - tl.sum(value, 0) / columns, 0.0)
    value = value * (1.0 / tl.sqrt(tl.sum(value * value, 0) / columns + eps))
    value = value * tl.load(weight + column, mask=inside, other=0.0) + tl.load(bias + column, mask=inside, other=0.0)
    tl.store(out + place, value, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        norm = self.norm
        layer_norm[(rows,)](x, norm.weight, norm.bias, out, columns, norm.eps, BLOCK=triton.next_power_of_2(columns), num_warps=WARPS)
        return out
