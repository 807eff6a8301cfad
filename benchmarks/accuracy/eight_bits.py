"""How exactly a card's tensor cores add up products of 8-bit floats: `python -m tritonsmith.benchmarks.accuracy.eight_bits [--out FILE]`.

For each length of the sum, operand type and kind of operands: the error of `tl.dot` with fp32 sums against float64 on the same operands,
as shares of the result's root mean square. The evaluator's class for 8-bit operands takes its share from this table.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

from tritonsmith.benchmarks.host import print_line
from tritonsmith.evaluator.errors import UsageError

LENGTHS = (64, 256, 1024, 4096, 16384)
ROWS = COLUMNS = 128
BLOCK = 64
TYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
KINDS = {"normal": torch.randn, "uniform": torch.rand}


@triton.jit  # type: ignore[untyped-decorator]
def product(  # type: ignore[no-untyped-def]
    a, b, c, K, EXACT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr
):
    """`c[M, N]`: `a[M, K] @ b[N, K]^T`, the sum over K in one fp32 accumulator."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, B):
        left = tl.load(a + m[:, None] * K + start + k[None, :])
        right = tl.load(b + n[None, :] * K + start + k[:, None])
        total = tl.dot(left, right, total, max_num_imprecise_acc=0 if EXACT else None)
    tl.store(c + m[:, None] * N + n[None, :], total)


def measure(length: int, kind: str, dtype: torch.dtype, *, exact: bool) -> dict[str, object]:
    """Errors of one product as shares of the result's root mean square; `exact` asks for fp32 sums outside the tensor core."""
    generator = torch.Generator(device="cuda").manual_seed(length)
    draw = KINDS[kind]
    a, b = (draw((rows, length), generator=generator, device="cuda").to(dtype) for rows in (ROWS, COLUMNS))
    c = torch.empty(ROWS, COLUMNS, device="cuda")
    product[(1,)](a, b, c, length, exact, ROWS, COLUMNS, BLOCK)
    right = a.double() @ b.double().T
    error, scale = c.double() - right, right.square().mean().sqrt()
    return {
        "length": length, "kind": kind, "dtype": str(dtype), "fp32_sums": exact, "rms": float(error.square().mean().sqrt() / scale),
        "max": float(error.abs().max() / scale), "bias": float((error * right).sum() / right.square().sum()),
    }  # fmt: skip


def main() -> int:
    """Measure every product on this machine's card and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a file for the rows, as JSON")
    out = parser.parse_args().out
    if not torch.cuda.is_available():
        raise UsageError("this study needs a CUDA card of compute capability 8.9 or newer; run it on a machine with one")
    rows = [
        measure(length, kind, dtype, exact=exact) for dtype in TYPES for kind in KINDS for exact in (False, True) for length in LENGTHS
    ]
    for row in rows:
        print_line(str(row))
    about = {
        "command": "python -m tritonsmith.benchmarks.accuracy.eight_bits", "card": torch.cuda.get_device_name(),
        "torch": torch.__version__, "triton": triton.__version__, "date": datetime.date.today().isoformat(),
    }  # fmt: skip
    if out:
        out.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
