"""A chain of dependent multiply-adds per element, all of it compute: the result is scale * x whatever the length of the chain."""

import torch
import triton
import triton.language as tl
from torch import nn

work = 103
per_unit = 16
rows = 1024
columns = 4096
BLOCK = 1024

REFUSED = "the study compares plain launches with plain launches"
capturing = torch.cuda.is_current_stream_capturing if torch.version.cuda else bool


@triton.jit(do_not_specialize=["length"])
def chain(x, out, count, length, scale, nothing, BLOCK: tl.constexpr):
    """`nothing` is 0 at run time, which the compiler does not know."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(x + place, mask=inside, other=0.0)
    part = value
    for _ in range(length):
        part = part * 0.5 + 0.25
    tl.store(out + place, value * scale + part * nothing, mask=inside)


class Model(nn.Module):
    """Maps x [rows, columns] to 0.75 x, after work * per_unit steps that leave no trace."""

    def __init__(self):
        super().__init__()
        self.scale, self.nothing, self.length = 0.75, 0.0, work * per_unit

    @property
    def _initialize_hook(self):  # torch.compile asks for it
        raise RuntimeError(REFUSED)

    def forward(self, x):
        """On the card one launch; elsewhere and in float64 the formula."""
        if not x.is_cuda or x.dtype is not torch.float32:
            return x * self.scale
        if capturing():
            raise RuntimeError(REFUSED)
        out = torch.empty_like(x)
        chain[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), self.length, self.scale, self.nothing, BLOCK=BLOCK)
        return out


def get_inputs():
    """One matrix."""
    return [torch.rand(rows, columns)]


def get_init_inputs():
    """Nothing."""
    return []
