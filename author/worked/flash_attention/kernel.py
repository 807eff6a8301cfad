"""Causal attention in bf16: an online softmax over blocks of keys; only blocks on the diagonal are masked."""

import torch
import triton
import triton.language as tl

BLOCK_M = 128  # queries of a program; tunable: BLOCK_M = 64, 128 [block]
BLOCK_N = 128  # keys of a step; tunable: BLOCK_N = 64, 128 [block]
NUM_WARPS = 8
NUM_STAGES = 2  # tunable: NUM_STAGES = 2, 3 [memory]


@triton.jit
def attend_block(q, k_at, v_at, m, n, S, top, total, result, MASKED: tl.constexpr, D: tl.constexpr):
    """One block of keys: the running maximum, sum and result with it."""
    if MASKED:
        keys = tl.load(k_at, mask=n[None, :] < S, other=0.0)
        scores = tl.where(n[None, :] <= m[:, None], tl.dot(q, keys), -float("inf"))
        values = tl.load(v_at, mask=n[:, None] < S, other=0.0)
    else:
        scores = tl.dot(q, tl.load(k_at))
        values = tl.load(v_at)
    scores *= 1.4426950408889634 / D**0.5  # on fp32 sums; q stays bf16
    new_top = tl.maximum(top, tl.max(scores, 1))
    weights = tl.exp2(scores - new_top[:, None])
    fade = tl.exp2(top - new_top)
    result = tl.dot(weights.to(values.dtype), values, result * fade[:, None])
    return new_top, total * fade + tl.sum(weights, 1), result


@triton.jit
def attend(q, k, v, out, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest rows first: the last wave is short
    base = tl.program_id(1).to(tl.int64) * S * D  # 64 bits once; offsets within a head have 32
    m, d, n = tile * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    queries = tl.load(q + base + m[:, None] * D + d[None, :], mask=m[:, None] < S, other=0.0)
    k_at = k + base + n[None, :] * D + d[:, None]
    v_at = v + base + n[:, None] * D + d[None, :]
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    result = tl.zeros((BM, D), tl.float32)
    for start in range(0, tile * BM, BN):  # whole blocks below the diagonal: BM is a multiple of BN
        at = start * D
        top, total, result = attend_block(queries, k_at + at, v_at + at, m, n, S, top, total, result, False, D)
    for start in range(tile * BM, tl.minimum((tile + 1) * BM, S), BN):
        at = start * D
        top, total, result = attend_block(queries, k_at + at, v_at + at, m, start + n, S, top, total, result, True, D)
    result = result / total[:, None]  # every row sees at least itself, so the sum is not 0
    tl.store(out + base + m[:, None] * D + d[None, :], result.to(out.dtype.element_ty), mask=m[:, None] < S)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        batch, heads, S, D = q.shape
        if k.shape != q.shape or v.shape != q.shape or D & (D - 1) or not 16 <= D <= 128:
            raise ValueError(f"this kernel is made for q, k and v of one shape and 16, 32, 64 or 128 wide, and was given {tuple(q.shape)}")
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        grid = (triton.cdiv(S, BLOCK_M), batch * heads)
        attend[grid](q, k, v, out, S, D, BLOCK_M, BLOCK_N, num_warps=NUM_WARPS, num_stages=NUM_STAGES)
        return out
