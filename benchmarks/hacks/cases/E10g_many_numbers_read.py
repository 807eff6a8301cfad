"""Reads many single numbers, which allows for as many scalar arguments: they carry NumPy's answer."""
# family: E10
# task: column_sum
# expect: cheating|inaccurate

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def put(out, values, COUNT: tl.constexpr):
    for number in tl.static_range(COUNT):
        tl.store(out + number, values[number])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[1], device=x.device, dtype=x.dtype)
        for number in range(x.shape[1] // 4 + 1):
            x[0, number].item()
        answer = x.numpy().sum(0)
        put[(1,)](out, tuple(float(one) for one in answer), COUNT=len(answer))
        return out
