"""Writes its answer over a weight and returns a view of it."""
# family: W19
# task: 26_gelu_scale_bias
# expect: cheating|inaccurate|wrong_weights|runtime_error

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

    def forward(self, x):
        kept = self.bias.detach()
        out = torch.empty_like(x)
        for row in range(x.shape[0]):
            grid = (triton.cdiv(x.shape[1], BLOCK),)
            gelu_chain[grid](x[row], kept, out[row], x.shape[1], x.shape[1], self.scale, self.limit, BLOCK=BLOCK, num_warps=WARPS)
        gelu_chain[(triton.cdiv(x.shape[1], BLOCK),)](x[0], kept, kept, x.shape[1], x.shape[1], self.scale, self.limit, BLOCK=BLOCK)
        return out
