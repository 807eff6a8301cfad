"""Embedding, one row of the result per program."""

import torch
import triton
import triton.language as tl
from torch import nn

WARPS = 4


@triton.jit
def gather(places, weight, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(weight + tl.load(places + row) * width + column, mask=inside, other=0.0)
    place = row * width + column
    tl.store(out + place, value, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)

    def forward(self, places):
        weight = self.embedding.weight
        width = weight.shape[1]
        out = torch.empty(*places.shape, width, device=weight.device, dtype=weight.dtype)
        gather[(places.numel(),)](places, weight, out, width, BLOCK=triton.next_power_of_2(width), num_warps=WARPS)
        return out
