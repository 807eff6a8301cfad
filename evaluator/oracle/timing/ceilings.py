"""What the card of this machine can do at best, and the floor of time that follows for a task. Imports torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tritonsmith.evaluator.schema import PrecisionClass

_COPY_BYTES = 1 << 30
"""Size of the copy that measures the bandwidth."""
_PRODUCT = 8192
"""Rows and columns of the matrices that are multiplied."""
_REPEATS = 10
"""Repetitions, of which the fastest counts."""
_MARGIN = 0.7
"""Part of a ceiling's time that is still believed: caches, clocks and better shapes may be a little faster than what was measured."""
_FEWER_PRODUCTS = 4.0
"""Algorithms for convolutions and products that save multiplications save at most this factor (Winograd F(4x4, 3x3): Lavin 2016)."""
_PRODUCTS_OF_FLOAT32 = 3.0
"""Half-precision products that stand for one in float32. With two, one operand keeps 11 bits, which the class `split` refuses too."""


@dataclass(frozen=True)
class Ceilings:
    """What the card reaches in three simple measurements."""

    bandwidth: float
    """Bytes per second of a large copy, read plus written."""
    matrix: float
    """Operations per second of a large half-precision product."""
    launch_ms: float = 0.0
    """Milliseconds of the least launch: a kernel that writes one byte, between two events on a card that has all three queued."""

    def bytes_floor_ms(self, input_bytes: float, output_bytes: float, l2_bytes: int) -> float:
        """Milliseconds below which no right kernel can be.

        0.7 times the bytes that must come from memory over the copy's rate. Inputs are cold; what is written may stay in the L2 cache.
        """
        return _MARGIN * (input_bytes + max(0.0, output_bytes - l2_bytes)) / self.bandwidth * 1e3

    def operations_floor_ms(self, flops: float, precision: PrecisionClass) -> float:
        """Milliseconds below which a kernel must do fewer operations than the reference.

        0.7 times a quarter of the operations over the half-precision matrix rate, where float32 takes three products for one.
        """
        rate = self.matrix / (1.0 if precision.allows_tf32 else _PRODUCTS_OF_FLOAT32)
        return _MARGIN * flops / _FEWER_PRODUCTS / rate * 1e3

    @property
    def launch_floor_ms(self) -> float:
        """The least that the card's events around a forward that launches something can read, if the work is between them."""
        return _MARGIN * self.launch_ms


@functools.cache
def measure_ceilings() -> Ceilings:
    """Measure the ceilings of the first card, once; that takes about 0.2 s."""
    ceilings = Ceilings(
        2 * _COPY_BYTES / _time_copy(), 2.0 * _PRODUCT**3 / _time_product(), _time_launch() * 1e3
    )
    torch.cuda.empty_cache()
    return ceilings


def _time_copy() -> float:
    source = torch.ones(_COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return _time_fastest(lambda: target.copy_(source))


def _time_product() -> float:
    matrix = torch.randn(_PRODUCT, _PRODUCT, device="cuda", dtype=torch.float16)
    return _time_fastest(lambda: matrix @ matrix)


def _time_launch() -> float:
    before, byte = torch.empty(_COPY_BYTES, dtype=torch.uint8, device="cuda"), torch.empty(1, dtype=torch.uint8, device="cuda")
    byte.zero_()
    return _time_fastest(byte.zero_, before.zero_)


def _time_fastest(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Seconds of the fastest of some repetitions, by the card's events; `before` keeps the card busy until all is queued."""
    times: list[float] = []
    for _ in range(_REPEATS):
        before()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1e3)
    return min(times)
