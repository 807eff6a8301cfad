"""The gated feed-forward block with fp32 weights and inputs under bf16 autocast."""

import torch
from torch import nn
from torch.nn import functional as F

tokens = 8192
features = 2048
hidden = 4096

SMALL = {"tokens": 32, "features": 64, "hidden": 96}


class Model(nn.Module):
    """Maps fp32 x [tokens, features] to a bf16 tensor of the same shape."""

    def __init__(self, features, hidden):
        super().__init__()
        self.gate = nn.Linear(features, hidden)
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return self.down(F.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [torch.randn(tokens, features)]


def get_init_inputs():
    return [features, hidden]
