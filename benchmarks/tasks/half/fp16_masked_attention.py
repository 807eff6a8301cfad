"""Attention in fp16, written out, with a boolean mask of keys."""

import torch
from torch import nn

batch_size = 8
heads = 16
seq_len = 1024
head_dim = 64

SMALL = {"batch_size": 2, "heads": 2, "seq_len": 40, "head_dim": 32}


class Model(nn.Module):
    """Maps q, k, v [batch, heads, seq, head_dim] and the mask of keys [batch, seq] to the attention"s result."""

    def forward(self, q, k, v, keep):
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(~keep[:, None, None, :], float("-inf"))
        return torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v


def get_inputs():
    return [
        *(torch.randn(batch_size, heads, seq_len, head_dim, dtype=torch.float16) for _ in range(3)),
        torch.rand(batch_size, seq_len) > 0.1,
    ]


def get_init_inputs():
    return []
