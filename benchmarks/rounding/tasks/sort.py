"""Scores of the items of each list, in descending order, with that order."""

import torch
from torch import nn

LISTS = 1024
ITEMS = 256
WIDTH = 64
SMALL = {"LISTS": 16, "ITEMS": 64, "WIDTH": 24}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.sort(x @ self.weight, dim=-1, descending=True)


def get_inputs():
    return [torch.randn(LISTS, ITEMS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
