"""Kernel files for the tests of detection, from a kernel and the body of forward."""

from tritonsmith.evaluator.texts.detect.detection import Detection, Trait, TraitHit

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
"""
MODEL = """
class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, n))
        self.lstm = nn.LSTM(n, n)
        self.fc = nn.Linear(n, n)
        self.n = n

    def forward(self, x):
        out = torch.empty_like(x)
"""


def make_module(kernel: str, forward: str) -> str:
    """A kernel file from a kernel and the body of forward."""
    body = "\n".join("        " + line for line in forward.strip().splitlines())
    return f"{HEAD}\n{kernel}\n{MODEL}{body}\n        return out\n"


def find_hit(detection: Detection, name: Trait) -> TraitHit:
    """The one label of that name."""
    (found,) = [label for label in detection.labels if label.name is name]
    return found


def line_of(source: str, text: str) -> int:
    """Line of the first place where the text stands."""
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


STEP = """
@triton.jit
def step(x, h, w, out, B, H: tl.constexpr, BH: tl.constexpr):
    cols = tl.program_id(0) * BH + tl.arange(0, BH)
    rows = tl.arange(0, 16)
    k = tl.arange(0, H)
    state = tl.load(h + rows[:, None] * H + k[None, :])
    total = tl.dot(state, tl.load(w + k[:, None] * H + cols[None, :]))
    tl.store(out + rows[:, None] * H + cols[None, :], total)
"""
