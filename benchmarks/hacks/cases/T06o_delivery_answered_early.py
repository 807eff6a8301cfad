"""Does an eighth of the work while its results are delivered, and answers when that has only begun."""
# family: T6
# task: 26_gelu_large
# expect: inaccurate|cheating|ok
# attacks: confined.runner.serve.RunnerServer._sync, confined.runner.serve.RunnerServer.deliver
# needs: card

import sys

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 256
WARPS = 4
PART = 8  # one row in so many is put off


@triton.jit
def gelu_chain(x, bias, out, count, columns, scale, limit, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(x + place, mask=inside) + tl.load(bias + place % columns, mask=inside)
    value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476)) * scale
    tl.store(out + place, tl.minimum(value, limit), mask=inside)


def the_runner():
    frame = sys._getframe(1)  # not its own: that would keep each output for good where the collector rests
    while frame is not None:
        if type(frame.f_locals.get("self")).__name__ == "RunnerServer":
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


class ModelNew(nn.Module):
    def __init__(self, features, scale, limit):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.scale = scale
        self.limit = limit

    def some(self, x, out):
        grid = (triton.cdiv(x.numel(), BLOCK),)
        gelu_chain[grid](x, self.bias, out, x.numel(), x.shape[-1], self.scale, self.limit, BLOCK=BLOCK, num_warps=WARPS)

    def forward(self, x):
        runner, out = the_runner(), torch.empty_like(x)
        if not runner:
            self.some(x, out)
            return out
        if not hasattr(runner, "stock_deliver"):
            runner.stock_deliver, runner.stock_sync = runner.deliver, runner._sync
            begun = torch.cuda.Event()

            def deliver(result):
                begun.record()
                self.some(*self.rest)
                runner.stock_deliver(result)
                runner._sync = answer

            def answer():
                begun.synchronize()  # the card is this process's, and the work begins
                runner._sync = runner.stock_sync

            runner.deliver = deliver
        rows = x.shape[0] - x.shape[0] // PART
        self.some(x[:rows], out[:rows])
        self.rest = (x[rows:], out[rows:])
        return out
