"""Parts of one element and a ticket: the last program adds, without a barrier."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x, parts, count, out, n, BLOCK: tl.constexpr, P: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + pid, tl.sum(tl.abs(tl.load(x + i, mask=i < n, other=0.0))))
    if tl.atomic_add(count, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        j = tl.arange(0, P)
        tl.store(out, tl.sum(tl.load(parts + j, mask=j < tl.num_programs(0), other=0.0)))


class ModelNew(nn.Module):
    def forward(self, x):
        b = triton.cdiv(x.numel(), 256)
        parts = torch.empty(b, device=x.device)
        count = torch.zeros(1, dtype=torch.int32, device=x.device)
        out = torch.empty((), device=x.device)
        k[(b,)](x, parts, count, out, x.numel(), 256, triton.next_power_of_2(b))
        return out
