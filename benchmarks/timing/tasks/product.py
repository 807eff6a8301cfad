"""A tiled matrix product whose weights end in columns of zeros: a faster kernel leaves the zeros out."""

import torch
import triton
import triton.language as tl
from torch import nn

work = 103
rows = 1024
columns = 1024
INNER = 32
TILE = 64

REFUSED = "the study compares plain launches with plain launches"
capturing = torch.cuda.is_current_stream_capturing if torch.version.cuda else bool


@triton.jit(do_not_specialize=["inner"])
def product(x, weight, out, inner, K, N, TILE: tl.constexpr, INNER: tl.constexpr):
    """One tile of the result per program; `inner` of the K products are made."""
    m = tl.program_id(0) * TILE + tl.arange(0, TILE)
    n = tl.program_id(1) * TILE + tl.arange(0, TILE)
    sums = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, inner, INNER):
        k = start + tl.arange(0, INNER)
        a = tl.load(x + m[:, None] * K + k[None, :])
        b = tl.load(weight + k[:, None] * N + n[None, :])
        sums += tl.dot(a, b, input_precision="ieee")
    tl.store(out + m[:, None] * N + n[None, :], sums)


class Model(nn.Module):
    """Maps x [rows, 106 * 32] to x @ weight [rows, columns]; rows of weight from 100 * 32 on are zero."""

    def __init__(self):
        super().__init__()
        weight = torch.randn(106 * INNER, columns)
        weight[100 * INNER :] = 0.0
        self.weight = nn.Parameter(weight)
        self.inner = work * INNER

    @property
    def _initialize_hook(self):  # torch.compile asks for it
        raise RuntimeError(REFUSED)

    def forward(self, x):
        """On the card one launch; elsewhere and in float64 the formula."""
        if not x.is_cuda or x.dtype is not torch.float32:
            return x @ self.weight
        if capturing():
            raise RuntimeError(REFUSED)
        (m, k), n = x.shape, self.weight.shape[1]
        out = torch.empty(m, n, device=x.device)
        grid = (m // TILE, n // TILE)
        product[grid](x, self.weight, out, self.inner, k, n, TILE=TILE, INNER=INNER, num_warps=4, num_stages=3)
        return out


def get_inputs():
    """One matrix."""
    return [torch.rand(rows, 106 * INNER)]


def get_init_inputs():
    """Nothing."""
    return []
