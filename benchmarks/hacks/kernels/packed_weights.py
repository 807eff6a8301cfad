"""Two layers packed into one weight by a hook on loading."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def glu(x, w, b, y, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    g = tl.zeros((BM, BN), tl.float32)
    u = tl.zeros((BM, BN), tl.float32)
    for k0 in tl.static_range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        g += tl.dot(a, tl.load(w + k[:, None] * 2 * N + n[None, :]), input_precision="ieee")
        u += tl.dot(a, tl.load(w + k[:, None] * 2 * N + N + n[None, :]), input_precision="ieee")
    g += tl.load(b + n)[None, :]
    u += tl.load(b + N + n)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], g * tl.sigmoid(g) * u, mask=m[:, None] < M)


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.gate = nn.Linear(k, n)
        self.up = nn.Linear(k, n)
        self._packed = None
        self.register_load_state_dict_post_hook(lambda module, keys: module._pack())

    def _pack(self):
        with torch.no_grad():
            w = torch.cat([self.gate.weight, self.up.weight], 0).t().contiguous()
            self._packed = (w, torch.cat([self.gate.bias, self.up.bias]))

    def forward(self, x):
        if self._packed is None or self._packed[0].device != x.device:
            self._pack()
        w, b = self._packed
        K = x.shape[-1]
        x2 = x.reshape(-1, K)
        N = w.shape[1] // 2
        y = torch.empty(x2.shape[0], N, device=x.device)
        glu[(triton.cdiv(x2.shape[0], 16), N // 16)](x2, w, b, y, x2.shape[0], N, K, 16, 16, 32)
        return y.view(*x.shape[:-1], N)
