"""Sum over the middle axis: a block of columns of one matrix per program, tile by tile."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 64
TILE = 32
WARPS = 4


@triton.jit
def sum_axis(x, out, rows, columns, TILE: tl.constexpr, BLOCK: tl.constexpr):
    matrix = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, rows, TILE):
        row = start + tl.arange(0, TILE)
        source = (matrix * rows + row[:, None]) * columns + column[None, :]
        value += tl.sum(tl.load(x + source, mask=(row[:, None] < rows) & inside[None, :], other=0.0), 0)
    place = matrix * columns + column
    tl.store(out + place, value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        batch, rows, columns = x.shape
        out = torch.empty(batch, columns, device=x.device, dtype=x.dtype)
        sum_axis[(batch, triton.cdiv(columns, BLOCK))](x, out, rows, columns, TILE=TILE, BLOCK=BLOCK, num_warps=WARPS)
        return out
