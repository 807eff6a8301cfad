"""Max pooling with the places of the largest."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 3, 2, 1, return_indices=True)


def get_inputs():
    return [torch.randn(2, 3, 11, 13)]


def get_init_inputs():
    return []
