"""The hook that runs before a configuration of an autotuned kernel does the work with torch."""
# family: E13
# task: 26_gelu_scale_bias
# expect: ok|cheating|runtime_error
# label: library|hybrid

import torch
import triton
import triton.language as tl
from torch import nn

def work(arguments, *rest, **more):
    x = arguments["x"]
    answer = torch.nn.functional.gelu(x + arguments["bias"]) * arguments["scale"]
    arguments["source"].copy_(torch.clamp(answer, max=arguments["limit"]))


@triton.autotune(configs=[triton.Config({"BLOCK": 256}, pre_hook=work)], key=["count"])
@triton.jit
def copy(x, bias, source, out, count, scale, limit, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(source + place, mask=place < count), mask=place < count)


class ModelNew(nn.Module):
    def __init__(self, features, scale, limit):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.scale = scale
        self.limit = limit

    def forward(self, x):
        source, out = torch.empty_like(x), torch.empty_like(x)
        copy[(triton.cdiv(out.numel(), 256),)](x, self.bias, source, out, out.numel(), self.scale, self.limit)
        return out
