"""The product by the library, only the epilogue by a kernel."""
# family: E1
# task: 76_linear_bias_relu
# expect: ok
# label: hybrid|library

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bias_relu(x, bias, out, count, columns, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(x + place, mask=inside) + tl.load(bias + place % columns, mask=inside)
    tl.store(out + place, tl.maximum(value, 0.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, x):
        product = self.linear(x)
        out = torch.empty_like(product)
        bias_relu[(triton.cdiv(out.numel(), 256),)](product, self.bias, out, out.numel(), out.shape[1], BLOCK=256)
        return out
