"""x @ (int8 weights times a scale per column)."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.register_buffer("qweight", torch.randint(-127, 128, (n, k), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(n) * 0.02 + 0.001)

    def forward(self, x):
        return x @ (self.qweight.float() * self.scales[:, None]).t()


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return [64, 48]
