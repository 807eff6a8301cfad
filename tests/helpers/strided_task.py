"""A task whose inputs are views with strides and offsets, and a candidate that reads them as they are."""

LAID_OUT = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, turned, cut, spread, late):
        return turned * 2.0 + cut + spread + late


def get_inputs():
    return [torch.rand(6, 5).t(), torch.rand(7, 14)[1:6, 1:13:2], torch.rand(5, 1).expand(5, 6), torch.rand(33)[3:].view(5, 6)]


def get_init_inputs():
    return []
"""
BY_STRIDES = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add(turned, cut, spread, late, out, a, b, c, d, e, f, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(turned + row * a + column * b, mask=inside) * 2.0 + tl.load(cut + row * c + column * d, mask=inside)
    value += tl.load(spread + row * e + column * f, mask=inside) + tl.load(late + row * columns + column, mask=inside)
    tl.store(out + row * columns + column, value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, turned, cut, spread, late):
        strides = [*turned.stride(), *cut.stride(), *spread.stride()]
        assert strides == [1, 5, 14, 2, 1, 0], strides
        assert late.is_contiguous() and late.data_ptr() % 16 == 12 and cut.data_ptr() % 16 == 60 % 16
        out = torch.empty(turned.shape, device=turned.device)
        add[(5,)](turned, cut, spread, late, out, *strides, 5, 6, BLOCK=8)
        return out
"""
