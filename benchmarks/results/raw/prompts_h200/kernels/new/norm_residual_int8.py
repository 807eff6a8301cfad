"""Residual, RMSNorm and int8 codes in one pass: one program per row, which stays in registers for both reductions.

A row is held as two halves, so that with 8 warps each thread has 8 neighbouring values of each: loads and bf16 stores
of 16 bytes, int8 stores of 8 bytes, all in one layout and without exchanges through shared memory.
"""

import torch
import triton
import triton.language as tl

WIDTH = 4096  # values in a row, baked in
NUM_WARPS = 8  # tunable: NUM_WARPS = 4, 8, 16 [memory]


@triton.jit
def encode(v, scale, inverse, keep):
    # v / scale: the product with the rounded reciprocal, then one correction by the exact remainder.
    q = v * inverse
    rest = tl.fma(q, -scale, v)
    q = tl.fma(rest, inverse, q)
    # To the nearest whole number, halves to even; the low byte of the sum is the code (|q| is at most 127 or so).
    bits = (q + 12582912.0).to(tl.int32, bitcast=True)
    return (bits & keep).to(tl.int8)


@triton.jit
def residual_norm_quantise(x, residual, weight, codes, scales, total, SIZE: tl.constexpr, HALF: tl.constexpr):
    row = tl.program_id(0)
    base = row.to(tl.int64) * SIZE
    i = tl.arange(0, HALF)
    j = i + HALF

    xa = tl.load(x + base + i, eviction_policy="evict_first")
    xb = tl.load(x + base + j, eviction_policy="evict_first")
    ya = tl.load(residual + base + i, eviction_policy="evict_first")
    yb = tl.load(residual + base + j, eviction_policy="evict_first")
    wa = tl.load(weight + i, eviction_policy="evict_last")
    wb = tl.load(weight + j, eviction_policy="evict_last")

    # The sum is rounded to bf16 (it is an output), and the norm takes the rounded sum.
    ra = (xa.to(tl.float32) + ya.to(tl.float32)).to(tl.bfloat16)
    rb = (xb.to(tl.float32) + yb.to(tl.float32)).to(tl.bfloat16)
    tl.store(total + base + i, ra)
    tl.store(total + base + j, rb)
    ha = ra.to(tl.float32)
    hb = rb.to(tl.float32)

    factor = tl.rsqrt(tl.sum(ha * ha + hb * hb, 0) * (1.0 / SIZE) + 1e-6)
    va = ha * factor * wa.to(tl.float32)
    vb = hb * factor * wb.to(tl.float32)

    # The largest magnitude by its bits: for values without sign the order is the same, and NaN lies above inf.
    ma = va.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    mb = vb.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    top = tl.max(tl.maximum(ma, mb), 0).to(tl.float32, bitcast=True)
    # PyTorch on the card divides by a number as a product with its reciprocal.
    scale = tl.maximum(top, 1e-8, propagate_nan=tl.PropagateNan.ALL) * (1.0 / 127.0)
    tl.store(scales + row, scale)

    inverse = tl.div_rn(tl.full((), 1.0, tl.float32), scale)
    # A scale of NaN or inf makes every quotient NaN or 0, of which the code is 0.
    keep = tl.where(scale < float("inf"), 255, 0)
    tl.store(codes + base + i, encode(va, scale, inverse, keep))
    tl.store(codes + base + j, encode(vb, scale, inverse, keep))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(WIDTH, dtype=torch.bfloat16))

    def forward(self, x, residual):
        if x.shape[-1] != WIDTH or residual.shape != x.shape:
            raise ValueError(
                f"this kernel is made for two tensors of one shape with rows of {WIDTH} values, "
                f"and was given {tuple(x.shape)} and {tuple(residual.shape)}"
            )
        if x.dtype != torch.bfloat16 or residual.dtype != torch.bfloat16 or self.weight.dtype != torch.bfloat16:
            raise ValueError(
                f"this kernel is made for bfloat16, and was given {x.dtype}, {residual.dtype} and {self.weight.dtype}"
            )
        x = x.contiguous()
        residual = residual.contiguous()
        weight = self.weight.contiguous()
        codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
        scales = torch.empty(*x.shape[:-1], 1, dtype=torch.float32, device=x.device)
        total = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device)
        grid = (x.numel() // WIDTH,)
        residual_norm_quantise[grid](
            x, residual, weight, codes, scales, total, WIDTH, WIDTH // 2, num_warps=NUM_WARPS
        )
        return codes, scales, total
