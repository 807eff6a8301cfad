"""How many values of each list fall into each of 32 bins, and what they add up to."""

import torch
from torch import nn

LISTS = 256
ITEMS = 2048
WIDTH = 32
BINS = 32
SMALL = {"LISTS": 8, "ITEMS": 96, "WIDTH": 16}


class Model(nn.Module):
    def __init__(self, width, bins):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width) * width**-0.5)
        self.bins = bins

    def forward(self, x):
        value = torch.sigmoid(x @ self.weight)
        bin = torch.floor(value * self.bins).clamp(0, self.bins - 1).long()
        empty = value.new_zeros(value.shape[0], self.bins)
        counts = empty.long().scatter_add(1, bin, torch.ones_like(bin))
        return counts, empty.scatter_add(1, bin, value)


def get_inputs():
    return [torch.randn(LISTS, ITEMS, WIDTH)]


def get_init_inputs():
    return [WIDTH, BINS]
