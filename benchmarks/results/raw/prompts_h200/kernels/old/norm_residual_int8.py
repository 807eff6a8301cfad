"""Residual, RMSNorm and int8 by row in one kernel: each row is read once, kept in registers, and written once."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

FEATURES = 4096
VECTOR = 8  # neighbours per thread: 16 bytes of bf16, 8 bytes of int8, so that all loads and stores share one layout
WARPS = 8  # tunable: WARPS = 4, 8, 16 [block]
MADE_FOR = "x and residual bfloat16[a, 4096] of one shape, weight bfloat16[4096], on a CUDA device"


@triton.jit
def residual_rms_norm_int8(x_ptr, residual_ptr, weight_ptr, q_ptr, scale_ptr, r_ptr,
                           COLUMNS: tl.constexpr, SPAN: tl.constexpr):
    """One row of COLUMNS (a power of two), as a tile of COLUMNS // SPAN by SPAN."""
    row = tl.program_id(0).to(tl.int64)
    base = row * COLUMNS
    k = tl.arange(0, COLUMNS // SPAN)[:, None] * SPAN + tl.arange(0, SPAN)[None, :]

    x = tl.load(x_ptr + base + k, eviction_policy="evict_first")
    residual = tl.load(residual_ptr + base + k, eviction_policy="evict_first")
    weight = tl.load(weight_ptr + k, eviction_policy="evict_last").to(tl.float32)

    rounded = (x.to(tl.float32) + residual.to(tl.float32)).to(tl.bfloat16)
    tl.store(r_ptr + base + k, rounded)
    r = rounded.to(tl.float32)

    # Both reductions depend on r alone: max |r * rs * w| = rs * max |r * w|, and r * w of two bf16 is exact in fp32.
    squares = tl.sum(tl.sum(r * r, axis=1), axis=0)
    weighted = r * weight
    # Without the sign, floats are ordered as their bits are, and NaN lies above infinity: the maximum keeps NaN.
    magnitude = weighted.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    top = tl.max(tl.max(magnitude, axis=1), axis=0).to(tl.float32, bitcast=True)

    spread = tl.rsqrt(squares / COLUMNS + 1e-6)
    most = tl.maximum(top * spread, 1e-8, propagate_nan=tl.PropagateNan.ALL)
    scale = most / 127.0
    tl.store(scale_ptr + row, scale)

    # |weighted * factor| is at most 127 and a rounding error, so no clamp is needed. Adding 1.5 * 2**23 rounds half
    # to even and leaves the whole number in the low byte. Where the scale is no finite number, every quotient is 0
    # or NaN, and both become 0.
    factor = spread / scale
    shifted = weighted * factor + 12582912.0
    finite = (scale < float("inf")).to(tl.int32)
    keep = 0 - finite
    q = shifted.to(tl.int32, bitcast=True) & keep
    tl.store(q_ptr + base + k, q.to(tl.int8))


COMPILED = isinstance(residual_rms_norm_int8, triton.JITFunction)  # Triton's interpreter takes tensors of any device


def describe(**tensors):
    """What forward was given, in words."""
    return ", ".join(f"{name} {str(v.dtype).removeprefix('torch.')}{list(v.shape)} on {v.device}" for name, v in tensors.items())


class ModelNew(nn.Module):
    """The reference's forward in 1 kernel. Parameters carry the reference's names."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones((FEATURES,), dtype=torch.bfloat16))

    def forward(self, x, residual):
        weight = self.weight
        if (
            x.dim() != 2
            or x.shape[1] != FEATURES
            or x.shape != residual.shape
            or weight.shape != (FEATURES,)
            or (x.dtype, residual.dtype, weight.dtype) != (torch.bfloat16, torch.bfloat16, torch.bfloat16)
            or COMPILED and not (x.is_cuda and residual.is_cuda and weight.is_cuda)
        ):
            given = describe(x=x, residual=residual, weight=weight)
            raise ValueError(f"this kernel is made for {MADE_FOR}, and was given {given}")
        rows = x.shape[0]
        x = x.contiguous()
        residual = residual.contiguous()
        weight = weight.contiguous()
        q = torch.empty((rows, FEATURES), dtype=torch.int8, device=x.device)
        scale = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
        r = torch.empty((rows, FEATURES), dtype=torch.bfloat16, device=x.device)
        residual_rms_norm_int8[(rows,)](x, residual, weight, q, scale, r, COLUMNS=FEATURES, SPAN=VECTOR, num_warps=WARPS)
        return q, scale, r
