"""A depthwise convolution along the sequence, its bias and SiLU in fp16."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 16
channels = 2048
seq_len = 2048

SMALL = {"batch_size": 2, "channels": 16, "seq_len": 48}


class Model(nn.Module):
    """Maps x [batch, channels, seq] to silu of a causal convolution with four taps, of the same shape."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 4, groups=channels, padding=3, dtype=torch.float16)

    def forward(self, x):
        return F.silu(self.conv(x)[..., : x.shape[-1]])


def get_inputs():
    return [torch.randn(batch_size, channels, seq_len, dtype=torch.float16)]


def get_init_inputs():
    return [channels]
