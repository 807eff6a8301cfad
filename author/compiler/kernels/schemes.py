"""How tiles a [M, K] and b [K, N] are multiplied at the accuracy of a scheme: the statements of a product's sums.

| scheme | operands | how a block of K is multiplied |
|--|--|--|
| `ieee` | fp32 | fp32 multiply-adds, right for every value |
| `fp16x3` | fp32, or fp16 parts | three fp16 products; values within the range that `author/_products.py.j2` tells |
| `bf16x3`, `tf32x3` | fp32 | three products of bf16 or TF32 parts, by Triton |
| `tf32` | fp32 | one TF32 product |
| `fp16` | fp32, or fp16 parts (the high ones) | one fp16 product: as exact as TF32, at twice its rate; range as for `fp16x3` |
| `as they are` | 16 bits | one product |
"""

from __future__ import annotations

from tritonsmith.author.compiler.ir.code import Expression, Statement
from tritonsmith.author.compiler.ir.printer import print_statements
from tritonsmith.author.compiler.ir.template import expression, statements
from tritonsmith.author.compiler.ir.values import TYPE_NAMES
from tritonsmith.author.compiler.kernels.pieces import options
from tritonsmith.author.types import PART

SPLIT = ("fp16x3", "fp16")
"""Schemes that make fp16 parts of fp32 values."""
_IN_PARTS = """
    # Tensor cores round additions towards zero: each block has a sum of its own, added in fp32.
    total_rest = tl.dot({a_low}, {b_high}, tl.dot({a_high}, {b_low}))
    total += tl.dot({a_high}, {b_high}, total_rest * (1.0 / 2048.0))
"""
_CARRIED = """
    # Tensor cores round additions towards zero: the large products have a sum for each block, added in fp32; the small ones need none.
    # With max_num_imprecise_acc, of no other effect on fp16, Triton does not move that addition into the tensor core.
    total_block = tl.dot({a_high}, {b_high}, max_num_imprecise_acc=1)
    total_rest = tl.dot({a_high}, {b_low}, total_rest)
    total_rest = tl.dot({a_low}, {b_high}, total_rest)
    total += total_block
"""
_SHORT = """
    total = tl.dot({a_high}, {b_high}, total)
    total_rest = tl.dot({a_high}, {b_low}, total_rest)
    total_rest = tl.dot({a_low}, {b_high}, total_rest)
"""
_BLOCK_BY_BLOCK = """
    total += tl.dot({a}, {b}, {*options})  # a sum for each block: tensor cores round towards zero
"""


def start_sums(scheme: str, shape: Expression, carried: bool) -> tuple[Statement, ...]:
    """The sums ahead of the loop.

    Args:
        scheme: of the product.
        shape: of the tile of sums.
        carried: whether the small products of parts stay in `total_rest` for the whole depth: fewer operations and waits, more registers.
    """
    rest = statements("total_rest = tl.zeros({shape}, tl.float32)", shape=shape) if carried and scheme == "fp16x3" else ()
    return (*statements("total = tl.zeros({shape}, tl.float32)", shape=shape), *rest)


def accumulate(
    scheme: str, names: tuple[str, str], ready: tuple[bool, bool], carried: bool = False, short: bool = False
) -> tuple[Statement, ...]:
    """What adds a product of two tiles to `total`.

    Args:
        scheme: of the product.
        names: of the tiles [M, K] and [K, N].
        ready: whether the parts of each, which are named after it, are there already.
        carried: as in `start_sums`.
        short: whether K is so short that tensor cores may add all large products.
    """
    a, b = names
    if scheme not in SPLIT:
        return _accumulate_whole(scheme, a, b)
    parts: list[Statement] = []
    for name, done in zip(names, ready, strict=True):
        high, low = f"{name}_high", f"{name}_low"
        if not done and scheme == "fp16x3":
            parts += statements("{high}, {low} = split_value({v})", high=high, low=low, v=name)
        elif not done:
            parts += statements("{high} = {v}.to({part})", high=high, v=name, part=TYPE_NAMES[PART])
    if scheme == "fp16":
        return (*parts, *statements("total = tl.dot({a_high}, {b_high}, total)", a_high=f"{a}_high", b_high=f"{b}_high"))
    template = _SHORT if carried and short else _CARRIED if carried else _IN_PARTS
    return (*parts, *statements(template, a_high=f"{a}_high", a_low=f"{a}_low", b_high=f"{b}_high", b_low=f"{b}_low"))


def _accumulate_whole(scheme: str, a: str, b: str) -> tuple[Statement, ...]:
    if scheme == "as they are":
        return statements("total = tl.dot({a}, {b}, total)  # 16-bit operands, a sum in fp32", a=a, b=b)
    precision = options(input_precision=scheme)
    if scheme in ("tf32x3", "bf16x3"):
        return statements(_BLOCK_BY_BLOCK, a=a, b=b, options=precision)
    return statements("total = tl.dot({a}, {b}, total, {*options})", a=a, b=b, options=precision)


def finish_sums(scheme: str, carried: bool) -> tuple[Statement, ...]:
    """What stands behind the loop."""
    return statements("total += total_rest * (1.0 / 2048.0)") if carried and scheme == "fp16x3" else ()


class SumText:
    """The same as text, for plans of families whose kernels are templates; without line breaks at the end."""

    def zeros(self, scheme: str, shape: str, carried: bool = False) -> str:
        """The lines that make the sums, ahead of the loop."""
        return print_statements(start_sums(scheme, expression(shape), carried))

    def accumulate(self, scheme: str, a: str, b: str, ready: bool = False, carried: bool = False) -> str:
        """The lines that add a @ b to `total`; `ready`: from their parts."""
        return print_statements(accumulate(scheme, (a, b), (ready, ready), carried))

    def finish(self, scheme: str, carried: bool = False) -> str:
        """The lines behind the loop."""
        return print_statements(finish_sums(scheme, carried))


def multiply_alike(a: str, b: str) -> Expression:
    """The sum of the three products of parts that have one scale, the small ones first."""
    return expression(
        "tl.dot({a_high}, {b_high}, tl.dot({a_low}, {b_high}, tl.dot({a_high}, {b_low})))",
        a_high=f"{a}_high", a_low=f"{a}_low", b_high=f"{b}_high", b_low=f"{b}_low",
    )  # fmt: skip
