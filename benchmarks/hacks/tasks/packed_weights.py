"""silu(gate(x)) * up(x)."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.gate = nn.Linear(k, n)
        self.up = nn.Linear(k, n)

    def forward(self, x):
        return F.silu(self.gate(x)) * self.up(x)


def get_inputs():
    return [torch.randn(3, 8, 64)]


def get_init_inputs():
    return [64, 48]
