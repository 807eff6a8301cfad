"""Layer norm with the mean and the reciprocal deviation that a backward would need."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.ln = nn.LayerNorm(n)
        self.n = n

    def forward(self, x):
        y, mean, rstd = torch.native_layer_norm(x, [self.n], self.ln.weight, self.ln.bias, 1e-5)
        return y, mean, rstd


def get_inputs():
    return [torch.randn(4, 10, 120)]


def get_init_inputs():
    return [120]
