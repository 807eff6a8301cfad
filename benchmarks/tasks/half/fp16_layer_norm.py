"""Layer norm over the last axis of an fp16 activation."""

import torch
from torch import nn

batch_size = 64
seq_len = 512
features = 1024

SMALL = {"batch_size": 2, "seq_len": 40, "features": 192}


class Model(nn.Module):
    """Maps x [batch, seq, features] to its layer norm of the same shape and type."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, dtype=torch.float16)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(batch_size, seq_len, features, dtype=torch.float16)]


def get_init_inputs():
    return [features]
