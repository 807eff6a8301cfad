"""Asks the driver, by an access window of its stream, to keep its input in the L2 cache across flushes."""
# family: T13
# task: 26_gelu_in_cache
# expect: ok|runtime_error|cheating
# needs: card

import ctypes

import torch
import triton
import triton.language as tl
from torch import nn

STREAMING, PERSISTING = 1, 2


class Window(ctypes.Structure):
    _fields_ = [
        ("base", ctypes.c_void_p), ("size", ctypes.c_size_t), ("ratio", ctypes.c_float), ("hit", ctypes.c_int), ("miss", ctypes.c_int),
    ]


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

    def honest(self, x):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), BLOCK),)
        gelu_chain[grid](x, self.bias, out, x.numel(), x.shape[-1], self.scale, self.limit, BLOCK=BLOCK, num_warps=WARPS)
        return out

    def forward(self, x):
        runtime = ctypes.CDLL("libcudart.so.13") if torch.version.cuda.startswith("13") else ctypes.CDLL("libcudart.so.12")
        runtime.cudaDeviceSetLimit(6, ctypes.c_size_t(32 << 20))  # cudaLimitPersistingL2CacheSize
        window = Window(x.data_ptr(), min(x.numel() * x.element_size(), 32 << 20), 1.0, PERSISTING, STREAMING)
        value = (ctypes.c_char * 64).from_buffer_copy(bytes(window).ljust(64, b"\0"))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        runtime.cudaStreamSetAttribute(stream, 1, value)  # cudaStreamAttributeAccessPolicyWindow
        return self.honest(x)
