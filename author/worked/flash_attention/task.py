"""Causal attention in bf16."""

import torch
from torch import nn
from torch.nn import functional as F

batch = 4
heads = 16
length = 4096
width = 128

SMALL = {"batch": 1, "heads": 2, "length": 200, "width": 32}


class Model(nn.Module):
    """Maps q, k and v [batch, heads, length, width] to the attention of the same shape."""

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(batch, heads, length, width, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return []
