"""Layer norm with one program per row; the sums have the type ACCUMULATED."""

import torch
import triton
import triton.language as tl
from torch import nn

ACCUMULATED = tl.constexpr(tl.float32)


@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < columns
    place = tl.program_id(0).to(tl.int64) * columns + column
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
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
        self.norm = nn.LayerNorm(features, dtype=torch.float16)

    def forward(self, x):
        out = torch.empty_like(x)
        columns, norm = x.shape[-1], self.norm
        grid = (x.numel() // columns,)
        layer_norm[grid](x, norm.weight, norm.bias, out, columns, norm.eps, BLOCK=triton.next_power_of_2(columns), num_warps=4)
        return out
