"""The eight largest of each row, and each row in order."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.topk(x, 8, dim=-1).values, torch.sort(x, dim=-1).values


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []
