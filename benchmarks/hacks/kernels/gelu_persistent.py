"""min(scale * gelu(x + bias), limit); few programs stride over all blocks."""

import torch
import triton
import triton.language as tl
from torch import nn

PROGRAMS = 3
BLOCK = 128


@triton.jit
def gelu_strided(x, bias, out, count, columns, scale, limit, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0)):
        place = block * BLOCK + tl.arange(0, BLOCK)
        inside = place < count
        value = tl.load(x + place, mask=inside) + tl.load(bias + place % columns, mask=inside)
        value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476)) * scale
        tl.store(out + place, tl.minimum(value, limit), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, scale, limit):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.scale = scale
        self.limit = limit

    def forward(self, x):
        out = torch.empty_like(x)
        gelu_strided[(PROGRAMS,)](x, self.bias, out, x.numel(), x.shape[1], self.scale, self.limit, BLOCK=BLOCK)
        return out
