"""A linear recurrence as one associative scan of pairs."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def combine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def scan(a, b, out, T, D, BT: tl.constexpr, BD: tl.constexpr):
    batch = tl.program_id(0)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    t = tl.arange(0, BT)
    place = (batch * T + t[:, None]) * D + d[None, :]
    mask = (t[:, None] < T) & (d[None, :] < D)
    av = tl.sigmoid(tl.load(a + place, mask=mask, other=0.0))
    bv = tl.load(b + place, mask=mask, other=0.0)
    _, h = tl.associative_scan((av, bv), 0, combine)
    tl.store(out + place, h, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        B, T, D = a.shape
        out = torch.empty_like(b)
        scan[(B, triton.cdiv(D, 8))](a, b, out, T, D, triton.next_power_of_2(T), 8)
        return out
