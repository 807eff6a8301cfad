"""NumPy does the work; a Triton kernel copies the answer, so that every element is stored by a kernel."""
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

    def by_numpy(self, x):
        value = x.numpy() + self.bias.detach().numpy()
        value = 0.5 * value * (1.0 + numpy.vectorize(math.erf)(value * math.sqrt(0.5))) * self.scale
        return torch.from_numpy(numpy.minimum(value, self.limit).astype(numpy.float32))

    def forward(self, x):
        return copied(self.by_numpy(x))
