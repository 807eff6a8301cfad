"""Whole-number weights turned into floats in the kernel."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mm(x, q, s, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in tl.range(0, K, BK, num_stages=2):
        k = k0 + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        w = tl.load(q + n[None, :] * K + k[:, None], mask=n[None, :] < N, other=0).to(tl.float32)
        acc = tl.dot(a, w, acc, input_precision="ieee")
    acc *= tl.load(s + n, mask=n < N, other=0.0)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.register_buffer("qweight", torch.zeros((n, k), dtype=torch.int8))
        self.register_buffer("scales", torch.zeros(n))

    def forward(self, x):
        M, K = x.shape
        N = self.qweight.shape[0]
        y = torch.empty(M, N, device=x.device)
        mm[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x, self.qweight, self.scales, y, M, N, K, 16, 16, 32)
        return y
