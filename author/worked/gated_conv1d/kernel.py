"""A gated 1-d convolution in bf16 as one product: time is the tile's long side, so channels-first needs no copy; the gate is the epilogue."""

import torch
import triton
import triton.language as tl

BLOCK_C = 64  # output channels, of the filter and of the gate; tunable: BLOCK_C = 64, 128 [block]
BLOCK_T = 128  # steps; tunable: BLOCK_T = 64, 128, 256 [block]
BLOCK_K = 64  # input channels of a step
TAPS = 3
NUM_WARPS = 8
NUM_STAGES = 3  # tunable: NUM_STAGES = 2, 3, 4 [memory]


@triton.jit
def gated_conv(x, w, bias, y, T, C: tl.constexpr, DILATION: tl.constexpr, TAPS: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr,
               BK: tl.constexpr):  # fmt: skip
    base = tl.program_id(2).to(tl.int64) * C * T
    c = tl.program_id(0) * BC + tl.arange(0, BC)  # neighbours share the steps of x in L2
    t = tl.program_id(1) * BT + tl.arange(0, BT)
    k = tl.arange(0, BK)
    filtered, gate = tl.zeros((BC, BT), tl.float32), tl.zeros((BC, BT), tl.float32)
    for step in range(TAPS * (C // BK)):  # one loop over taps and channels: it is pipelined as a whole
        tap, first = step // (C // BK), step % (C // BK) * BK
        at = t - (TAPS - 1 - tap) * DILATION
        values = tl.load(x + base + (first + k[:, None]) * T + at[None, :], mask=(at[None, :] >= 0) & (at[None, :] < T), other=0.0)
        w_at = w + (tap * 2 * C + c[:, None]) * C + first + k[None, :]
        filtered = tl.dot(tl.load(w_at), values, filtered)
        gate = tl.dot(tl.load(w_at + C * C), values, gate)
    # The reference rounds the convolution, tanh and sigmoid to bf16; one rounding at the store is closer to the exact result.
    filtered += tl.load(bias + c).to(tl.float32)[:, None]
    gate += tl.load(bias + C + c).to(tl.float32)[:, None]
    result = (2.0 * tl.sigmoid(2.0 * filtered) - 1.0) * tl.sigmoid(gate)
    tl.store(y + base + c[:, None] * T + t[None, :], result.to(y.dtype.element_ty), mask=t[None, :] < T)


class ModelNew(torch.nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        if channels % max(BLOCK_C, BLOCK_K):
            raise ValueError(f"this kernel is made for a multiple of {max(BLOCK_C, BLOCK_K)} channels, and was given {channels}")
        self.conv = torch.nn.Conv1d(channels, 2 * channels, TAPS, dilation=dilation, dtype=torch.bfloat16)
        self.dilation = dilation
        self._key, self._packed = None, None

    def _pack(self):
        """The weights as [taps, output, input], so that tiles are contiguous; kept until they are written again."""
        weight = self.conv.weight
        key = (weight.data_ptr(), weight._version, weight.device)  # of every tensor that is packed, and of no other
        if key != self._key:
            self._key, self._packed = key, weight.detach().permute(2, 0, 1).contiguous()
        return self._packed

    def forward(self, x):
        batch, C, T = x.shape
        x = x.contiguous()
        y = torch.empty_like(x)
        gated_conv[(C // BLOCK_C, triton.cdiv(T, BLOCK_T), batch)](
            x, self._pack(), self.conv.bias, y, T, C, self.dilation, TAPS, BLOCK_C, BLOCK_T, BLOCK_K,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
        return y
