"""Column sums: the running total goes from program to program, each waits for the one before it."""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = 16


@triton.jit
def chained(x, totals, out, flags, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    row = program * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    total = tl.sum(tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0), 0)
    if program > 0:
        while tl.atomic_add(flags + program - 1, 0, sem="acquire") == 0:
            pass
        total += tl.load(totals + (program - 1) * BLOCK + column, cache_modifier=".cg")
    tl.store(totals + program * BLOCK + column, total)
    tl.debug_barrier()
    tl.atomic_xchg(flags + program, 1, sem="release")
    if program == tl.num_programs(0) - 1:
        tl.store(out + column, total, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        programs = triton.cdiv(rows, ROWS)
        out = torch.empty(columns, device=x.device, dtype=x.dtype)
        totals = torch.empty(programs, 64, device=x.device)
        flags = torch.zeros(programs, dtype=torch.int32, device=x.device)
        chained[(programs,)](x, totals, out, flags, rows, columns, ROWS=ROWS, BLOCK=64)
        return out
