"""RMS norm with libdevice, constants of the module, a helper with a default, and hints to the compiler."""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra import libdevice

EPS: tl.constexpr = tl.constexpr(1e-6)


@triton.jit
def _rms(v, n, eps=1e-6):
    return libdevice.rsqrt(tl.sum(v * v, axis=0) / n + eps)


@triton.jit
def k(x, r, w, y, h, stride, N, BLOCK: tl.constexpr):
    tl.assume(stride > 0)
    row = tl.program_id(0)
    c = tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK), BLOCK), BLOCK)
    m = c < N
    v = tl.load(x + row * stride + c, mask=m, other=0.0) + tl.load(r + row * stride + c, mask=m, other=0.0, eviction_policy="evict_first")
    tl.store(h + row * stride + c, v, mask=m)
    rstd = _rms(v, N, eps=EPS)
    tl.store(y + row * stride + c, libdevice.tanh(v * rstd * tl.load(w + c, mask=m)), mask=m, cache_modifier=".cs")


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x, residual):
        y, h = torch.empty_like(x), torch.empty_like(x)
        k[(x.shape[0],)](x, residual, self.weight, y, h, x.stride(0), x.shape[1], BLOCK=256, num_warps=4, num_ctas=1)
        return y, h
