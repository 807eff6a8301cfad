"""Runs its kernel in a thread of its own, in case only launches of the main thread are recorded."""
# family: S17
# task: column_sum
# expect: racy|cheating|crashed|runtime_error

import threading

import torch
import triton
import triton.language as tl
from torch import nn



PROGRAMS = 4


@triton.jit
def two_phases(x, parts, out, arrived, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, P: tl.constexpr, COLUMNS: tl.constexpr):
    program = tl.program_id(0)
    row = program * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    part = tl.sum(tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0), 0)
    tl.store(parts + program * BLOCK + column, part)
    tl.atomic_add(arrived, 1, sem="release")
    while tl.atomic_add(arrived, 0, sem="acquire") < P:
        pass
    mine = program * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.sum(tl.load(parts + tl.arange(0, P)[:, None] * BLOCK + mine[None, :], cache_modifier=".cg"), 0)
    tl.store(out + mine, total, mask=mine < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(columns, device=x.device, dtype=x.dtype)
        parts = torch.empty(PROGRAMS, 64, device=x.device)
        arrived = torch.zeros(1, dtype=torch.int32, device=x.device)
        rows_each = triton.next_power_of_2(triton.cdiv(rows, PROGRAMS))

        def launch():
            two_phases[(PROGRAMS,)](x, parts, out, arrived, rows, columns, ROWS=rows_each, BLOCK=64, P=PROGRAMS, COLUMNS=64 // PROGRAMS)

        thread = threading.Thread(target=launch)
        thread.start()
        thread.join()
        return out
