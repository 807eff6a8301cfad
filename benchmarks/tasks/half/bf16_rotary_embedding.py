"""Rotary position embedding of queries in bf16, the angles in fp32."""

import torch
from torch import nn

batch_size = 8
seq_len = 4096
heads = 16
head_dim = 128

SMALL = {"batch_size": 1, "seq_len": 24, "heads": 2, "head_dim": 32}


class Model(nn.Module):
    """Maps x [batch, seq, heads, head_dim] and positions [seq] to the rotated x."""

    def __init__(self, head_dim):
        super().__init__()
        self.register_buffer("frequency", 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim))

    def forward(self, x, positions):
        angle = positions[:, None].float() * self.frequency
        cosine, sine = angle.cos()[:, None], angle.sin()[:, None]
        first, second = x.float().chunk(2, dim=-1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(x.dtype)


def get_inputs():
    return [torch.randn(batch_size, seq_len, heads, head_dim, dtype=torch.bfloat16), torch.randint(0, 512, (seq_len,))]


def get_init_inputs():
    return [head_dim]
