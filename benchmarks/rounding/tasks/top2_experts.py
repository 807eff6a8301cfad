"""A layer of eight experts in fp16: each token goes to the two that its router gives most."""

import torch
from torch import nn

TOKENS = 2048
WIDTH = 512
HIDDEN = 512
EXPERTS = 8
SMALL = {"TOKENS": 64, "WIDTH": 48, "HIDDEN": 32}


class Model(nn.Module):
    def __init__(self, width, hidden, experts):
        super().__init__()
        self.gate = nn.Parameter((torch.randn(experts, width) * width**-0.5).half())
        self.experts = nn.Parameter((torch.randn(experts, hidden, width) * width**-0.5).half())

    def forward(self, x):
        logits = x @ self.gate.t()
        shares, chosen = torch.topk(logits.float().softmax(-1), 2, dim=-1)
        shares = shares / shares.sum(-1, keepdim=True)
        every = torch.einsum("td,ehd->teh", x, self.experts)
        picked = torch.take_along_dim(every, chosen[..., None], 1)
        return (picked * shares[..., None].half()).sum(1), shares, chosen


def get_inputs():
    return [torch.randn(TOKENS, WIDTH).half()]


def get_init_inputs():
    return [WIDTH, HIDDEN, EXPERTS]
