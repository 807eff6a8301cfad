"""Counts that compiling alone gives of a launch: bytes, trips of loops, products and waits, read from the kernel's own text."""

import pickle
from collections.abc import Iterator

import pytest

from tritonsmith.evaluator.caller.compiling.client import COMPILER, Compilation
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.records.work import KernelWork
from tritonsmith.evaluator.sandbox.oneself import guard_self
from tritonsmith.evaluator.sandbox.policy import use_policy
from tritonsmith.evaluator.sandbox.self_test import establish
from tritonsmith.evaluator.sandbox.warm_start import begin_warm_start, end_warm_start, finish_warm_start

MODULE = """
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, out, columns, BLOCK: tl.constexpr, PASSES: tl.constexpr):
    begin = tl.program_id(0) * columns
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x + begin + start + lanes)
    mean = tl.sum(total) / columns
    if PASSES == 2:
        for start in range(0, columns, BLOCK):
            tl.store(out + begin + start + lanes, tl.load(x + begin + start + lanes) - mean)
    else:
        tl.store(out + tl.program_id(0), mean)


@triton.jit
def product(a, out, inner, SIDE: tl.constexpr):
    i, total = tl.arange(0, SIDE), tl.zeros([SIDE, SIDE], tl.float32)
    for start in range(0, inner, SIDE):
        tile = tl.load(a + (tl.program_id(0) * SIDE + i)[:, None] * inner + (start + i)[None, :]).to(tl.float16)
        total = tl.dot(tile, tile, total)
    tl.store(out + (tl.program_id(0) * SIDE + i)[:, None] * SIDE + i[None, :], total)


@triton.jit
def meet(out, bar, PROGRAMS: tl.constexpr):
    for step in range(0, 10):
        tl.debug_barrier()
        tl.atomic_add(bar, 1, sem="release")
        while tl.atomic_add(bar, 0, sem="acquire") < PROGRAMS * (step + 1):
            pass
    tl.store(out + tl.program_id(0), 1.0)


@triton.jit
def data_decides(x, out):
    count, total = tl.load(x).to(tl.int32), 0.0
    for step in range(0, count):
        total += tl.load(x + step)
    tl.store(out, total)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        bar = torch.zeros(1, dtype=torch.int32, device=x.device)
        rows[(256,)](x, out, 1024, BLOCK=256, PASSES=1)
        rows[(256,)](x, out, 1024, BLOCK=256, PASSES=2)
        product[(8,)](x, out, 1024, SIDE=32)
        meet[(16,)](out, bar, PROGRAMS=16)
        data_decides[(1,)](x, out)
        return out
"""


@pytest.fixture(scope="module")
def counted() -> Iterator[list[KernelWork]]:
    """The work of each launch of the module, on 256 x 1024 values of fp32."""
    guard_self()
    establish("auto", cuda=False)
    begin_warm_start(COMPILER)
    finish_warm_start()
    request = pickle.dumps({"init": [], "inputs": [((256, 1024), "float32")], "overrides": {}})
    with Compilation() as compilation:
        compilation.begin(KernelText.of(MODULE), request, "h200")
        report = compilation.report(60)
    yield [KernelWork.model_validate(kernel["work"]) for kernel in report["kernels"]]
    end_warm_start()
    use_policy(None, {"mode": "off", "layers": {}, "actions": {}})


def test_a_kernel_that_reads_its_input_twice_has_more_bytes(counted: list[KernelWork]) -> None:
    once, twice = counted[:2]
    whole = 256 * 1024 * 4
    assert (once.bytes_loaded, once.repeated_bytes, once.unique_bytes, once.load_rounds) == (whole, 0, whole + 256 * 4, 4)
    assert (twice.bytes_loaded, twice.repeated_bytes, twice.unique_bytes, twice.load_rounds) == (2 * whole, whole, 2 * whole, 8)


def test_products_waits_and_what_only_a_run_knows_are_told(counted: list[KernelWork]) -> None:
    product, meet, decided = counted[2:]
    assert (product.product_flops, product.product, product.load_rounds) == (8 * 32 * 2 * 32**3, "fp16", 32)
    assert meet.waits == 10
    assert "only a run knows" in decided.unknown
