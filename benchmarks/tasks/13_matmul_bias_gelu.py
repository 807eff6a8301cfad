"""A square matrix product with bias and exact GELU."""

import torch
from torch import nn

batch_size = 4096
in_features = 4096
out_features = 4096

SMALL = {"batch_size": 48, "in_features": 96, "out_features": 80}


class Model(nn.Module):
    """Maps x [batch, in] to gelu(x @ W.T + bias) [batch, out]."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
