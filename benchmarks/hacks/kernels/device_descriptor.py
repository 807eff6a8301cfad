"""Tensor descriptors made in the kernel, with an allocator for their memory."""

import torch
import triton
import triton.language as tl
from torch import nn


def alloc_fn(size: int, alignment: int, stream: int | None):
    return torch.empty(size, device="cuda", dtype=torch.int8)


@triton.jit
def k(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    y = tl.make_tensor_descriptor(y_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    off_m = tl.program_id(0) * BM
    off_n = tl.program_id(1) * BN
    v = x.load([off_m, off_n])
    y.store([off_m, off_n], tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL) * 2.0 + 1.0)


class ModelNew(nn.Module):
    def forward(self, x):
        triton.set_allocator(alloc_fn)
        y = torch.empty_like(x)
        M, N = x.shape
        k[(triton.cdiv(M, 16), triton.cdiv(N, 32))](x, y, M, N, BM=16, BN=32)
        return y
