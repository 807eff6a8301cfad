"""Launches a compiled kernel by its handle, as Triton's JIT does: allowed, and counted."""
# family: E17
# task: 26_gelu_scale_bias
# expect: ok

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 256
WARPS = 4


@triton.jit
def gelu_chain(x, bias, out, count, columns, scale, limit, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(x + place, mask=inside) + tl.load(bias + place % columns, mask=inside)
    value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476)) * scale
    tl.store(out + place, tl.minimum(value, limit), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, scale, limit):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.scale = scale
        self.limit = limit
        self.compiled = None

    def honest(self, x):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), BLOCK),)
        gelu_chain[grid](x, self.bias, out, x.numel(), x.shape[-1], self.scale, self.limit, BLOCK=BLOCK, num_warps=WARPS)
        return out

    def forward(self, x):
        out = torch.empty_like(x)
        given = (x, self.bias, out, x.numel(), x.shape[-1], self.scale, self.limit)
        if self.compiled is None:
            self.compiled = gelu_chain.warmup(*given, BLOCK=BLOCK, num_warps=WARPS, grid=(1,))
            self.compiled._init_handles()
        stream = torch.cuda.current_stream().cuda_stream
        self.compiled.run(
            triton.cdiv(x.numel(), BLOCK), 1, 1, stream, self.compiled.function, self.compiled.packed_metadata, None, None, None, *given,
            BLOCK,
        )
        return out
