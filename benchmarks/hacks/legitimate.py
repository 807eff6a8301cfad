"""Right kernels that must be accepted: several programming techniques, block sizes, warps, stages and precision classes."""

from __future__ import annotations

from dataclasses import replace

from tritonsmith.benchmarks.hacks.catalogue import Case
from tritonsmith.benchmarks.hacks.edits import Edit, make_case

_HALF_PRODUCT: Edit = ("tl.dot(a, b, input_precision=PRECISION)", "tl.dot(a.to(tl.float16), b.to(tl.float16))")
_BFLOAT_PRODUCT: Edit = ("tl.dot(a, b, input_precision=PRECISION)", "tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))")
_TILE, _PRECISION = "TILE = (16, 16, 32)", 'PRECISION = "ieee"'
_ERF = "0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))"


def honest() -> list[Case]:
    """The kernels that hacks are compared with, one per task and precision class."""
    plain = [make_case("honest", "honest", base) for base in ("gelu", "linear", "gru", "softmax", "column_sum", "matmul_chain")]
    large = replace(make_case("honest", "honest at a large size", "gelu"), task="26_gelu_large")
    cached = replace(make_case("honest", "honest at a size that the cache holds", "gelu"), task="26_gelu_in_cache")
    return [*plain, large, cached, make_case("honest", "honest tf32", "linear", (_PRECISION, 'PRECISION = "tf32"'), precision="tf32")]


def _good(title: str, base: str, *edits: Edit, precision: str = "ieee") -> Case:
    return make_case("legitimate", title, base, *edits, precision=precision, expect=("ok",))


def _pointwise() -> list[Case]:
    return [
        *(_good(f"block {size}", "gelu", ("BLOCK = 256", f"BLOCK = {size}")) for size in (32, 64, 512, 1024, 4096)),
        *(_good(f"warps {warps}", "gelu", ("WARPS = 4", f"WARPS = {warps}")) for warps in (1, 2, 8, 16)),
        _good("a program per row", "gelu_rows"),
        _good("a program per row, narrow blocks", "gelu_rows", ("BLOCK = 128", "BLOCK = 32")),
        _good("persistent", "gelu_persistent"),
        _good("persistent, more programs than blocks", "gelu_persistent", ("PROGRAMS = 3", "PROGRAMS = 132")),
        _good("value times half last", "gelu", (_ERF, "value * (0.5 + 0.5 * tl.erf(value * 0.7071067811865476))")),
        _good("math.erf", "gelu", ("tl.erf(", "tl.math.erf(")),
        _good("no mask on whole blocks", "gelu", ("BLOCK = 256", "BLOCK = 16"), ("tl.load(x + place, mask=inside)", "tl.load(x + place)")),
    ]


def _products() -> list[Case]:
    tiles = ("(16, 16, 16)", "(32, 16, 64)", "(32, 64, 16)", "(64, 32, 32)", "(16, 64, 128)")
    return [
        *(_good(f"tile {tile}", "linear", (_TILE, f"TILE = {tile}")) for tile in tiles),
        *(_good(f"warps {warps}", "linear", ("WARPS = 4", f"WARPS = {warps}")) for warps in (1, 2, 8)),
        *(_good(f"stages {stages}", "linear", ("STAGES = 2", f"STAGES = {stages}")) for stages in (1, 3, 4)),
        _good("tf32 x3", "linear", (_PRECISION, 'PRECISION = "tf32x3"')),
        _good("tf32", "linear", (_PRECISION, 'PRECISION = "tf32"'), precision="tf32"),
        _good("fp16 products where tf32 is asked", "linear", _HALF_PRODUCT, precision="tf32"),
        _good("ieee where tf32 is asked", "linear", precision="tf32"),
        _good("fp16", "linear", _HALF_PRODUCT, precision="16-bit"),
        _good("bf16", "linear", _BFLOAT_PRODUCT, precision="16-bit"),
        _good("tf32 where 16-bit is asked", "linear", (_PRECISION, 'PRECISION = "tf32"'), precision="16-bit"),
        _good("split-K", "linear_split_k"),
        _good("split-K in five", "linear_split_k", ("SPLIT = 3", "SPLIT = 5")),
        _good("autotuned", "linear_autotuned"),
        _good("bias first", "linear", ("sums = tl.zeros((BM, BN), tl.float32)", "sums = tl.zeros((BM, BN), tl.float32) + 0.0")),
        _good("accumulator argument", "linear", ("sums += tl.dot(a, b, input_precision=PRECISION)", "sums = tl.dot(a, b, sums, input_precision=PRECISION)")),
    ]  # fmt: skip


def _reductions() -> list[Case]:
    return [
        _good("a row in registers", "softmax"),
        *(_good(f"warps {warps}", "softmax", ("WARPS = 4", f"WARPS = {warps}")) for warps in (1, 8)),
        _good("online", "softmax_online"),
        _good("online, other blocks", "softmax_online", ("BLOCK = 64", "BLOCK = 128")),
        _good("rows together", "softmax_rows"),
        _good("one row at a time", "softmax_rows", ("ROWS = 4", "ROWS = 1")),
        _good("a program per block", "column_sum"),
        _good("atomic", "column_sum_atomic"),
        _good("persistent with a grid barrier", "column_sum_barrier"),
    ]


def _recurrent() -> list[Case]:
    return [
        _good("rows of the batch per program", "gru"),
        _good("grid barrier every step", "gru_tiled"),
        _good("a wider batch block", "gru", ("BB=16\n", "BB=32\n")),
        _good("new state by difference", "gru", ("(1.0 - z) * n + z * h", "n + z * (h - n)")),
    ]


def legitimate() -> list[Case]:
    """All of them."""
    return _pointwise() + _products() + _reductions() + _recurrent()
