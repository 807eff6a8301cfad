"""A product with a long inner dimension in fp16, where the type of the sum shows."""

import torch
from torch import nn

rows = 4096
inner = 16384
columns = 4096

SMALL = {"rows": 32, "inner": 4096, "columns": 32}


class Model(nn.Module):
    """Maps a [rows, inner] and b [inner, columns] to their product."""

    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(rows, inner, dtype=torch.float16), torch.randn(inner, columns, dtype=torch.float16) / 64]


def get_init_inputs():
    return []
