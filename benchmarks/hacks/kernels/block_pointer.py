"""Block pointers with boundary checks, programs grouped for the L2 cache."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mm(
    x_ptr, w_ptr, y_ptr, M, N, K, sxm, sxk, swn, swk, sym, syn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    nn_ = tl.cdiv(N, BN)
    per = GROUP * nn_
    gid = pid // per
    first = gid * GROUP
    size = min(nm - first, GROUP)
    pm = first + (pid % per) % size
    pn = (pid % per) // size
    xb = tl.make_block_ptr(base=x_ptr, shape=(M, K), strides=(sxm, sxk), offsets=(pm * BM, 0), block_shape=(BM, BK), order=(1, 0))
    wb = tl.make_block_ptr(base=w_ptr, shape=(K, N), strides=(swk, swn), offsets=(0, pn * BN), block_shape=(BK, BN), order=(0, 1))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(xb, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(wb, boundary_check=(0, 1), padding_option="zero")
        acc += tl.dot(a, b)
        xb = tl.advance(xb, (0, BK))
        wb = tl.advance(wb, (BK, 0))
    acc = acc * tl.sigmoid(acc)
    yb = tl.make_block_ptr(y_ptr, (M, N), (sym, syn), (pm * BM, pn * BN), (BM, BN), (1, 0))
    tl.store(yb, acc.to(y_ptr.dtype.element_ty), boundary_check=(0, 1))


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k) * 0.1)
        self._w16 = None

    def forward(self, x):
        w = self.weight.to(x.dtype)
        M, K = x.shape
        N = w.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)
        mm[grid](x, w, y, M, N, K, *x.stride(), *w.stride(), *y.stride(), BM=16, BN=32, BK=32, GROUP=8)
        return y
