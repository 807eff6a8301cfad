"""Running sums of a row, tile by tile, with the sum so far carried along."""

import torch
import triton
import triton.language as tl
from torch import nn

# tunable: BLOCK = 512, 1024, 2048, 4096, 8192 [block]
# tunable: num_warps = 2, 4, 8, 16 [memory]
# tunable: num_stages = 1, 2, 3, 4 [memory]
TUNED = {"BLOCK": 1024, "num_warps": 4, "num_stages": 3}


@triton.jit
def running_sum(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    so_far = 0.0
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + column, mask=column < columns, other=0.0)
        tl.store(out + row + column, so_far + tl.cumsum(value, 0), mask=column < columns)
        so_far += tl.sum(value, 0)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        running_sum[(x.shape[0],)](x, out, x.shape[1], **TUNED)
        return out
