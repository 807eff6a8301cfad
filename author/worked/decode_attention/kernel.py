"""Decode attention in bf16: keys are split over programs, the query heads of a group share a tile, keys beyond the length are not read."""

import torch
import triton
import triton.language as tl

SPLITS = 16  # programs that share a sequence; tunable: SPLITS = 8, 16, 32 [grid]
BLOCK_N = 64  # keys of a step; tunable: BLOCK_N = 32, 64, 128 [block]
NUM_WARPS = 4
NUM_STAGES = 3  # tunable: NUM_STAGES = 2, 3, 4 [memory]
ROWS = 16  # tl.dot takes 16 rows at least: a group of fewer heads is padded


@triton.jit
def attend_part(q, keys, values, lengths, parts, tops, totals, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, CAPACITY, D: tl.constexpr,
                SPLITS: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """Softmax and weighted sum over one part of the keys, unnormalised, with its maximum and its sum."""
    split, row = tl.program_id(0), tl.program_id(1)  # row: of batch x key_heads
    GROUP: tl.constexpr = HEADS // KEY_HEADS
    length = tl.load(lengths + row // KEY_HEADS).to(tl.int32)
    step = tl.cdiv(tl.cdiv(length, SPLITS), BN) * BN  # equal parts of what is filled, not of the capacity
    first = split * step
    last = tl.minimum(first + step, length)
    head, d, n = tl.arange(0, ROWS), tl.arange(0, D), tl.arange(0, BN)
    inside = head[:, None] < GROUP
    queries = tl.load(q + (row * GROUP + head[:, None]) * D + d[None, :], mask=inside, other=0.0)
    base = row.to(tl.int64) * CAPACITY * D
    top = tl.full((ROWS,), -1e30, tl.float32)  # finite: a part without keys stays free of inf - inf
    total = tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, D), tl.float32)
    for start in range(first, last, BN):
        filled = start + n < last
        k = tl.load(keys + base + (start + n[None, :]) * D + d[:, None], mask=filled[None, :], other=0.0)
        v = tl.load(values + base + (start + n[:, None]) * D + d[None, :], mask=filled[:, None], other=0.0)
        scores = tl.where(filled[None, :], tl.dot(queries, k) * (1.4426950408889634 / D**0.5), -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new_top[:, None])
        fade = tl.exp2(top - new_top)
        result = tl.dot(weights.to(v.dtype), v, result * fade[:, None])
        total = total * fade + tl.sum(weights, 1)
        top = new_top
    slot = (row * GROUP + head) * SPLITS + split
    tl.store(parts + slot[:, None] * D + d[None, :], result, mask=inside)
    tl.store(tops + slot, top, mask=head < GROUP)
    tl.store(totals + slot, total, mask=head < GROUP)


@triton.jit
def join_parts(parts, tops, totals, out, D: tl.constexpr, SPLITS: tl.constexpr):
    """The parts of one query head, each scaled to the common maximum."""
    row = tl.program_id(0)
    split, d = tl.arange(0, SPLITS), tl.arange(0, D)
    top = tl.load(tops + row * SPLITS + split)
    share = tl.exp2(top - tl.max(top, 0))
    total = tl.sum(tl.load(totals + row * SPLITS + split) * share, 0)
    part = tl.load(parts + (row * SPLITS + split[:, None]) * D + d[None, :])
    tl.store(out + row * D + d, (tl.sum(part * share[:, None], 0) / total).to(out.dtype.element_ty))


class ModelNew(torch.nn.Module):
    def forward(self, q, keys, values, lengths):
        batch, heads, _, D = q.shape
        key_heads, capacity = keys.shape[1], keys.shape[2]
        if heads % key_heads or heads // key_heads > ROWS or D & (D - 1):
            raise ValueError(f"this kernel is made for groups of up to {ROWS} heads, and was given {heads} for {key_heads}")
        q, keys, values = q.contiguous(), keys.contiguous(), values.contiguous()
        parts = torch.empty(batch * heads, SPLITS, D, dtype=torch.float32, device=q.device)
        tops, totals = torch.empty(2, batch * heads, SPLITS, dtype=torch.float32, device=q.device)
        out = torch.empty_like(q)
        attend_part[(SPLITS, batch * key_heads)](
            q, keys, values, lengths, parts, tops, totals, heads, key_heads, capacity, D, SPLITS, ROWS, BLOCK_N,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
        join_parts[(batch * heads,)](parts, tops, totals, out, D, SPLITS, num_warps=4)
        return out
