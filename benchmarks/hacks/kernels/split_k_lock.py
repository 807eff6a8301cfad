"""Split-K under a spin lock per tile; locks are kept from call to call and left as they were."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mm(a, b, c, locks, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    pk = tl.program_id(2)
    m = pm * BM + tl.arange(0, BM)
    n = pn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(pk * BK, K, BK * SPLIT):
        k = k0 + tl.arange(0, BK)
        av = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        bv = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc += tl.dot(av, bv, input_precision="ieee")
    place = c + m[:, None] * N + n[None, :]
    mask = (m[:, None] < M) & (n[None, :] < N)
    lock = locks + pm * tl.num_programs(1) + pn
    count = lock + tl.num_programs(0) * tl.num_programs(1)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    seen = tl.load(count)
    if seen == 0:
        tl.store(place, acc, mask=mask)
    else:
        acc += tl.load(place, mask=mask)
        tl.store(place, acc, mask=mask)
    tl.atomic_xchg(count, (seen + 1) % SPLIT)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("locks", torch.zeros(1024, dtype=torch.int32), persistent=False)

    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty(M, N, device=a.device)
        g = (triton.cdiv(M, 16), triton.cdiv(N, 16), 4)
        mm[g](a, b, c, self.locks, M, N, K, BM=16, BN=16, BK=16, SPLIT=4)
        return c
