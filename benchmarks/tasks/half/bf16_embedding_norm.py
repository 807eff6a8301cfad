"""Token embedding with a boolean mask, then layer norm, in bf16."""

import torch
from torch import nn

batch_size = 32
seq_len = 2048
words = 32000
features = 1024

SMALL = {"batch_size": 2, "seq_len": 24, "words": 50, "features": 96}


class Model(nn.Module):
    """Maps ids and the mask [batch, seq] to the norm of the words" vectors [batch, seq, features], zero where masked."""

    def __init__(self, words, features):
        super().__init__()
        self.table = nn.Embedding(words, features, dtype=torch.bfloat16)
        self.norm = nn.LayerNorm(features, dtype=torch.bfloat16)

    def forward(self, ids, keep):
        return self.norm(self.table(ids)).masked_fill(~keep[..., None], 0.0)


def get_inputs():
    return [torch.randint(0, words, (batch_size, seq_len)), torch.rand(batch_size, seq_len) > 0.2]


def get_init_inputs():
    return [words, features]
