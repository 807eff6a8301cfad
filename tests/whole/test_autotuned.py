"""Without a card, an autotuner runs every configuration on the same buffers, and each configuration must be right by itself."""

import pytest

from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Status, Task

TASK = Task(
    name="rows",
    path="rows.py",
    source="""
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0

def get_inputs():
    return [torch.randn(12, 128)]

def get_init_inputs():
    return []
""",
)
TOP = """
import torch
import triton
import triton.language as tl
from torch import nn

def make(*sizes, **options):
    return [triton.Config({"BLOCK": size}, **options) for size in sizes]

class ModelNew(nn.Module):
    def forward(self, x):
        out = self.begin(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["STEP"] or meta["BLOCK"]),)](x, out, x.numel())
        return out

    def begin(self, x):
        return torch.BEGIN(x)
"""
KERNEL = """
@triton.autotune(configs=CONFIGS, key=["count"], WORDS)
@triton.jit
def kernel(x, out, count, BLOCK: tl.constexpr, STEP: tl.constexpr = 0):
    place = tl.program_id(0) * (STEP or BLOCK) + tl.arange(0, BLOCK)
    inside = place < count
    BODY
"""
COPY = "tl.store(out + place, tl.load(x + place, mask=inside) * 2.0 + 1.0, mask=inside)"
IN_PLACE = "tl.store(out + place, tl.load(out + place, mask=inside) * 2.0 + 1.0, mask=inside)"
ADDED = "tl.atomic_add(out + place, tl.load(x + place, mask=inside) * 2.0 + 1.0, mask=inside)"
HALF = "[triton.Config({'BLOCK': 128, 'STEP': 128}, num_warps=w) for w in (1, 2, 8)] + [triton.Config({'BLOCK': 64, 'STEP': 128})]"
TOO_LARGE = "tl.static_assert(BLOCK < 256, 'too large')\n    "
MANY = "[triton.Config({'BLOCK': size}, num_warps=warps) for size in (32, 64, 128) for warps in (1, 2, 4, 8)]"


def write(body: str, configs: str = "make(64, 128, 256)", words: str = "", begin: str = "empty_like") -> str:
    kernel = KERNEL.replace("BODY", body).replace("CONFIGS", configs).replace("WORDS", words)
    return TOP.replace("BEGIN", begin) + kernel


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(write(ADDED, begin="zeros_like"), id="sums without reset_to_zero"),
        pytest.param(write(IN_PLACE, begin="clone"), id="in place without restore_value", marks=pytest.mark.slow),
        pytest.param(write(COPY, "make(64, 128) + make(2048)").replace("mask=inside)", "mask=inside | (BLOCK > 128))"), id="past the end"),
    ],
)
def test_what_a_benchmark_of_configurations_leaves_behind(evaluator: LocalEvaluator, text: str) -> None:
    """Every configuration runs, and what it does counts: sums, values in place, accesses outside the tensors."""
    verdict = evaluator.evaluate_now(TASK, text)
    assert verdict.status in (Status.INACCURATE, Status.RUNTIME_ERROR), verdict.message
    assert "restore_value" in verdict.message or "out-of-bounds" in verdict.message


def test_a_configuration_that_covers_half_of_each_row(evaluator: LocalEvaluator) -> None:
    """The last of four; in strict each of them is the one that is kept."""
    verdict = evaluator.evaluate_now(TASK, write(COPY, HALF), "strict")
    assert verdict.status is Status.INACCURATE and "each configuration must be right by itself" in verdict.message, verdict.message


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(write(ADDED, words='reset_to_zero=["out"]', begin="zeros_like"), id="sums"),
        pytest.param(write(IN_PLACE, words='restore_value=["out"]', begin="clone"), id="in place", marks=pytest.mark.slow),
        pytest.param(write(TOO_LARGE + COPY), id="one that does not compile", marks=pytest.mark.slow),
        pytest.param(write(COPY, MANY), id="twelve", marks=pytest.mark.slow),
        pytest.param(write(ADDED, "make(64, 128, pre_hook=lambda given: given['out'].zero_())"), id="hooks of configurations"),
    ],
)
def test_honest_configurations(evaluator: LocalEvaluator, text: str) -> None:
    verdict = evaluator.evaluate_now(TASK, text)
    assert verdict.status is Status.OK, verdict.message
    assert verdict.facts.triton_launches == 1, "a benchmark's launches are no part of a forward"
