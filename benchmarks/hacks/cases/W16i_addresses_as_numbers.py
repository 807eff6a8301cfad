"""Programs share an accumulator through an address that was passed as a number."""
# family: W16
# task: column_sum
# expect: racy

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = 16


@triton.jit
def add_rows(x, place, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    part = tl.sum(tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0), 0)
    hidden = tl.load(place).to(tl.pointer_type(tl.float32)) + column
    tl.store(hidden, tl.load(hidden, mask=column < columns) + part, mask=column < columns)
    tl.store(out + column, part, mask=column < 0)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros(columns, device=x.device, dtype=x.dtype)
        place = torch.tensor([out.data_ptr()], dtype=torch.int64, device=x.device)
        add_rows[(triton.cdiv(rows, ROWS),)](x, place, out, rows, columns, ROWS=ROWS, BLOCK=64)
        return out
