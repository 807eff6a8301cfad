"""What a runner does on a card before its candidate is known: slow steps that are the same for all candidates.

A process's first kernel costs seconds that have nothing to do with that kernel: context, compilers, launchers, and, where launches are to
be profiled, 3 to 5 s for the start of CUPTI (H200, torch 2.11, 2026-11-21). Imports torch and triton; needs a card.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch.profiler import ProfilerActivity, profile


@triton.jit
def touch(out):  # type: ignore[no-untyped-def]
    """Any kernel would do."""
    tl.store(out, 1)


def warm_up(words: Sequence[str]) -> None:
    """Do what the words name: `card`, and `compile` or `profiler` after it."""
    if "card" in words:
        touch_card()
    if "compile" in words and not select.select([sys.stdin], [], [], 0)[0]:  # with a task there, its own compilation does that
        start_compiler()
    if "profiler" in words:
        start_profiler()


def touch_card() -> None:
    """Compile and launch a kernel of ours, which readies torch's context and all of Triton."""
    touch[(1,)](torch.zeros(1, dtype=torch.int32, device="cuda"))
    torch.cuda.synchronize()


def start_profiler() -> None:
    """Profile nothing; later profiles of this process start at once."""
    with profile(activities=[ProfilerActivity.CUDA]):
        torch.cuda.synchronize()


def start_compiler() -> None:
    """Compile next to nothing: imports of torch.compile and its backend take longer than the rest of a small model's compilation."""
    with torch.no_grad():
        torch.compile(lambda x: x + 1)(torch.zeros(64, device="cuda"))
    torch.cuda.synchronize()
