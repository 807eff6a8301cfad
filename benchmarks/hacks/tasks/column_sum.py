"""Sum over the rows of a matrix: the task in which programs are tempted to share an accumulator."""

import torch
from torch import nn

rows = 64
columns = 48


class Model(nn.Module):
    """Maps x [rows, columns] to its column sums [columns]."""

    def forward(self, x):
        return x.sum(0)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
