"""Convolution, batch norm by its running statistics, and ReLU in fp16."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 64
channels = 128
filters = 128
side = 56

SMALL = {"batch_size": 2, "channels": 8, "filters": 16, "side": 10}


class Model(nn.Module):
    """Maps x [batch, channels, side, side] to relu(norm(conv(x))) [batch, filters, side, side]."""

    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1, bias=False, dtype=torch.float16)
        self.norm = nn.BatchNorm2d(filters, dtype=torch.float16)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(batch_size, channels, side, side, dtype=torch.float16)]


def get_init_inputs():
    return [channels, filters]
