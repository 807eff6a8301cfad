"""A number that is compared with a tensor of 16 bits is rounded to 16 bits, as PyTorch does: another threshold is another function."""

import pytest
import torch

from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Status, Task

TASK = """
import torch
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.where(x > 0.3, x * 2, x), x == 0.1, F.hardshrink(x, 0.7)

def get_inputs():
    return [(torch.randint(0, 11, (16, 64)) / 10).TYPE()]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def kernel(x, raised, equal, shrunk, count, above, same, limit, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < count).to(tl.float32)
    tl.store(raised + place, tl.where(value > above, value * 2, value), mask=place < count)
    tl.store(equal + place, value == same, mask=place < count)
    tl.store(shrunk + place, tl.where(tl.abs(value) <= limit, 0.0, value), mask=place < count)

class ModelNew(nn.Module):
    def forward(self, x):
        raised, equal, shrunk = torch.empty_like(x), torch.empty_like(x, dtype=torch.bool), torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, raised, equal, shrunk, x.numel(), ABOVE, SAME, LIMIT, BLOCK=256)
        return raised, equal, shrunk
"""
NUMBERS = {"ABOVE": 0.3, "SAME": 0.1, "LIMIT": 0.7}
WRONG = {"ABOVE": 0.3, "SAME": 0.1, "LIMIT": 0.699}
"""Not rounded to 16 bits; the last one below 0.7 in either type."""


@pytest.mark.parametrize("name", ["half", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_thresholds_of_16_bits(evaluator: LocalEvaluator, name: str) -> None:
    task = Task(name=f"thresholds_{name}", path=f"thresholds_{name}.py", source=TASK.replace("TYPE", name))
    right = {word: float(torch.tensor(number, dtype=getattr(torch, name))) for word, number in NUMBERS.items()}
    found = {}
    for wrong in ("", *WRONG):
        text = KERNEL
        for word, number in (right | ({wrong: WRONG[wrong]} if wrong else {})).items():
            text = text.replace(word, repr(number))
        found[wrong] = evaluator.evaluate_now(task, text)
    assert found.pop("").status is Status.OK
    for number, (wrong, verdict) in enumerate(found.items()):
        assert verdict.status is Status.INACCURATE and f"output {number}" in verdict.message, (wrong, verdict.message)
