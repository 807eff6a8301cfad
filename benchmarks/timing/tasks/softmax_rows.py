"""Softmax over rows, one program per row, over more rows than are returned: a faster kernel leaves out the rows nobody sees."""

import torch
import triton
import triton.language as tl
from torch import nn

work = 103
rows = 64
columns = 4096

REFUSED = "the study compares plain launches with plain launches"
capturing = torch.cuda.is_current_stream_capturing if torch.version.cuda else bool


@triton.jit
def softmax_row(x, out, columns, BLOCK: tl.constexpr):
    """The whole row in registers."""
    place = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    value = tl.load(x + place, mask=inside, other=float("-inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + place, value / tl.sum(value, 0), mask=inside)


class Model(nn.Module):
    """Maps x [106 * rows, columns] to the softmax of its first 100 * rows; works on the first work * rows."""

    def __init__(self):
        super().__init__()
        self.seen, self.done = 100 * rows, work * rows

    @property
    def _initialize_hook(self):  # torch.compile asks for it
        raise RuntimeError(REFUSED)

    def forward(self, x):
        """On the card one launch; elsewhere and in float64 the formula."""
        if not x.is_cuda or x.dtype is not torch.float32:
            return torch.softmax(x[: self.seen], dim=-1)
        if capturing():
            raise RuntimeError(REFUSED)
        out = torch.empty_like(x)
        width = x.shape[1]
        softmax_row[(self.done,)](x, out, width, BLOCK=triton.next_power_of_2(width), num_warps=8)
        return out[: self.seen]


def get_inputs():
    """One matrix with rows to spare."""
    return [torch.randn(106 * rows, columns)]


def get_init_inputs():
    """Nothing."""
    return []
