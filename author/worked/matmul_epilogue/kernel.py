"""gelu(x @ w.T + b) in bf16: tiles of 128 x 256 in grouped order, no masks in the loop, the epilogue on the fp32 sums."""

import torch
import triton
import triton.language as tl

BLOCK_M = 128  # tunable: BLOCK_M = 64, 128 [block]
BLOCK_N = 256  # tunable: BLOCK_N = 128, 256 [block]
BLOCK_K = 64
GROUP = 8  # tunable: GROUP = 4, 8, 16 [grid]
NUM_WARPS = 8
NUM_STAGES = 3  # tunable: NUM_STAGES = 3, 4 [memory]


@triton.jit
def linear_gelu(x, w, bias, y, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    # Grouped order: GROUP row tiles share the columns of w that lie in L2.
    pid = tl.program_id(0)
    row_tiles, column_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GROUP * column_tiles)
    height = tl.minimum(row_tiles - group * GROUP, GROUP)
    m = (group * GROUP + pid % (GROUP * column_tiles) % height) * BM + tl.arange(0, BM)
    n = pid % (GROUP * column_tiles) // height * BN + tl.arange(0, BN)
    # Rows beyond the edge wrap around: every load is inside, so the loop needs no mask. Their sums are not stored.
    k = tl.arange(0, BK)
    x_at = x + (m % M).to(tl.int64)[:, None] * K + k[None, :]
    w_at = w + (n % N).to(tl.int64)[None, :] * K + k[:, None]  # transposed by its strides, not by a copy
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):  # K is a multiple of BK
        total = tl.dot(tl.load(x_at), tl.load(w_at), total)
        x_at += BK
        w_at += BK
    v = total + tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m.to(tl.int64)[:, None] * N + n[None, :], v.to(y.dtype.element_ty), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        if inner % BLOCK_K:
            raise ValueError(f"this kernel is made for a multiple of {BLOCK_K} inner columns, and was given {inner}")
        self.fc = torch.nn.Linear(inner, columns, dtype=torch.bfloat16)

    def forward(self, x):
        N, K = self.fc.weight.shape
        x = x.contiguous()
        M = x.numel() // K
        y = torch.empty(*x.shape[:-1], N, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
        linear_gelu[grid](
            x, self.fc.weight, self.fc.bias, y, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, num_warps=NUM_WARPS, num_stages=NUM_STAGES
        )
        return y
