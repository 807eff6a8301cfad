"""RMS norm and int8 codes in one pass: a row is read once and stays in registers for both reductions."""

import torch
import triton
import triton.language as tl

NUM_WARPS = 8  # tunable: NUM_WARPS = 4, 8, 16 [memory]


@triton.jit
def norm_quantise(x, weight, codes, scales, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = row.to(tl.int64) * width
    i = tl.arange(0, BLOCK)
    inside = i < width
    v = tl.load(x + base + i, mask=inside, other=0.0).to(tl.float32)
    v = v * tl.rsqrt(tl.sum(v * v, 0) / width + 1e-6)
    # The reference rounds to bf16 twice on the way: the same roundings, or codes differ at ties.
    w = tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    v = (v.to(tl.bfloat16).to(tl.float32) * w).to(tl.bfloat16).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(v), 0), 1e-5) / 127.0
    code = tl.div_rn(v, scale)  # rounded as PyTorch's division; a plain / may be off by one place
    code = (code + 12582912.0) - 12582912.0  # to the nearest whole number, halves to even, for less than 2^22
    tl.store(codes + base + i, code.to(tl.int8), mask=inside)
    tl.store(scales + row, scale)


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width, dtype=torch.bfloat16))

    def forward(self, x):
        width = x.shape[-1]
        if width > 16384:
            raise ValueError(f"this kernel is made for rows of up to 16384 values, and was given {width}")
        x = x.contiguous()
        codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
        scales = torch.empty(*x.shape[:-1], 1, dtype=torch.float32, device=x.device)
        grid = (x.numel() // width,)
        norm_quantise[grid](x, self.weight, codes, scales, width, triton.next_power_of_2(width), num_warps=NUM_WARPS)
        return codes, scales
