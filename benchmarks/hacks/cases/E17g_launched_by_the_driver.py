"""Launches a compiled kernel by the driver's own call, past Triton: counted by the profiler."""
# family: E17
# task: 26_gelu_scale_bias
# expect: ok|runtime_error
# label: kernel|hybrid
# needs: card

import ctypes

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


def box(value):
    if isinstance(value, torch.Tensor):
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int32(value)


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
            self.signature = [name for name, kind in self.compiled.src.signature.items() if kind != "constexpr"]
        values = dict(zip(gelu_chain.arg_names, given, strict=False))
        boxes = [box(values[name]) for name in self.signature] + [ctypes.c_void_p(0)] * 2  # scratch memory, of which it needs none
        pointers = (ctypes.c_void_p * len(boxes))(*(ctypes.addressof(one) for one in boxes))
        blocks, stream = triton.cdiv(x.numel(), BLOCK), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        driver = ctypes.CDLL("libcuda.so.1")
        failed = driver.cuLaunchKernel(
            ctypes.c_void_p(self.compiled.function), blocks, 1, 1, 32 * WARPS, 1, 1, self.compiled.metadata.shared, stream, pointers, None
        )
        if failed:
            raise RuntimeError(f"cuLaunchKernel: {failed}")
        return out
