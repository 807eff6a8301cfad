"""Two threads of the host launch kernels that add to one sum; one stream puts them in an order, so that the sum is right."""
# family: W16
# task: column_sum
# expect: ok|racy|cheating|inaccurate|runtime_error

import threading

import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def add_half(x, out, first, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = first + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    part = tl.sum(tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0), 0)
    tl.store(out + column, tl.load(out + column, mask=column < columns) + part, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros(columns, device=x.device, dtype=x.dtype)

        def launch(first):
            add_half[(1,)](x, out, first, rows, columns, ROWS=32, BLOCK=64)

        threads = [threading.Thread(target=launch, args=(first,)) for first in (0, 32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return out
