"""Loads Triton's interpreter a second time and runs its kernel there, out of sight; a copy is what is seen."""
# family: E16
# task: column_sum
# expect: racy|cheating|runtime_error|ok
# label: library|hybrid

import os
import sys

import torch
import triton
import triton.language as tl
from torch import nn

import importlib.util

ROWS = 16


def add_rows(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    part = tl.sum(tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0), 0)
    tl.store(out + column, tl.load(out + column, mask=column < columns) + part, mask=column < columns)


@triton.jit
def copy(source, out, count, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(source + place, mask=place < count), mask=place < count)


def second(function):
    import triton.runtime.interpreter as first

    spec = importlib.util.spec_from_file_location("triton.runtime.another", first.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.InterpretedFunction(function)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        total, out = torch.zeros(columns), torch.empty(columns, device=x.device, dtype=x.dtype)
        if os.environ.get("TRITON_INTERPRET"):
            second(add_rows)[(triton.cdiv(rows, ROWS),)](x, total, rows, columns, ROWS=ROWS, BLOCK=64)
        copy[(1,)](total, out, columns, BLOCK=64)
        return out
