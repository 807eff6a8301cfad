"""Leaves a kernel on the card between its calls, which takes time slices from the baselines."""
# family: T16
# task: matmul_chain
# expect: cheating|inaccurate|ok
# attacks: confined.runner.serve.RunnerServer._sync, confined.runner.serve.RunnerServer.deliver, confined.runner.serve.RunnerServer.doorbell
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
def spin(flag, most):
    count = 0
    while (tl.load(flag, volatile=True) == 0) & (count < most):
        count += 1


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
            runner.true, bell = True, runner.doorbell
            stock_next, stock_deliver, stream = bell.next, runner.deliver, torch.cuda.current_stream()
            flag, side = torch.zeros(1, dtype=torch.int32).pin_memory(), torch.cuda.Stream()

            def waiting(last):
                found = stock_next(last)
                flag[0] = 1  # the kernel ends before the candidate's own call
                return found

            def delivered(result):
                stock_deliver(result)
                stream.synchronize()
                flag[0] = 0
                with torch.cuda.stream(side):
                    spin[(1,)](flag, 200_000_000)

            bell.next, runner.deliver, runner._sync = waiting, delivered, stream.synchronize
        return self.honest(x)
