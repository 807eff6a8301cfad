"""A matrix product without bias, then a bias of its own and ReLU."""

import torch
from torch import nn

batch_size = 1024
in_features = 4096
out_features = 4096

SMALL = {"batch_size": 32, "in_features": 96, "out_features": 80}


class Model(nn.Module):
    """Maps x [batch, in] to relu(x @ W.T + bias) [batch, out]."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        return torch.relu(self.linear(x) + self.bias)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
