"""The sum of absolute values, a scalar."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.abs().sum()


def get_inputs():
    return [torch.randn(3000)]


def get_init_inputs():
    return []
