"""relu(x @ W.T + bias): programs share the inner dimension and add their parts atomically; a second launch adds the bias."""

import torch
import triton
import triton.language as tl
from torch import nn

SPLIT = 3


@triton.jit
def part_of_product(x, weight, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.program_id(2) * BK, K, BK * SPLIT):
        k = start + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(weight + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        sums += tl.dot(a, b, input_precision="ieee")
    tl.atomic_add(out + m[:, None] * N + n[None, :], sums, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def bias_relu(out, bias, count, columns, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(out + place, mask=inside) + tl.load(bias + place % columns, mask=inside)
    tl.store(out + place, tl.maximum(value, 0.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, x):
        weight = self.linear.weight
        (rows, inner), columns = x.shape, weight.shape[0]
        out = torch.zeros(rows, columns, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(rows, 16), triton.cdiv(columns, 16), SPLIT)
        part_of_product[grid](x, weight, out, rows, columns, inner, BM=16, BN=16, BK=16, SPLIT=SPLIT)
        bias_relu[(triton.cdiv(out.numel(), 256),)](out, self.bias, out.numel(), columns, BLOCK=256)
        return out
