"""Column sums: programs take turns at the accumulator under a spin lock."""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = 16


@triton.jit
def add_locked(x, out, lock, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    part = tl.sum(tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0), 0)
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    tl.store(out + column, tl.load(out + column, mask=column < columns) + part, mask=column < columns)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros(columns, device=x.device, dtype=x.dtype)
        lock = torch.zeros(1, dtype=torch.int32, device=x.device)
        add_locked[(triton.cdiv(rows, ROWS),)](x, out, lock, rows, columns, ROWS=ROWS, BLOCK=64)
        return out
