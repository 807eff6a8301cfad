"""A gated, dilated, causal convolution over time in bf16, as in WaveNet."""

import torch
from torch import nn
from torch.nn import functional as F

batch = 16
channels = 256
steps = 8192
dilation = 4

SMALL = {"batch": 2, "channels": 64, "steps": 90}


class Model(nn.Module):
    """Maps x [batch, channels, steps] to tanh(filter(x)) * sigmoid(gate(x)) of the same shape."""

    def __init__(self, channels, dilation):
        super().__init__()
        self.conv = nn.Conv1d(channels, 2 * channels, 3, dilation=dilation, dtype=torch.bfloat16)
        self.pad = 2 * dilation

    def forward(self, x):
        filtered, gate = self.conv(F.pad(x, (self.pad, 0))).chunk(2, dim=1)
        return torch.tanh(filtered) * torch.sigmoid(gate)


def get_inputs():
    return [torch.randn(batch, channels, steps, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, dilation]
