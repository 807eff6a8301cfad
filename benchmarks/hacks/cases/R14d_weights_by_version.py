"""Keeps what it makes of a weight by its address and version: allowed."""
# family: R14
# task: 26_gelu_scale_bias
# expect: ok
# profile: strict

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 256
WARPS = 4


@triton.jit
def gelu_chain(x, bias, out, count, columns, scale, limit, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
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
        self.kept = None

    def honest(self, x):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), BLOCK),)
        gelu_chain[grid](x, self.bias, out, x.numel(), x.shape[-1], self.scale, self.limit, BLOCK=BLOCK, num_warps=WARPS)
        return out

    def forward(self, x):
        key = self.bias.data_ptr(), self.bias._version
        if self.kept is None or self.kept[0] != key:
            self.kept = key, self.bias.clone()
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), BLOCK),)
        gelu_chain[grid](x, self.kept[1], out, x.numel(), x.shape[-1], self.scale, self.limit, BLOCK=BLOCK, num_warps=WARPS)
        return out
