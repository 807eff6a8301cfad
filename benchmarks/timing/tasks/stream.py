"""A copy with a factor, all of it memory traffic, over more rows than are returned: a faster kernel leaves out the rows nobody sees."""

import torch
import triton
import triton.language as tl
from torch import nn

work = 103
rows = 64
columns = 4096
BLOCK = 2048

REFUSED = "the study compares plain launches with plain launches"
capturing = torch.cuda.is_current_stream_capturing if torch.version.cuda else bool


@triton.jit(do_not_specialize=["count"])
def stream(x, out, count, scale, BLOCK: tl.constexpr):
    """One block per program."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(out + place, tl.load(x + place, mask=inside, other=0.0) * scale, mask=inside)


class Model(nn.Module):
    """Maps x [106 * rows, columns] to 0.75 x of the first 100 * rows; works on the first work * rows."""

    def __init__(self):
        super().__init__()
        self.scale, self.seen, self.done = 0.75, 100 * rows, work * rows

    @property
    def _initialize_hook(self):  # torch.compile asks for it
        raise RuntimeError(REFUSED)

    def forward(self, x):
        """On the card one launch; elsewhere and in float64 the formula."""
        if not x.is_cuda or x.dtype is not torch.float32:
            return x[: self.seen] * self.scale
        if capturing():
            raise RuntimeError(REFUSED)
        out = torch.empty_like(x)
        count = self.done * x.shape[1]
        stream[(triton.cdiv(count, BLOCK),)](x, out, count, self.scale, BLOCK=BLOCK)
        return out[: self.seen]


def get_inputs():
    """One matrix with rows to spare."""
    return [torch.rand(106 * rows, columns)]


def get_init_inputs():
    """Nothing."""
    return []
