"""Device time of one launch of a Triton kernel, computed from its counts and its resources. Nothing runs.

With P programs of which S fit on the card at once (registers, shared memory, threads), the launch takes W = P / S waves, and the busiest of
the N processors has B programs. share = P / (B N) is how evenly they are spread.

    memory  = (distinct bytes + bytes loaded again that the L2 cache has lost) / bandwidth
    l2      = bytes requested / (N share, times bytes that one processor takes per clock)
    product = operations of tl.dot / (peak share efficiency), by the kind of product
    threads = operations of threads and of special function units / their rates; fewer than four warps per processor slow them
    busy    = of product and l2 the longer, and a part of the shorter; with threads likewise; and spilled registers
    waiting = W (dependent loads * latency + reductions), for data of the memory or of the L2 cache; stages of a product's loop divide it
    device  = floor + exchanges between programs + (max(memory, busy)^q + waiting^q)^(1/q)

Where C programs share a processor, one computes while another one loads: 1 / C^1.4 of the shorter part is added to the longer. The form
follows from the hardware; its constants were fitted to kernels measured on one H200, which `benchmarks/results/estimates.md` lists with
what the formula says of each. Other cards keep the constants, with their own rates, clocks and sizes. Not modelled: conflicts of shared
memory, the order in which programs visit a matrix, clocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from tritonsmith.evaluator.cards.launch_cost import LAUNCH_IN_GRAPH
from tritonsmith.evaluator.records.work import KernelWork
from tritonsmith.evaluator.schema import Hardware, KernelFacts

_EXCHANGE = 0.7e-6
"""Seconds of a wait for other programs, beyond the work of the step."""
_FAR = 0.4e-6
"""Seconds until data of the card's memory arrive."""
_NEAR = 0.19e-6
"""Seconds until data of the L2 cache arrive, of several loads on their way."""
_REDUCTION = 0.022e-6
"""Seconds of a reduction by the warps of one program."""
_L2_COPIED, _L2_LOADED = 31.0, 26.0
"""Bytes per clock that a processor takes from the L2 cache: by asynchronous copies of a product's loop, and by loads into registers."""
_PRODUCT, _THREADS = 0.8, 0.8
"""Shares of the peak that products and threads reach."""
_LANES, _SPECIAL_LANES = 128.0, 16.0
"""Operations per clock of one processor's threads, and of its special function units."""
_SPILL_BYTES = 52.0
"""Bytes of spilled registers per clock of one processor."""
_WARPS_TO_HIDE = 4.0
_OVERLAP = 1.4
_MIX = 1.42
"""q of the formula."""
_CACHE_KEPT = 0.5
"""Share of the L2 cache that what the programs on the card have loaded may fill before it is lost."""
_RATHER_A_PRODUCT, _RATHER_MEMORY = 0.1, 0.8
"""Shares of the longest part from which a launch is one of products, or of memory."""
_WARP = 32
_OTHER_ARGUMENTS = 1.05
"""From so many times the text's count on the interpreter saw another launch; the text counts masked lanes too, so it is seldom below."""
_BY_TRIP = ("operations", "special", "reductions", "product_flops", "repeated_bytes")
"""Other counts that grow with the trips of loops."""


class Bound(StrEnum):
    """What most of a launch's time is; it decides how far an estimate may be trusted."""

    MEMORY = "memory"
    PRODUCT = "product"
    PROCESSOR = "processor"
    """Threads, spills, the L2 cache, or waiting for loads and reductions."""
    EXCHANGE = "exchange"
    LAUNCH = "launch"
    UNKNOWN = "unknown"
    """The text does not tell the counts; the interpreter's stand in."""


@dataclass(frozen=True)
class DeviceTime:
    """Seconds of one launch and of its parts; the parts overlap, so their sum is more."""

    total: float
    floor: float
    exchange: float
    memory: float
    busy: float
    waiting: float
    waves: float
    bound: Bound


