"""The kernel's body calls a function that is Python in the interpreter and Triton for the compiler; NumPy computes in it."""
# family: E12
# task: 26_gelu_scale_bias
# expect: ok|cheating|runtime_error|compile_error|inaccurate
# label: library|hybrid

import math
import os
import numpy

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 256

if os.environ.get("TRITON_INTERPRET"):

    def activation(value, scale, limit):
        data = value.handle.data
        data = 0.5 * data * (1.0 + numpy.vectorize(math.erf)(data * math.sqrt(0.5))) * scale
        value.handle.data = numpy.minimum(data, limit).astype(numpy.float32)
        return value

else:

    @triton.jit
    def activation(value, scale, limit):
        return value


@triton.jit
def gelu_chain(x, bias, out, count, columns, scale, limit, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(x + place, mask=inside) + tl.load(bias + place % columns, mask=inside)
    tl.store(out + place, activation(value, scale, limit), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, scale, limit):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.scale = scale
        self.limit = limit

    def forward(self, x):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), BLOCK),)
        gelu_chain[grid](x, self.bias, out, x.numel(), x.shape[-1], float(self.scale), float(self.limit), BLOCK=BLOCK)
        return out
