"""Decode attention in bf16, one launch: 128 pairs of sequence and key head nearly fill 132 processors, so that each program
streams all keys and values of one pair through a deep pipeline, for all query heads of the group, and nothing is joined."""

import torch
import triton
import triton.language as tl

BLOCK_N = 64  # keys of a step; tunable: BLOCK_N = 32, 64, 128 [block]
NUM_WARPS = 8  # tunable: NUM_WARPS = 4, 8 [block]
NUM_STAGES = 6  # 5 steps of 32 KiB are on their way or in use; tunable: NUM_STAGES = 4, 5, 6 [memory]
ROWS = 16  # tl.dot takes 16 rows at least: a group of fewer heads is padded


@triton.jit
def attend(q, keys, values, out, GROUP: tl.constexpr, N: tl.constexpr, D: tl.constexpr, SCALE: tl.constexpr,
           ROWS: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """Softmax and weighted sum over all keys of one sequence and key head, for the query heads of its group."""
    row = tl.program_id(0).to(tl.int64)  # of batch x key_heads
    head = tl.arange(0, ROWS)
    d = tl.arange(0, D)
    n = tl.arange(0, BN)
    inside = head[:, None] < GROUP
    place = head[:, None] * D + d[None, :]
    queries = tl.load(q + row * (GROUP * D) + place, mask=inside, other=0.0)
    key_base = keys + row * (N * D)
    value_base = values + row * (N * D)

    top = tl.full((ROWS,), -3.0e38, tl.float32)  # of the unscaled scores; finite: no inf - inf
    total = tl.zeros((ROWS, BN), tl.float32)  # summed over the columns once, behind the loop
    result = tl.zeros((ROWS, D), tl.float32)
    for start in range(0, N, BN):
        at = start + n
        if N % BN != 0:  # decided at compile time: rows beyond the end wrap and are masked below
            at = at % N
        k = tl.load(key_base + (at[None, :] * D + d[:, None]))
        v = tl.load(value_base + (at[:, None] * D + d[None, :]))
        scores = tl.dot(queries, k)
        if N % BN != 0:
            scores = tl.where((start + n)[None, :] < N, scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2((scores - new_top[:, None]) * SCALE)
        fade = tl.exp2((top - new_top) * SCALE)
        total = total * fade[:, None] + weights
        result = tl.dot(weights.to(v.dtype), v, result * fade[:, None])
        top = new_top

    result = result / tl.sum(total, 1)[:, None]
    tl.store(out + row * (GROUP * D) + place, result.to(out.dtype.element_ty), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, q, k, v):
        batch, heads, length, D = q.shape
        key_heads, N = k.shape[1], k.shape[2]
        if (
            length != 1
            or heads % key_heads
            or heads // key_heads > ROWS
            or D & (D - 1)
            or D < 16
            or N < 1
            or tuple(k.shape) != (batch, key_heads, N, D)
            or tuple(v.shape) != tuple(k.shape)
            or k.dtype != q.dtype
            or v.dtype != q.dtype
        ):
            raise ValueError(
                f"this kernel is made for one query, groups of up to {ROWS} heads, a power of two as head size and one type, "
                f"and was given {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)} of {q.dtype}, {k.dtype}, {v.dtype}"
            )
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        attend[(batch * key_heads,)](
            q, k, v, out, heads // key_heads, N, D, 1.4426950408889634 / D**0.5, ROWS, BLOCK_N,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
        return out
