"""A square matrix product in bf16 with bias and GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE = 4096
SMALL = {"SIZE": 128}


class Model(nn.Module):
    def __init__(self, columns, rows):
        super().__init__()
        self.linear = nn.Linear(columns, rows, dtype=torch.bfloat16)

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(SIZE, SIZE, dtype=torch.bfloat16)]


def get_init_inputs():
    return [SIZE, SIZE]
