"""Matrix products as a tl.dot loop computes them, emulated on the processor. Imports torch.

A tensor core takes 16 terms (fp16, bf16) or 8 (TF32) at a time. Here their products are added to the accumulator exactly and the sum is
rounded to fp32 once, towards zero. A card also cuts each product to the width of the largest before it adds, which is not emulated.
An fp32 FMA takes one term and rounds to nearest.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tritonsmith.evaluator.oracle.checks.loaded_task import round_to_tf32

Round = Callable[[torch.Tensor], torch.Tensor]
Operands = tuple[torch.Tensor, torch.Tensor]

BLOCK = 32
"""Terms of one tl.dot."""
LOW_SCALE = 2.0**11
"""What the low half of a value is multiplied by, so that fp16 has room for it."""
_TERMS = {"tf32": 8, "fp16": 16, "bf16": 16}
"""Terms that one instruction of a tensor core adds up."""


def round_to_nearest(exact: torch.Tensor) -> torch.Tensor:
    """float64 values as float32 has them."""
    return exact.float().double()


def round_towards_zero(exact: torch.Tensor) -> torch.Tensor:
    """float64 values cut to float32, as tensor cores do after an addition."""
    nearest = exact.float()
    too_large = nearest.double().abs() > exact.abs()
    return torch.where(too_large, torch.nextafter(nearest, torch.zeros_like(nearest)), nearest).double()


def accumulate(pairs: list[Operands], terms: int, rounding: Round, block: int | None = None) -> torch.Tensor:
    """Sum of products a @ b over all pairs, `terms` at a time in one accumulator.

    With a `block` each so many terms have an accumulator of their own, and the blocks' sums are added in fp32.
    """
    exact = [(a.double(), b.double()) for a, b in pairs]
    length = pairs[0][0].shape[1]
    total = torch.zeros(pairs[0][0].shape[0], pairs[0][1].shape[1], dtype=torch.float64)
    if block is None:
        return _accumulate_span(exact, total, range(0, length, terms), terms, rounding).float()
    for start in range(0, length, block):
        span = range(start, min(start + block, length), terms)
        total = round_to_nearest(total + _accumulate_span(exact, torch.zeros_like(total), span, terms, rounding))
    return total.float()


def _accumulate_span(exact: list[Operands], total: torch.Tensor, span: range, terms: int, rounding: Round) -> torch.Tensor:
    for a, b in exact:
        for k in span:
            total = rounding(torch.addmm(total, a[:, k : k + terms], b[k : k + terms]))
    return total


def split(values: torch.Tensor, narrow: Round, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low part of each value; the low part is multiplied by `scale`."""
    high = narrow(values)
    return high, narrow((values - high) * scale)


def _to_half(values: torch.Tensor) -> torch.Tensor:
    return values.half().float()


def _to_bfloat(values: torch.Tensor) -> torch.Tensor:
    return values.bfloat16().float()


def multiply_in_chain(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One chain of fp32 FMAs per result, as tl.dot's `ieee` and as a library's fp32 kernel that does not split the sum."""
    return accumulate([(a, b)], 1, round_to_nearest)


def multiply_tf32x3(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """tl.dot's `tf32x3`: three products per block, whose sum is added outside of the tensor core."""
    return _multiply_three(a, b, round_to_tf32, _TERMS["tf32"])


def multiply_bf16x3(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """tl.dot's `bf16x3`, in the same way."""
    return _multiply_three(a, b, _to_bfloat, _TERMS["bf16"])


def _multiply_three(a: torch.Tensor, b: torch.Tensor, narrow: Round, terms: int) -> torch.Tensor:
    (high, low), (other_high, other_low) = split(a, narrow), split(b, narrow)
    return accumulate([(low, other_high), (high, other_low), (high, other_high)], terms, round_towards_zero, BLOCK)


def multiply_fp16x3(a: torch.Tensor, b: torch.Tensor, block: int | None = BLOCK) -> torch.Tensor:
    """Two fp16 halves, the low one scaled, three products; without a block both sums stay in the tensor core all along."""
    (high, low), (other_high, other_low) = split(a, _to_half, LOW_SCALE), split(b, _to_half, LOW_SCALE)
    main = accumulate([(high, other_high)], _TERMS["fp16"], round_towards_zero, block)
    return main + accumulate([(high, other_low), (low, other_high)], _TERMS["fp16"], round_towards_zero, block) / LOW_SCALE


def multiply_tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A plain TF32 product, the sum kept in the tensor core."""
    return accumulate([(round_to_tf32(a), round_to_tf32(b))], _TERMS["tf32"], round_towards_zero)


def multiply_bf16(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A plain bf16 product, the sum kept in the tensor core."""
    return accumulate([(_to_bfloat(a), _to_bfloat(b))], _TERMS["bf16"], round_towards_zero)


PRODUCTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "ieee": multiply_in_chain,
    "tf32x3": multiply_tf32x3,
    "fp16x3, a sum per block": multiply_fp16x3,
    "fp16x3, one sum": lambda a, b: multiply_fp16x3(a, b, None),
    "bf16x3": multiply_bf16x3,
    "tf32": multiply_tf32,
    "bf16": multiply_bf16,
}
"""By the name that the table has."""
