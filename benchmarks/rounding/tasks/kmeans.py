"""A step of k-means: each point's nearest centre and its distance, and the means of the points of each centre."""

import torch
from torch import nn

POINTS = 32768
CENTRES = 256
WIDTH = 64
SMALL = {"POINTS": 256, "CENTRES": 32, "WIDTH": 16}


class Model(nn.Module):
    def __init__(self, centres, width):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(centres, width))

    def forward(self, x):
        distance, nearest = torch.cdist(x, self.centres).min(1)
        sums = torch.zeros_like(self.centres).index_add(0, nearest, x)
        counts = torch.zeros_like(self.centres[:, 0]).index_add(0, nearest, torch.ones_like(x[:, 0]))
        return distance, nearest, sums / counts.clamp(min=1.0)[:, None]


def get_inputs():
    return [torch.randn(POINTS, WIDTH)]


def get_init_inputs():
    return [CENTRES, WIDTH]