def time_launch(hardware: Hardware, kernel: KernelFacts) -> DeviceTime:
    """Time of one of the kernel's launches."""
    work = complete_work(kernel)
    programs = max(1, math.prod(kernel.grid))
    slots = kernel.resident or hardware.processors
    together = max(1, slots // hardware.processors)
    busiest = _count_busiest(programs, slots, together, hardware.processors)
    used = programs / busiest
    waves = programs / slots if programs >= 10 * slots else float(math.ceil(programs / slots))
    sharing = max(1, min(together, math.ceil(programs / hardware.processors)))
    memory = _count_moved(hardware, work, min(1.0, slots / programs)) / hardware.bandwidth
    busy, product = _time_busy(hardware, kernel, work, used, sharing)
    requested = work.bytes_loaded + work.bytes_stored
    far = min(1.0, work.unique_bytes / requested) if requested else 0.0
    stages = _stages(kernel, work)
    each = max(1.0, work.load_rounds) * (_FAR * far + _NEAR * (1 - far)) / stages if requested else 0.0
    waiting = waves * (each + work.reductions * _REDUCTION)
    body = (max(memory, busy) ** _MIX + waiting**_MIX) ** (1 / _MIX)
    exchange = work.waits * _EXCHANGE
    bound = _find_bound(kernel, body, exchange, memory, busy, product)
    return DeviceTime(LAUNCH_IN_GRAPH + exchange + body, LAUNCH_IN_GRAPH, exchange, memory, busy, waiting, waves, bound)


def _find_bound(kernel: KernelFacts, body: float, exchange: float, memory: float, busy: float, product: float) -> Bound:
    """What most of the time is. Only what memory clearly bounds is called so: where several parts are near each other, little is sure."""
    if max(body, exchange) < LAUNCH_IN_GRAPH:
        return Bound.LAUNCH
    if kernel.work is None or kernel.work.unknown:
        return Bound.UNKNOWN
    if exchange > body:
        return Bound.EXCHANGE
    if product > _RATHER_A_PRODUCT * max(busy, memory):
        return Bound.PRODUCT
    return Bound.MEMORY if memory > _RATHER_MEMORY * busy else Bound.PROCESSOR


def complete_work(kernel: KernelFacts) -> KernelWork:
    """The text's counts, none of them below what the interpreter saw; the interpreter's alone where the text does not tell.

    Where the interpreter saw more bytes or products, the launch that was counted had other arguments: its loops make as many trips more.
    """
    loaded, stored, rounds = kernel.bytes_loaded or 0.0, kernel.bytes_stored or 0.0, float(kernel.sync_rounds or 0)
    known = kernel.work
    if known is None or known.unknown:
        products = (kernel.flops or 0.0) if kernel.tensor_cores else 0.0
        return KernelWork(
            bytes_loaded=loaded, bytes_stored=stored, unique_bytes=loaded + stored, product_flops=products, product=kernel.product,
            operations=0.0 if products else kernel.flops or 0.0, waits=rounds,
        )  # fmt: skip
    pairs = ((loaded, known.bytes_loaded), (stored, known.bytes_stored), (kernel.flops or 0.0, known.product_flops + known.operations))
    times = max((seen / told for seen, told in pairs if told), default=1.0)
    trips = times if times > _OTHER_ARGUMENTS else 1.0
    return known.model_copy(
        update={name: trips * getattr(known, name) for name in _BY_TRIP}
        | {
            "bytes_loaded": max(known.bytes_loaded, loaded), "bytes_stored": max(known.bytes_stored, stored),
            "waits": max(known.waits, rounds),
            "load_rounds": trips * known.load_rounds + (trips > 1.0),  # one more for the loads ahead of the loop
        }
    )  # fmt: skip


def _count_busiest(programs: int, slots: int, together: int, processors: int) -> int:
    """Programs of the processor that has most of them."""
    if programs <= slots:
        return math.ceil(programs / processors)
    return programs // slots * together + math.ceil(programs % slots / processors)


def _count_moved(hardware: Hardware, work: KernelWork, at_once: float) -> float:
    """Bytes that the card's memory moves; `at_once` is the share of the programs that are on the card together."""
    live = at_once * (work.bytes_loaded + work.bytes_stored)
    return work.unique_bytes + (work.repeated_bytes if live > _CACHE_KEPT * hardware.l2_bytes else 0.0)


def l2_bandwidth(hardware: Hardware) -> float:
    """Bytes per second that all processors together load from the L2 cache into registers, by the fit."""
    return hardware.processors * hardware.clock_hz * _L2_LOADED


def _time_busy(hardware: Hardware, kernel: KernelFacts, work: KernelWork, used: float, sharing: int) -> tuple[float, float]:
    """Seconds that processors are busy, and of them the products'; `used` processors' worth of programs, `sharing` on one."""
    clock = used * hardware.clock_hz
    l2 = (work.bytes_loaded + work.bytes_stored) / (clock * (_L2_COPIED if work.product_flops else _L2_LOADED))
    product = work.product_flops * hardware.processors / (used * _peak(hardware, kernel, work) * _PRODUCT)
    hidden = min(1.0, sharing * max(1, kernel.num_warps) / _WARPS_TO_HIDE)
    threads = (work.operations / (_LANES * hidden) + work.special / _SPECIAL_LANES) / (clock * _THREADS)
    rounds = max(1.0, work.load_rounds, work.waits)
    spilled = 2.0 * (kernel.spills or 0) * max(1, kernel.num_warps) * _WARP * rounds * math.prod(kernel.grid)
    core = _overlap(product, l2, sharing * _stages(kernel, work))
    return _overlap(core, threads, sharing) + spilled / (_SPILL_BYTES * clock), product


def _overlap(one: float, other: float, sharing: float) -> float:
    return max(one, other) + min(one, other) / math.pow(sharing, _OVERLAP)


def _stages(kernel: KernelFacts, work: KernelWork) -> int:
    """Rounds of loads that are on their way at once; only loops with products are pipelined."""
    return max(1, kernel.num_stages - 1) if work.product_flops and work.load_rounds > 1 else 1


def _peak(hardware: Hardware, kernel: KernelFacts, work: KernelWork) -> float:
    if not kernel.tensor_cores:
        return hardware.fp32
    rates = {"fp8": 2 * hardware.fp16, "fp16": hardware.fp16, "bf16": hardware.fp16, "bf16x3": hardware.fp16}
    return rates.get(work.product, hardware.tf32)
