"""A mask, whether any is large, and a count."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return (x > y) & (x > 0), torch.any(x > 2.5), torch.count_nonzero(x > 0)


def get_inputs():
    return [torch.randn(40, 50), torch.randn(40, 50)]


def get_init_inputs():
    return []
