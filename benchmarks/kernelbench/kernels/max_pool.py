"""Max pooling, one block of results per program."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 512
WARPS = 4


@triton.jit
def max_pool(x, out, count, length, wide, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    first = place // wide * length
    left = place % wide * 2 - 1
    value = tl.full((BLOCK,), -float("inf"), tl.float32)
    for step in tl.static_range(4):
        column = left + step
        value = tl.maximum(value, tl.load(x + first + column, mask=inside & (column >= 0) & (column < length), other=-float("inf")))
    tl.store(out + place, value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        batch, channels, length = x.shape
        wide = (length - 2) // 2 + 1
        out = torch.empty(batch, channels, wide, device=x.device, dtype=x.dtype)
        max_pool[(triton.cdiv(out.numel(), BLOCK),)](x, out, out.numel(), length, wide, BLOCK=BLOCK, num_warps=WARPS)
        return out
