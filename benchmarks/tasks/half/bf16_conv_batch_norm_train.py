"""Convolution, batch norm by the batch"s statistics, and ReLU in bf16, in training mode."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 64
channels = 64
filters = 128
side = 56

SMALL = {"batch_size": 2, "channels": 8, "filters": 16, "side": 10}
MODE = "train"


class Model(nn.Module):
    """Maps x [batch, channels, side, side] to relu(norm(conv(x))); the norm"s running statistics are updated."""

    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1, bias=False, dtype=torch.bfloat16)
        self.norm = nn.BatchNorm2d(filters, dtype=torch.bfloat16)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(batch_size, channels, side, side, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, filters]
