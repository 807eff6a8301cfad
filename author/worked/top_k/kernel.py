"""Product, softmax and top-k in one kernel: a tile holds all experts of its tokens, and the maximum is taken once for each place."""

import torch
import triton
import triton.language as tl

BLOCK_M = 64  # tunable: BLOCK_M = 32, 64, 128 [block]
BLOCK_K = 128  # tunable: BLOCK_K = 64, 128 [block]
NUM_WARPS = 4  # tunable: NUM_WARPS = 4, 8 [memory]
NUM_STAGES = 3


@triton.jit
def choose_experts(x, gate, shares, places, M, E, K: tl.constexpr, CHOSEN: tl.constexpr, CP: tl.constexpr, EP: tl.constexpr,
                   BM: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    e, k = tl.arange(0, EP), tl.arange(0, BK)
    x_at = x + (m % M).to(tl.int64)[:, None] * K + k[None, :]
    g_at = gate + (e % E)[None, :] * K + k[:, None]
    logits = tl.zeros((BM, EP), tl.float32)
    for _ in range(0, K, BK):  # K is a multiple of BK
        logits = tl.dot(tl.load(x_at), tl.load(g_at), logits)
        x_at += BK
        g_at += BK
    logits = logits.to(tl.bfloat16).to(tl.float32)  # the reference rounds here, so ties are its ties
    logits = tl.where(e[None, :] < E, logits, -float("inf"))
    left = tl.exp(logits - tl.max(logits, 1)[:, None])  # not divided by its sum: that cancels against the sum of the best
    column = tl.arange(0, CP)
    best, place = tl.zeros((BM, CP), tl.float32), tl.zeros((BM, CP), tl.int32)
    for c in tl.static_range(CHOSEN):
        value = tl.max(left, 1)
        at = tl.min(tl.where(left == value[:, None], e[None, :], EP), 1)  # the first of equal ones
        best = tl.where(column[None, :] == c, value[:, None], best)
        place = tl.where(column[None, :] == c, at[:, None], place)
        left = tl.where(e[None, :] == at[:, None], -1.0, left)  # below every share that is left
    best = best / tl.sum(best, 1)[:, None]
    inside = (m[:, None] < M) & (column[None, :] < CHOSEN)
    to = m.to(tl.int64)[:, None] * CHOSEN + column[None, :]
    tl.store(shares + to, best, mask=inside)
    tl.store(places + to, place.to(tl.int64), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, features, experts, chosen):
        super().__init__()
        if features % BLOCK_K or experts > 256 or not 1 <= chosen <= 16:
            raise ValueError(f"this kernel is made for features in steps of {BLOCK_K} and up to 256 experts, and was given {features}, {experts}")
        self.gate = torch.nn.Linear(features, experts, bias=False, dtype=torch.bfloat16)
        self.chosen = chosen

    def forward(self, x):
        E, K = self.gate.weight.shape
        M = x.shape[0]
        x = x.contiguous()
        shares = torch.empty(M, self.chosen, dtype=torch.float32, device=x.device)
        places = torch.empty(M, self.chosen, dtype=torch.int64, device=x.device)
        up = triton.next_power_of_2
        choose_experts[(triton.cdiv(M, BLOCK_M),)](
            x, self.gate.weight, shares, places, M, E, K, self.chosen, up(self.chosen), max(16, up(E)), BLOCK_M, BLOCK_K,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
        return shares, places
