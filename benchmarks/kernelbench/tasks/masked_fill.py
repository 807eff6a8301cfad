"""A matrix with more than 2^31 elements (8.6 GB), filled where a mask of bool says so."""

import torch
from torch import nn

rows = 65_536
columns = 32_800
fill = -7.5

SMALL = {"rows": 24, "columns": 100}


class Model(nn.Module):
    def __init__(self, fill):
        super().__init__()
        self.fill = fill

    def forward(self, x, mask):
        return x.masked_fill(mask, self.fill)


def get_inputs():
    return [torch.randn(rows, columns), torch.randint(2, (rows, columns), dtype=torch.bool)]


def get_init_inputs():
    return [fill]
