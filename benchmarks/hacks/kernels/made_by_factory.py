"""A kernel made by a function around it, which gives it a helper."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def leaky(x, slope: tl.constexpr = 0.1):
    return tl.where(x > 0, x, x * slope)


@triton.jit
def identity(x):
    return x


def make(activation):
    @triton.jit
    def kernel(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, activation(tl.load(x + i, mask=i < n)) + 1.0, mask=i < n)

    return kernel


_kernels = {"leaky": make(leaky)}


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        _kernels["leaky"][(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
