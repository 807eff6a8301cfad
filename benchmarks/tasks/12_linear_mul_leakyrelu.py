"""A linear layer, a constant factor and a leaky ReLU."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 1024
in_features = 4096
out_features = 4096
factor = 2.0
slope = 0.1

SMALL = {"batch_size": 32, "in_features": 96, "out_features": 80}


class Model(nn.Module):
    """Maps x [batch, in] to leaky_relu(factor * linear(x)) [batch, out]."""

    def __init__(self, in_features, out_features, factor, slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.factor = factor
        self.slope = slope

    def forward(self, x):
        return F.leaky_relu(self.linear(x) * self.factor, negative_slope=self.slope)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, factor, slope]
