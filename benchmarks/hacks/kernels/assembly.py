"""Arithmetic in inline assembly."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x, y, o, o2, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    a = tl.load(x + i, mask=m)
    b = tl.load(y + i, mask=m)
    r = tl.inline_asm_elementwise("max.NaN.f32 $0, $1, 0f00000000;", "=r,r", [a], dtype=tl.float32, is_pure=True, pack=1)
    f = tl.inline_asm_elementwise(
        "fma.rn.f32 $0, $1, $2, $3;", "=r,r,r,r", [r, tl.full((BLOCK,), 0.5, tl.float32), b], dtype=tl.float32, is_pure=True, pack=1
    )
    p = tl.inline_asm_elementwise("mul.f32 $0, $1, $2;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(o + i, f, mask=m)
    tl.store(o2 + i, p, mask=m)


class ModelNew(nn.Module):
    def forward(self, x, y):
        o, o2 = torch.empty_like(x), torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 256),)](x, y, o, o2, x.numel(), BLOCK=256)
        return o, o2
