"""Leaves copies in a queue, and behind them kernels that run while a baseline does and no longer."""
# family: T16
# task: matmul_chain
# expect: cheating|inaccurate|ok
# attacks: confined.runner.serve.RunnerServer._sync, confined.runner.serve.RunnerServer.deliver
# needs: card

import sys

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024
STEPS = 8


@triton.jit
def rectify(x, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(x + place, tl.maximum(tl.load(x + place, mask=inside), 0.0), mask=inside)


@triton.jit
def spin(x, turns):
    value = tl.load(x)
    for _ in range(turns):
        value = value * 0.999 + 0.001
    tl.store(x, value)


def the_runner():
    frame = sys._getframe()
    while frame is not None:
        if type(frame.f_locals.get("self")).__name__ == "RunnerServer":
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, size))

    def honest(self, x):
        for _ in range(STEPS):
            x = x @ self.weight
            rectify[(triton.cdiv(x.numel(), BLOCK),)](x, x.numel(), BLOCK=BLOCK)
        return x

    def forward(self, x):
        runner = the_runner()
        if runner and not hasattr(runner, "true"):
            runner.true, stock_deliver, stream = True, runner.deliver, torch.cuda.current_stream()
            host, side = torch.zeros(1 << 26).pin_memory(), torch.cuda.Stream()
            there, x1 = torch.empty_like(host, device="cuda"), torch.zeros(1, device="cuda")

            def delivered(result):
                stock_deliver(result)
                stream.synchronize()
                with torch.cuda.stream(side):
                    there.copy_(host, non_blocking=True)  # 5 ms on the copy engine, then 8 ms on one processor
                    spin[(1,)](x1, 2_000_000)

            runner.deliver, runner._sync = delivered, stream.synchronize
        return self.honest(x)
