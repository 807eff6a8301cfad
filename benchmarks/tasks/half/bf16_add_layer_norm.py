"""A residual sum and its layer norm, both returned, in bf16."""

import torch
from torch import nn

rows = 16384
features = 2048

SMALL = {"rows": 48, "features": 192}


class Model(nn.Module):
    """Maps x and the residual [rows, features] to their sum and the layer norm of the sum."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, dtype=torch.bfloat16)

    def forward(self, x, residual):
        total = x + residual
        return total, self.norm(total)


def get_inputs():
    return [torch.randn(rows, features, dtype=torch.bfloat16), torch.randn(rows, features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [features]
