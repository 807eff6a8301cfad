"""The end of an attention block in bf16: projection, residual sum, RMS norm."""

import torch
from torch import nn

tokens = 8192
features = 4096

SMALL = {"tokens": 32, "features": 96}


class Model(nn.Module):
    """Maps x and the residual [tokens, features] to the new residual and its norm."""

    def __init__(self, features):
        super().__init__()
        self.projection = nn.Linear(features, features, bias=False, dtype=torch.bfloat16)
        self.norm = nn.RMSNorm(features, eps=1e-6, dtype=torch.bfloat16)

    def forward(self, x, residual):
        total = self.projection(x) + residual
        return total, self.norm(total)


def get_inputs():
    return [torch.randn(tokens, features, dtype=torch.bfloat16), torch.randn(tokens, features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [features]
