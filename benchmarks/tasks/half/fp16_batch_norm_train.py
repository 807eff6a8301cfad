"""Batch norm of fp16 rows with fp32 statistics, in training mode."""

import torch
from torch import nn

rows = 32768
features = 1024

SMALL = {"rows": 64, "features": 96}
MODE = "train"


class Model(nn.Module):
    """Maps fp16 x [rows, features] to its batch norm; weights and running statistics are fp32."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        return self.norm(x.float()).to(x.dtype)


def get_inputs():
    return [torch.randn(rows, features, dtype=torch.float16)]


def get_init_inputs():
    return [features]
