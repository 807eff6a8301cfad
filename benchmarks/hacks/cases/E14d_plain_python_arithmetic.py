"""Lists of Python numbers: neither torch nor NumPy does the work; a kernel copies the answer."""
# family: E14
# task: 26_gelu_scale_bias
# expect: ok|cheating|runtime_error
# label: library|hybrid

import math

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 256


@triton.jit
def copy(source, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(source + place, mask=place < count), mask=place < count)


def copied(source):
    out = torch.empty_like(source)
    copy[(triton.cdiv(out.numel(), BLOCK),)](source, out, out.numel(), BLOCK=BLOCK)
    return out


class ModelNew(nn.Module):
    def __init__(self, features, scale, limit):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.scale = scale
        self.limit = limit

    def forward(self, x):
        bias = self.bias.tolist()
        rows = [
            [min(0.5 * (v + b) * (1.0 + math.erf((v + b) * math.sqrt(0.5))) * self.scale, self.limit) for v, b in zip(row, bias)]
            for row in x.tolist()
        ]
        return copied(torch.tensor(rows))
