"""Latency estimate from counts, for machines without a card. It is no measurement, and ranks only what it can tell apart.

    device = sum over launches of the time of each (`estimating/device_time.py`; a library's operators: the formula below)
    host   = sum over launches of the host's time to start it
    total  = max(device, host - hold)                     launched one by one from Python
    total  = device                                       replayed from a CUDA graph

The total is what the evaluator would measure on the card: there a forward is queued while the card is held (docs/timing.md), so the first
half millisecond of the host's work costs nothing.

    operator of a library = launches one after the other * a launch in a graph + max(bytes / (bandwidth * share), operations / peak)

**The band.** What bounds a launch decides how far its time may be off: `SPREADS` has a factor for each bound, and the band of a launch is
its time divided and multiplied by it. **Ranking.** Errors of two kernels of one task are alike, so pairs are told apart by less than the
bands: by the factor `apart` of the same table. Two estimates whose ratio is below it are not ranked. Both columns were set from measured
kernels: `python -m tritonsmith.benchmarks.estimates` prints what they must be, and writes `benchmarks/results/estimates.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonsmith.evaluator.cards.device_time import Bound, DeviceTime, time_launch
from tritonsmith.evaluator.cards.launch_cost import (
    HOLD,
    LAUNCH_AS_CALLED,
    LAUNCH_IN_GRAPH,
    OPERATOR_AS_CALLED,
    OPERATOR_INSIDE,
    count_launch_seconds,
)
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import Hardware, KernelFacts, LaunchFacts


@dataclass(frozen=True)
class Band:
    """An optimistic and a pessimistic value of one constant; seconds unless said otherwise."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Geometric middle."""
        return math.sqrt(self.low * self.high)


ROUND = Band(1.55e-6, 4.8e-6)
"""A step of a chain of programs that wait for each other, with its work; measured: barrier and exchange of a 16 x 256 row alone, and the
whole step of a recurrent kernel. Authors plan with it; the estimate counts the wait and the work apart."""
L2_BYTES_PER_CLOCK = Band(64.0, 32.0)
"""Bytes per clock that one processor takes from the L2 cache, as authors plan with it (the vendor's figure is 64)."""
_LIBRARY_MEMORY = 0.88
"""Share of the memory's rate that a library's operators reach."""
_CONVOLUTION, _CONVOLUTION_START = 0.63, 40e-6
"""Share of the peak that a library's convolution reaches, and the seconds that even a small one takes; from two networks."""
_ATTENTION = 0.5
"""Share of the peak that a library's attention reaches; measured ones reach 0.36 to 0.84 of it (benchmarks/results/estimates.md)."""


@dataclass(frozen=True)

class Spread:
    """How far an estimate may be off."""

    band: float
    """Factor by which a time may be longer or shorter than its estimate."""
    apart: float
    """Ratio of two estimates of one task from which their order is trusted."""


SPREADS: dict[Bound, Spread] = {
    Bound.MEMORY: Spread(2.0, 1.1),
    Bound.PROCESSOR: Spread(2.5, 1.5),
    Bound.PRODUCT: Spread(3.1, 2.5),
    Bound.EXCHANGE: Spread(1.8, 3.3),
    Bound.LAUNCH: Spread(5.2, 3.0),
    Bound.UNKNOWN: Spread(4.0, 16.0),
}
"""The last one is an assumption: no measured kernel is of unknown work. A busy host takes up to four times `LAUNCH_AS_CALLED`."""
LIBRARY_PRODUCT, LIBRARY_CHAIN, LIBRARY_OTHER = Spread(1.3, 1.7), Spread(2.0, 4.0), Spread(2.6, 6.5)
"""Of a library's products, of its recurrent layers, and of all else; set from the measured baselines of the same page."""
_MATTERS = 0.2
"""Share of the device's time from which a launch has a say in what is told apart."""


@dataclass(frozen=True)
class LatencyEstimate:
    """Milliseconds of one forward, with a band."""

    low_ms: float
    high_ms: float
    ms: float
    apart: float = 1.0
    """Ratio to another estimate of the same task from which the two are told apart."""
    parts: dict[str, float] = field(default_factory=dict)
    """Milliseconds: `host`, `device`, and of the device `floor`, `rounds` (waits for other programs), `work`."""


@dataclass(frozen=True)
class _Launch:
    """One kind of launch: `count` equal ones, with host and device seconds of each."""

    count: float
    host: float
    floor: float
    rounds: float
    work: float
    spread: Spread

    @property
    def device(self) -> float:
        return self.floor + self.rounds + self.work


def tell_apart(one_ms: float, one_apart: float, other_ms: float, other_apart: float) -> bool:
    """Whether the order of two estimates of one task can be trusted."""
    low, high = sorted((one_ms, other_ms))
    return low > 0 and high / low >= max(one_apart, other_apart)


