"""A linear layer and GELU in fp16."""

import torch
from torch import nn
from torch.nn import functional as F

tokens = 8192
features = 4096
hidden = 4096

SMALL = {"tokens": 32, "features": 96, "hidden": 64}


class Model(nn.Module):
    """Maps x [tokens, features] to gelu(linear(x)) [tokens, hidden]."""

    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden, dtype=torch.float16)

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(tokens, features, dtype=torch.float16)]


def get_init_inputs():
    return [features, hidden]
