"""A chain of pointwise operations on a matrix: shift by a row vector, GELU, scale, clamp."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 4096
features = 8192
scale = 0.75
limit = 3.0

SMALL = {"batch_size": 32, "features": 192}


class Model(nn.Module):
    """Maps x [batch, features] to min(scale * gelu(x + bias), limit) of the same shape."""

    def __init__(self, features, scale, limit):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))
        self.scale = scale
        self.limit = limit

    def forward(self, x):
        return torch.clamp(F.gelu(x + self.bias) * self.scale, max=self.limit)


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [features, scale, limit]
