"""Column sums: every program stores its part, the last one to finish adds the parts."""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = 16


@triton.jit
def sum_parts(x, parts, out, ticket, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    program = tl.program_id(0)
    row = program * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    part = tl.sum(tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0), 0)
    tl.store(parts + program * BLOCK + column, part)
    tl.debug_barrier()
    if tl.atomic_add(ticket, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        total = tl.zeros((BLOCK,), tl.float32)
        for other in range(PARTS):
            total += tl.load(parts + other * BLOCK + column)
        tl.store(out + column, total, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        programs = triton.cdiv(rows, ROWS)
        out = torch.empty(columns, device=x.device, dtype=x.dtype)
        parts = torch.empty(programs, 64, device=x.device)
        ticket = torch.zeros(1, dtype=torch.int32, device=x.device)
        sum_parts[(programs,)](x, parts, out, ticket, rows, columns, ROWS=ROWS, BLOCK=64, PARTS=programs)
        return out
