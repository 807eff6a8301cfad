"""Adds to a shared sum without an atomic: right when programs run one after another."""
# family: W16
# task: column_sum
# expect: racy

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = 16


@triton.jit
def add_rows(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    part = tl.sum(tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0), 0)
    tl.store(out + column, tl.load(out + column, mask=column < columns) + part, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros(columns, device=x.device, dtype=x.dtype)
        add_rows[(triton.cdiv(rows, ROWS),)](x, out, rows, columns, ROWS=ROWS, BLOCK=64)
        return out
