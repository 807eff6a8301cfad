"""A sum and its layer norm with one program per row; the statistics have the type ACCUMULATED."""

import torch
import triton
import triton.language as tl
from torch import nn

ACCUMULATED = tl.constexpr(tl.float32)


@triton.jit
def add_layer_norm(x, residual, weight, bias, total, out, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    place = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + place, mask=inside, other=0.0) + tl.load(residual + place, mask=inside, other=0.0)
    tl.store(total + place, value, mask=inside)
    value = value.to(tl.float32)
    mean = tl.sum(value.to(ACCUMULATED), 0).to(tl.float32) / columns
    value = tl.where(inside, value - mean, 0.0)
    squares = tl.sum((value * value).to(ACCUMULATED), 0).to(tl.float32)
    value = value * (1.0 / tl.sqrt(squares / columns + eps))
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    value = value * scale + tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, value, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, dtype=torch.bfloat16)

    def forward(self, x, residual):
        total, out = torch.empty_like(x), torch.empty_like(x)
        rows, columns = x.shape
        norm, block = self.norm, triton.next_power_of_2(columns)
        add_layer_norm[(rows,)](x, residual, norm.weight, norm.bias, total, out, columns, norm.eps, BLOCK=block, num_warps=8)
        return total, out
