"""A gated feed-forward block in bf16: silu(x gate) * (x up), then down."""

import torch
from torch import nn
from torch.nn import functional as F

tokens = 8192
features = 2048
hidden = 5632

SMALL = {"tokens": 32, "features": 64, "hidden": 96}


class Model(nn.Module):
    """Maps x [tokens, features] to a tensor of the same shape and type."""

    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(features, hidden, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(hidden, features, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [torch.randn(tokens, features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [features, hidden]
