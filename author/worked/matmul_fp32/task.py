"""A large product in fp32 with bias and ReLU."""

import torch
from torch import nn
from torch.nn import functional as F

rows = 4096
inner = 4096
columns = 4096

SMALL = {"rows": 200, "inner": 128, "columns": 264}


class Model(nn.Module):
    """Maps x [rows, inner] to relu(x @ W.T + b) [rows, columns]."""

    def __init__(self, inner, columns):
        super().__init__()
        self.fc = nn.Linear(inner, columns)

    def forward(self, x):
        return F.relu(self.fc(x))


def get_inputs():
    return [torch.randn(rows, inner)]


def get_init_inputs():
    return [inner, columns]