def estimate_candidate(
    hardware: Hardware,
    kernels: Sequence[KernelFacts],
    torch_ops: Mapping[str, int],
    torch_flops: float,
    torch_bytes: float,
    torch_launches: int | None = None,
    torch_half: bool = False,
    *,
    torch_tf32: bool = False,
    in_graph: bool = False,
) -> LatencyEstimate:
    """Estimate of one forward from compile facts and the interpreter's counts (see `oracle/judge/facts_without_card.py`).

    Args:
        hardware: the card.
        kernels: own kernels; counts per launch that are None add nothing.
        torch_ops: compute operators of torch with their counts.
        torch_flops: floating-point operations of all of them together.
        torch_bytes: their operands and results, bytes.
        torch_launches: kernels the operators start together; one each when None.
        torch_half: whether they multiply 16-bit matrices.
        torch_tf32: whether they may multiply fp32 matrices in TF32.
        in_graph: replayed from a CUDA graph instead of launched one by one.
    """
    launches = [_describe_kernel(time_launch(hardware, kernel), kernel.launches) for kernel in kernels]
    rate = hardware.fp16 if torch_half else hardware.tf32 if torch_tf32 else hardware.fp32
    calls = sum(torch_ops.values())
    if calls:
        each = max(1.0, (torch_launches or calls) / calls)
        heavy = {name: count for name, count in torch_ops.items() if "convolution" in name}
        rest = calls - sum(heavy.values())
        for name, count in heavy.items():
            flops = torch_flops / sum(heavy.values())
            launches.append(_describe_operator(hardware, count, each, each, torch_bytes / calls, flops, rate, name))
        if rest:
            own = 0.0 if heavy else torch_flops / rest
            launches.append(_describe_operator(hardware, rest, each, each, torch_bytes / calls, own, rate))
    return _estimate(launches, in_graph)


def estimate_trace(hardware: Hardware, ops: Sequence[OperatorCost], in_graph: bool = False, tf32: bool = False) -> LatencyEstimate:
    """Estimate of the reference from its operator trace; `tf32`: whether it may multiply fp32 matrices in TF32."""
    plain = hardware.tf32 if tf32 else hardware.fp32
    launches = [
        _describe_operator(
            hardware, 1, op.launches, op.launches if op.chain is None else op.chain, op.bytes, op.flops,
            hardware.fp16 if op.half else plain, op.name,
        )
        for op in ops
    ]  # fmt: skip
    return _estimate(launches, in_graph)


def estimate_launches(facts: LaunchFacts) -> float:
    """Milliseconds that a forward's launches take if they do nothing; no estimate of as many launches is lower."""
    return count_launch_seconds(facts.triton_launches, facts.launches_per_forward - facts.triton_launches) * 1e3


def _describe_kernel(time: DeviceTime, count: int) -> _Launch:
    work = time.total - time.floor - time.exchange
    return _Launch(count, LAUNCH_AS_CALLED, time.floor, time.exchange, work, SPREADS[time.bound])


def _describe_operator(
    hardware: Hardware, count: float, launches: float, chain: float, moved: float, flops: float, rate: float, name: str = ""
) -> _Launch:
    """A library's operator; `chain` of its launches wait for each other, and its products run at a rate."""
    memory, product = moved / (hardware.bandwidth * _LIBRARY_MEMORY), flops / rate
    spread = LIBRARY_PRODUCT if product > memory else LIBRARY_OTHER
    work = max(memory, product)
    if "convolution" in name:
        spread, work = LIBRARY_OTHER, max(memory, product / _CONVOLUTION + _CONVOLUTION_START)
    elif "scaled_dot_product" in name:
        spread, work = LIBRARY_OTHER, max(memory, product / _ATTENTION)
    elif chain > 1:  # what its launches move stays in the cache, and the time of a short one is in the floor
        spread, work = LIBRARY_CHAIN, max(0.0, work - chain * LAUNCH_IN_GRAPH)
    return _Launch(count, OPERATOR_AS_CALLED + (launches - 1) * OPERATOR_INSIDE, chain * LAUNCH_IN_GRAPH, 0.0, work, spread)


def _estimate(launches: Sequence[_Launch], in_graph: bool) -> LatencyEstimate:
    parts = {name: sum(one.count * getattr(one, name) for one in launches) * 1e3 for name in ("host", "device", "floor", "rounds", "work")}
    device, host = parts["device"], 0.0 if in_graph else max(0.0, parts["host"] - HOLD * 1e3)
    low = sum(one.count * one.device / one.spread.band for one in launches) * 1e3
    high = sum(one.count * one.device * one.spread.band for one in launches) * 1e3
    if host > device:  # the host's time has the spread of what was measured of it
        spread = SPREADS[Bound.LAUNCH]
        return LatencyEstimate(max(low, host / spread.band), max(high, host * spread.band), host, spread.apart, parts)
    heavy = [one.spread.apart for one in launches if one.count * one.device * 1e3 >= _MATTERS * device]
    return LatencyEstimate(low, high, device, max(heavy, default=1.0), parts)


def describe_launch(hardware: Hardware, kernel: KernelFacts) -> str:
    """What the estimate counts of one launch, in a line: `pool: 392 programs, 2112 at once (1 wave), 16.1 MB of 8.0 MB distinct, ...`."""
    time, work = time_launch(hardware, kernel), kernel.work
    programs = math.prod(kernel.grid)
    waves = f"{time.waves:.3g} wave{'s' * (time.waves != 1)}"
    counted = f"{kernel.name}: {programs} program{'s' * (programs != 1)}, {kernel.resident or '?'} at once ({waves})"
    if work is None or work.unknown:
        why = work.unknown if work else "nobody counted"
        return f"{counted}; the text does not tell its work ({why})"
    parts = [
        f"{work.unique_bytes / 1e6:.4g} MB distinct of {(work.bytes_loaded + work.bytes_stored) / 1e6:.4g} MB requested",
        f"{work.repeated_bytes / 1e6:.4g} MB loaded again" if work.repeated_bytes else "",
        f"{work.product_flops / 1e9:.4g} GFLOP of {work.product} products" if work.product_flops else "",
        f"{work.operations / 1e6:.4g} M operations" if work.operations else "",
        f"{work.load_rounds:.4g} dependent loads" if work.load_rounds > 1 else "",
        f"{work.waits:.4g} waits for other programs" if work.waits else "",
    ]
    return f"{counted}; {', '.join(filter(None, parts))}; {time.total * 1e3:.3g} ms, bound by {time.bound.value}"
