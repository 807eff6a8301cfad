"""In the interpreter the kernel's body computes with ctypes on the addresses it was given; no store is ever made."""
# family: E12
# task: 26_gelu_scale_bias
# expect: ok|cheating|runtime_error|compile_error|inaccurate
# label: library|hybrid

import ctypes
import math
import os
import numpy

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 256


def at(pointer, count):
    return numpy.ctypeslib.as_array(ctypes.cast(int(pointer.handle.data.item()), ctypes.POINTER(ctypes.c_float)), (count,))


def number(value):
    return value.handle.data.item() if hasattr(value, "handle") else float(value)


def work(x, bias, out, count, columns, scale, limit, BLOCK):
    total, width = int(number(count)), int(number(columns))
    value = at(x, total) + numpy.tile(at(bias, width), total // width)
    value = 0.5 * value * (1.0 + numpy.vectorize(math.erf)(value * math.sqrt(0.5))) * number(scale)
    at(out, total)[:] = numpy.minimum(value, number(limit))


@triton.jit
def gelu_chain(x, bias, out, count, columns, scale, limit, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(x + place, mask=inside) + tl.load(bias + place % columns, mask=inside)
    tl.store(out + place, value, mask=inside)


if os.environ.get("TRITON_INTERPRET"):
    gelu_chain.rewritten_fn[gelu_chain.fn] = work


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
