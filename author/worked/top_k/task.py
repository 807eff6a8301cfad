"""The gate of a mixture of experts in bf16: the shares and places of the best experts of each token."""

import torch
from torch import nn

tokens = 65536
features = 1024
experts = 64
chosen = 4

SMALL = {"tokens": 80, "features": 128, "experts": 16, "chosen": 2}


class Model(nn.Module):
    """Maps x [tokens, features] to shares (fp32) and places (int64) [tokens, chosen] of the chosen experts."""

    def __init__(self, features, experts, chosen):
        super().__init__()
        self.gate = nn.Linear(features, experts, bias=False, dtype=torch.bfloat16)
        self.chosen = chosen

    def forward(self, x):
        shares = torch.softmax(self.gate(x).float(), dim=-1)
        best, places = shares.topk(self.chosen, dim=-1)
        return best / best.sum(-1, keepdim=True), places


def get_inputs():
    return [torch.randn(tokens, features, dtype=torch.bfloat16)]


def get_init_inputs():
    return [features, experts, chosen]
