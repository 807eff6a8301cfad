"""What the card of this machine can do at best, measured once, and the floor of time that follows for a task. Imports torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tritonsmith.evaluator.schema import PrecisionClass

_COPY_BYTES = 1 << 30
_PRODUCT = 8192
_REPEATS = 10
_MARGIN = 0.7
"""A measured ceiling is not the last word: caches, clocks and better shapes may be a little faster."""
_FEWER_PRODUCTS = 4.0
"""Algorithms for convolutions and products that save multiplications save at most this factor (Winograd F(4x4, 3x3): Lavin 2016)."""
_PRODUCTS_OF_IEEE = 3.0
"""Half-precision products that stand for one in float32."""


@dataclass(frozen=True)
class Ceilings:
    """Bytes/s of a large copy (read plus written), operations/s of a large half-precision product, milliseconds of the least launch."""

    bandwidth: float
    matrix: float
    launch_ms: float = 0.0
    """A kernel that writes one byte, between two events on a card that has all three queued."""

    def floor_ms(self, input_bytes: float, output_bytes: float, flops: float, precision: PrecisionClass, l2_bytes: int) -> float:
        """Milliseconds below which no right kernel can be.

        0.7 times the larger of: bytes that must come from memory (inputs are cold; what is written may stay in the L2 cache) over the
        copy's rate, and operations over the half-precision matrix rate, where float32 takes three products for one and a clever
        algorithm needs a quarter of them.
        """
        moved = input_bytes + max(0.0, output_bytes - l2_bytes)
        rate = self.matrix / (_PRODUCTS_OF_IEEE if precision is PrecisionClass.IEEE else 1.0)
        return _MARGIN * max(moved / self.bandwidth, flops / _FEWER_PRODUCTS / rate) * 1e3

    @property
    def launch_floor_ms(self) -> float:
        """What the card's events around a forward that launches something cannot read less than; else the work is not between them."""
        return _MARGIN * self.launch_ms


@functools.cache
def measure_ceilings() -> Ceilings:
    """The ceilings of the first card; about 0.2 s at the first call."""
    ceilings = Ceilings(
        2 * _COPY_BYTES / _seconds_of_a_copy(), 2.0 * _PRODUCT**3 / _seconds_of_a_product(), _seconds_of_a_launch() * 1e3
    )
    torch.cuda.empty_cache()
    return ceilings


def _seconds_of_a_copy() -> float:
    source = torch.ones(_COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return _fastest(lambda: target.copy_(source))


def _seconds_of_a_product() -> float:
    one = torch.randn(_PRODUCT, _PRODUCT, device="cuda", dtype=torch.float16)
    return _fastest(lambda: one @ one)


def _seconds_of_a_launch() -> float:
    before, one = torch.empty(_COPY_BYTES, dtype=torch.uint8, device="cuda"), torch.empty(1, dtype=torch.uint8, device="cuda")
    one.zero_()
    return _fastest(one.zero_, before.zero_)


def _fastest(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
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
