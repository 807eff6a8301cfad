"""Softmax of 40 x over rows: several rows per program, base-two exponentials."""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = 4


@triton.jit
def softmax_rows(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    place = row[:, None] * columns + column[None, :]
    value = tl.load(x + place, mask=inside, other=-1.0e30) * 40.0
    value = tl.exp2((value - tl.max(value, 1)[:, None]) * 1.4426950408889634)
    tl.store(out + place, value / tl.sum(value, 1)[:, None], mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        softmax_rows[(triton.cdiv(rows, ROWS),)](x, out, rows, columns, ROWS=ROWS, BLOCK=triton.next_power_of_2(columns))
        return out
