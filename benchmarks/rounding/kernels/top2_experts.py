"""The router's product in fp32 or fp16, the two largest, and every expert's product, weighted."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK_M, BLOCK_N, BLOCK_K = 32, 32, 32
REVERSED = False
SPLIT = False
BLOCK = 16
IN_HALF = False


@triton.jit
def multiply(x, w, y, M, N, K, REVERSED: tl.constexpr, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = x [M, K] @ w [N, K]^T."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    low = tl.zeros((BM, BN), tl.float32)
    high = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = (tl.cdiv(K, BK) - 1 - step if REVERSED else step) * BK + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        if SPLIT:
            odd = step % 2
            part = tl.dot(a, b, input_precision="ieee")
            low += part * (1 - odd)
            high += part * odd
        else:
            low = tl.dot(a, b, low, input_precision="ieee")
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None].to(tl.int64) * N + n[None, :], low + high, mask=inside)


def product(x, w, rows, columns, inner):
    """x [rows, inner] @ w [columns, inner]^T in fp32."""
    y = torch.empty((rows, columns), dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(rows, BLOCK_M), triton.cdiv(columns, BLOCK_N))
    multiply[grid](x, w, y, rows, columns, inner, REVERSED, SPLIT, BLOCK_M, BLOCK_N, BLOCK_K)
    return y


@triton.jit
def choose(logits, shares, chosen, tokens, EXPERTS: tl.constexpr, IN_HALF: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.arange(0, EXPERTS)[None, :]
    inside = row < tokens
    logit = tl.load(logits + row[:, None] * EXPERTS + expert, mask=inside[:, None], other=0.0)
    if IN_HALF:
        logit = logit.to(tl.float16).to(tl.float32)
    first = tl.argmax(logit, 1)
    rest = tl.where(expert == first[:, None], float("-inf"), logit)
    second = tl.argmax(rest, 1)
    ratio = tl.exp(tl.max(rest, 1) - tl.max(logit, 1))
    tl.store(shares + row * 2, 1.0 / (1.0 + ratio), mask=inside)
    tl.store(shares + row * 2 + 1, ratio / (1.0 + ratio), mask=inside)
    tl.store(chosen + row * 2, first.to(tl.int64), mask=inside)
    tl.store(chosen + row * 2 + 1, second.to(tl.int64), mask=inside)


@triton.jit
def mix(
    x, experts, shares, chosen, out, tokens, width, hidden, EXPERTS: tl.constexpr, REVERSED: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inside = row < tokens
    first, second = tl.load(chosen + row * 2, mask=inside, other=0), tl.load(chosen + row * 2 + 1, mask=inside, other=0)
    of_first, of_second = tl.load(shares + row * 2, mask=inside, other=0.0), tl.load(shares + row * 2 + 1, mask=inside, other=0.0)
    total = tl.zeros((BM, BN), tl.float32)
    for expert in range(EXPERTS):
        share = tl.where(first == expert, of_first, 0.0) + tl.where(second == expert, of_second, 0.0)
        own = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(width, BK)):
            k = (tl.cdiv(width, BK) - 1 - step if REVERSED else step) * BK + tl.arange(0, BK)
            a = tl.load(x + row[:, None] * width + k[None, :], mask=inside[:, None] & (k[None, :] < width), other=0.0)
            at = (expert * hidden + column[None, :]) * width + k[:, None]
            b = tl.load(experts + at, mask=(column[None, :] < hidden) & (k[:, None] < width), other=0.0)
            own = tl.dot(a, b, own)
        total += own * share[:, None]
    at = row[:, None] * hidden + column[None, :]
    tl.store(out + at, total.to(tl.float16), mask=inside[:, None] & (column[None, :] < hidden))


class ModelNew(nn.Module):
    def __init__(self, width, hidden, experts):
        super().__init__()
        self.gate = nn.Parameter(torch.empty((experts, width), dtype=torch.float16))
        self.experts = nn.Parameter(torch.empty((experts, hidden, width), dtype=torch.float16))

    def forward(self, x):
        tokens, width = x.shape
        count, hidden, _ = self.experts.shape
        logits = product(x, self.gate, tokens, count, width)
        shares = torch.empty((tokens, 2), dtype=torch.float32, device=x.device)
        chosen = torch.empty((tokens, 2), dtype=torch.int64, device=x.device)
        out = torch.empty((tokens, hidden), dtype=torch.float16, device=x.device)
        choose[(triton.cdiv(tokens, BLOCK),)](logits, shares, chosen, tokens, count, IN_HALF, BLOCK)
        grid = (triton.cdiv(tokens, BLOCK_M), triton.cdiv(hidden, BLOCK_N))
        mix[grid](x, self.experts, shares, chosen, out, tokens, width, hidden, count, REVERSED, BLOCK_M, BLOCK_N, BLOCK_K)
        return out, shares, chosen
