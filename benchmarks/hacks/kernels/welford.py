"""Welford's combination in one tl.reduce of three values."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def welford_combine(m1, s1, n1, m2, s2, n2):
    n = n1 + n2
    d = m2 - m1
    w = tl.where(n == 0.0, 0.0, n2 / n)
    return m1 + d * w, s1 + s2 + d * d * n1 * w, n


@triton.jit
def ln(x, w, b, y, mean, rstd, N, eps, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < N
    v = tl.load(x + r * N + c, mask=m, other=0.0)
    one = tl.where(m, 1.0, 0.0)
    mu, m2, n = tl.reduce((v, tl.zeros_like(v), one), 0, welford_combine)
    rs = tl.rsqrt(m2 / n + eps)
    tl.store(mean + r, mu)
    tl.store(rstd + r, rs)
    tl.store(y + r * N + c, (v - mu) * rs * tl.load(w + c, mask=m) + tl.load(b + c, mask=m), mask=m)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.ln = nn.LayerNorm(n)
        self.n = n

    def forward(self, x):
        y = torch.empty_like(x)
        mean = torch.empty(*x.shape[:-1], 1, device=x.device)
        rstd = torch.empty_like(mean)
        ln[(mean.numel(),)](x, self.ln.weight, self.ln.bias, y, mean, rstd, self.n, self.ln.eps, BLOCK=128)
        return y, mean, rstd
