"""silu(x @ weight.T) in bfloat16; the weight is kept in float32."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k) * 0.1)

    def forward(self, x):
        return F.silu(F.linear(x, self.weight.to(x.dtype)))


def get_inputs():
    return [torch.randn(40, 96).bfloat16()]


def get_init_inputs():
    return [96, 72]
