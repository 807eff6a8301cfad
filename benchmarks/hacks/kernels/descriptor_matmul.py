"""Matrix product through tensor descriptors that the host makes."""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def matmul_desc(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, tl.cdiv(K, BK), num_stages=3):
        a = a_desc.load([pm * BM, k * BK])
        b = b_desc.load([k * BK, pn * BN])
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c_desc.store([pm * BM, pn * BN], acc)


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        BM, BN, BK = 32, 16, 32
        da = TensorDescriptor.from_tensor(a, [BM, BK])
        db = TensorDescriptor.from_tensor(b, [BK, BN])
        dc = TensorDescriptor.from_tensor(c, [BM, BN])
        matmul_desc[(triton.cdiv(M, BM), triton.cdiv(N, BN))](da, db, dc, K, BM, BN, BK)
        return c
