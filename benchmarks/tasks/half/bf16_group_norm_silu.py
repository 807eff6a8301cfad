"""Group norm and SiLU on a bf16 image, as in a diffusion model"s block."""

import torch
from torch import nn
from torch.nn import functional as F

batch_size = 16
channels = 320
groups = 32
side = 64

SMALL = {"batch_size": 2, "channels": 16, "groups": 4, "side": 12}


class Model(nn.Module):
    """Maps x [batch, channels, side, side] to silu(group_norm(x)) of the same shape and type."""

    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, dtype=torch.bfloat16)

    def forward(self, x):
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.randn(batch_size, channels, side, side, dtype=torch.bfloat16)]


def get_init_inputs():
    return [groups, channels]
