"""RMS norm of bf16 rows, as language models have it: the mean square in fp32, the result back in bf16."""

import torch
from torch import nn

rows = 16384
features = 4096

SMALL = {"rows": 48, "features": 192}


class Model(nn.Module):
    """Maps x [rows, features] to x / rms(x) * weight of the same shape and type."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter((1.0 + 0.1 * torch.randn(features)).to(torch.bfloat16))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


def get_inputs():
    return [torch.randn(rows, features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [features]
