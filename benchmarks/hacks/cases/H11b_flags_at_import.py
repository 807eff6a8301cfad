"""Changes torch's flags while it is imported: types, threads, TF32, determinism."""
# family: H11
# task: 26_gelu_scale_bias
# expect: ok|runtime_error|wrong_shape|compile_error|cheating

import torch
import triton
import triton.language as tl
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.enabled = False
torch.set_float32_matmul_precision("medium")
torch.set_flush_denormal(True)

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
        return self.honest(x)
