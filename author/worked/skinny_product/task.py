"""A product of few rows in bf16, with bias and SiLU: a layer of a model that decodes."""

import torch
from torch import nn
from torch.nn import functional as F

rows = 16
inner = 4096
columns = 12288

SMALL = {"rows": 5, "inner": 512, "columns": 72}


class Model(nn.Module):
    """Maps x [rows, inner] to silu(x @ W.T + b) [rows, columns]."""

    def __init__(self, inner, columns):
        super().__init__()
        self.fc = nn.Linear(inner, columns, dtype=torch.bfloat16)

    def forward(self, x):
        return F.silu(self.fc(x))


def get_inputs():
    return [torch.randn(rows, inner, dtype=torch.bfloat16)]


def get_init_inputs():
    return [inner, columns]
