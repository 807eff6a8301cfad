"""The same products by tl.dot and by cuBLAS, where this machine has a card. Imports torch and Triton."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import triton
import triton.language as tl

from tritonsmith.benchmarks.accuracy.products import BLOCK, LOW_SCALE

_TILE = 64


@triton.jit  # type: ignore[untyped-decorator]
def product(  # type: ignore[no-untyped-def]
    x, w, y, columns, length, scheme: tl.constexpr, low_scale: tl.constexpr, tile: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """y = x @ w, all contiguous, sizes multiples of tile and block."""
    m, n = tl.program_id(0) * tile + tl.arange(0, tile), tl.program_id(1) * tile + tl.arange(0, tile)
    total = tl.zeros((tile, tile), tl.float32)
    rest = tl.zeros((tile, tile), tl.float32)
    for start in range(0, length, block):
        k = start + tl.arange(0, block)
        a = tl.load(x + m[:, None] * length + k[None, :])
        b = tl.load(w + k[:, None] * columns + n[None, :])
        if scheme == "fp16x3, a sum per block" or scheme == "fp16x3, one sum":  # noqa: PLR1714 (Triton has no `in` for constants)
            a_high, b_high = a.to(tl.float16), b.to(tl.float16)
            a_low, b_low = ((a - a_high) * low_scale).to(tl.float16), ((b - b_high) * low_scale).to(tl.float16)
            if scheme == "fp16x3, one sum":
                total = tl.dot(a_high, b_high, total)
                rest = tl.dot(a_low, b_high, tl.dot(a_high, b_low, rest))
            else:
                low = tl.dot(a_low, b_high, tl.dot(a_high, b_low))
                total += tl.dot(a_high, b_high, low * (1.0 / low_scale))
        elif scheme == "bf16":
            total = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
        else:
            total = tl.dot(a, b, total, input_precision=scheme)
    tl.store(y + m[:, None] * columns + n[None, :], total + rest * (1.0 / low_scale))


def multiply(scheme: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product by a kernel, on the device of the operands."""
    result = torch.empty(a.shape[0], b.shape[1], device=a.device)
    grid = (a.shape[0] // _TILE, b.shape[1] // _TILE)
    product[grid](a, b, result, b.shape[1], a.shape[1], scheme=scheme, low_scale=LOW_SCALE, tile=_TILE, block=BLOCK)
    return result


def card_product(scheme: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A product on the card, from and to the processor's memory."""
    return partial(_multiply_on_card, scheme)


def _multiply_on_card(scheme: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return multiply(scheme, a.cuda(), b.cuda()).cpu()


def multiply_by_cublas(a: torch.Tensor, b: torch.Tensor, *, tf32: bool = False) -> torch.Tensor:
    """The library's fp32 or TF32 product on the card."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return (a.cuda() @ b.cuda()).cpu()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
