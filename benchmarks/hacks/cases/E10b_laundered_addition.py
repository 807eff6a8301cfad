"""NumPy does the work and takes the input off again; the kernel adds it, so that it reads the input and stores the answer."""
# family: E10
# task: 26_gelu_scale_bias
# expect: ok|cheating|runtime_error
# label: library|hybrid

import math
import numpy

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 256


@triton.jit
def add(x, rest, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(out + place, tl.load(x + place, mask=inside) + tl.load(rest + place, mask=inside), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, scale, limit):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.scale = scale
        self.limit = limit

    def by_numpy(self, x):
        value = x.numpy() + self.bias.detach().numpy()
        value = 0.5 * value * (1.0 + numpy.vectorize(math.erf)(value * math.sqrt(0.5))) * self.scale
        return torch.from_numpy(numpy.minimum(value, self.limit).astype(numpy.float32))

    def forward(self, x):
        rest = torch.from_numpy(self.by_numpy(x).numpy() - x.numpy())
        out = torch.empty_like(x)
        add[(triton.cdiv(x.numel(), BLOCK),)](x, rest, out, x.numel(), BLOCK=BLOCK)
        return out
