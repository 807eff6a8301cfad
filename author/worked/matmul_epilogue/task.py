"""A large product in bf16 with bias and GELU."""

import torch
from torch import nn
from torch.nn import functional as F

rows = 8192
inner = 1024
columns = 8192

SMALL = {"rows": 200, "inner": 128, "columns": 264}


class Model(nn.Module):
    """Maps x [rows, inner] to gelu(x @ W.T + b) [rows, columns]."""

    def __init__(self, inner, columns):
        super().__init__()
        self.fc = nn.Linear(inner, columns, dtype=torch.bfloat16)

    def forward(self, x):
        return F.gelu(self.fc(x))


def get_inputs():
    return [torch.randn(rows, inner, dtype=torch.bfloat16)]


def get_init_inputs():
    return [inner, columns]
