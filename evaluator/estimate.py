"""Latency estimate from counts, for machines without a card. An estimate ranks candidates under one formula; it is not a measurement.

For a launch (or an operator that starts n launches, c of which wait for each other):

    device = c * floor + rounds * round + max(bytes / B(p), flops / F(p))
    host   = call + (n - 1) * inner
    total  = max(sum of host, sum of device)              launched one by one from Python
    total  = replay + sum of device                       replayed from a CUDA graph

p = min(programs, processors) is how much of the card the launch can use; an operator of a library uses all of it.
B(p) = min(memory bandwidth, p * bytes a processor can take from the L2 cache) and F(p) = p / processors * peak * efficiency, the peak by
the arithmetic used (fp32, or TF32 or 16 bits on tensor cores). `rounds` counts the waits of one program for others. Every constant has an
optimistic and a pessimistic value; `low_ms` takes all of the first, `high_ms` all of the second, `ms` is their geometric mean. Bands of
neighbouring candidates overlap; the order of `ms` is what counts among them. What is called faster than the baseline has a band that leaves
it out.

Constants measured on one H200 (torch 2.11, Triton 3.6) are marked so; the others are assumptions. They are used for every card, so a
latency for another card is a guess by the same formula. Not modelled: bank conflicts, asynchronous copies, tails of waves, L2 misses,
clocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonsmith.evaluator.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import Hardware, KernelFacts, LaunchFacts


@dataclass(frozen=True)
class Band:
    """An optimistic and a pessimistic value of one constant; seconds unless said otherwise."""

    low: float
    high: float

    def at(self, pessimistic: bool) -> float:
        """One end of the band."""
        return self.high if pessimistic else self.low


TRITON_CALL = Band(7.6e-6, 11.8e-6)
"""Host time of a Triton launch from Python; measured with 1 and with 16 arguments."""
TORCH_CALL = Band(5.1e-6, 11.8e-6)
"""Host time of a torch operator; measured: add_ and a small matmul."""
INNER_CALL = Band(4.07e-6, 5.7e-6)
"""Host time per launch inside one library call; measured: cuDNN's GRU, 25.0 and 35.0 ms for 6144 launches."""
GRAPH_REPLAY = Band(7.1e-6, 7.1e-6)
"""Host time of a CUDA graph's replay; measured."""
FLOOR = Band(0.58e-6, 1.43e-6)
"""Least device time of a kernel; measured: one of many small kernels in a graph, and one of 6144 that wait for each other (8.80 ms)."""
ROUND = Band(1.55e-6, 4.8e-6)
"""A wait for other programs; measured: barrier and exchange of a 16 x 256 row alone, and the whole step of a recurrent kernel."""
L2_BYTES_PER_CLOCK = Band(64.0, 32.0)
"""Bytes per clock that one processor takes from the L2 cache (assumed; the vendor's figure is 64)."""
FMA_EFFICIENCY = Band(0.6, 0.25)
"""Share of the fp32 peak that a kernel reaches (assumed)."""
MMA_EFFICIENCY = Band(0.7, 0.2)
"""Share of the tensor cores' peak that a kernel reaches (assumed)."""
SPILL_BYTES_PER_CLOCK = 128.0
"""Bytes per clock of local memory that one processor moves (vendor's figure for the L1 cache)."""
_WARP = 32
"""Threads of a warp."""


@dataclass(frozen=True)
class LatencyEstimate:
    """A band in milliseconds; it only ranks, under one formula."""

    low_ms: float
    high_ms: float
    ms: float
    """Geometric middle of the band."""
    parts: dict[str, float] = field(default_factory=dict)
    """Geometric middles of what the total is made of: `host`, `device`, and of the device `floor`, `rounds`, `work`."""


@dataclass(frozen=True)
class _Launch:
    """What the formula needs of one kind of launch; `count` equal ones."""

    count: float
    call: Band
    launches: float = 1.0
    chain: float = 1.0
    rounds: float = 0.0
    bytes: float = 0.0
    flops: float = 0.0
    programs: int | None = None
    """None: as many as the card has processors."""
    tensor_cores: bool = False
    half: bool = False
    """Whether what the tensor cores multiply has 16 bits."""
    spilled: float = 0.0
    """Bytes that one program moves to and from local memory."""


def estimate_candidate(
    hardware: Hardware,
    kernels: Sequence[KernelFacts],
    torch_ops: Mapping[str, int],
    torch_flops: float,
    torch_bytes: float,
    torch_launches: int | None = None,
    torch_half: bool = False,
    *,
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
        in_graph: replayed from a CUDA graph instead of launched one by one.
    """
    launches = [_describe_launch(kernel) for kernel in kernels]
    calls = sum(torch_ops.values())
    if calls:
        each = max(1.0, (torch_launches or calls) / calls)
        launches.append(
            _Launch(
                calls, TORCH_CALL, each, each, bytes=torch_bytes / calls, flops=torch_flops / calls,
                tensor_cores=torch_half, half=torch_half,
            )
        )  # fmt: skip
    return _estimate(hardware, launches, in_graph)


def estimate_trace(hardware: Hardware, ops: Sequence[OperatorCost], in_graph: bool = False) -> LatencyEstimate:
    """Estimate of the reference from its operator trace, by the same formula."""
    launches = [
        _Launch(
            1, TORCH_CALL, op.launches, op.launches if op.chain is None else op.chain, bytes=op.bytes, flops=op.flops,
            tensor_cores=op.half, half=op.half,
        )
        for op in ops
    ]  # fmt: skip
    return _estimate(hardware, launches, in_graph)


def estimate_calls(facts: LaunchFacts) -> float:
    """Milliseconds of host time for a forward's launches and operators, one by one from Python; no estimate of them is lower."""
    library = facts.launches_per_forward - facts.triton_launches
    calls = sum(facts.library_calls.values())
    launches = [_Launch(facts.triton_launches, TRITON_CALL)]
    if calls:
        launches.append(_Launch(calls, TORCH_CALL, max(1.0, library / calls)))
    return math.sqrt(_host(launches, pessimistic=False) * _host(launches, pessimistic=True)) * 1e3


def _describe_launch(kernel: KernelFacts) -> _Launch:
    rounds = kernel.sync_rounds or 0
    threads = max(1, kernel.num_warps) * _WARP
    return _Launch(
        count=kernel.launches,
        call=TRITON_CALL,
        rounds=rounds,
        bytes=(kernel.bytes_loaded or 0.0) + (kernel.bytes_stored or 0.0),
        flops=kernel.flops or 0.0,
        programs=math.prod(kernel.grid),
        tensor_cores=bool(kernel.tensor_cores),
        half=kernel.product in ("fp16", "bf16"),
        # what a kernel spills it writes and reads at least once per wait: the loop that waits holds the values
        spilled=2.0 * (kernel.spills or 0) * threads * max(1, rounds),
    )


def _estimate(hardware: Hardware, launches: Sequence[_Launch], in_graph: bool) -> LatencyEstimate:
    low, high = (_total(hardware, launches, in_graph, pessimistic) for pessimistic in (False, True))
    middle = {name: math.sqrt(low[name] * high[name]) * 1e3 for name in low}
    return LatencyEstimate(low["total"] * 1e3, high["total"] * 1e3, middle.pop("total"), middle)


def _total(hardware: Hardware, launches: Sequence[_Launch], in_graph: bool, pessimistic: bool) -> dict[str, float]:
    host = _host(launches, pessimistic)
    floor = sum(launch.count * launch.chain for launch in launches) * FLOOR.at(pessimistic)
    rounds = sum(launch.count * launch.rounds for launch in launches) * ROUND.at(pessimistic)
    work = sum(launch.count * _work(hardware, launch, pessimistic) for launch in launches)
    device = floor + rounds + work
    if in_graph:
        host = GRAPH_REPLAY.at(pessimistic)
    total = host + device if in_graph else max(host, device)
    return {"total": total, "host": host, "device": device, "floor": floor, "rounds": rounds, "work": work}


def _host(launches: Sequence[_Launch], pessimistic: bool) -> float:
    """Seconds of host time, launched one by one."""
    inner = INNER_CALL.at(pessimistic)
    return sum(launch.count * (launch.call.at(pessimistic) + (launch.launches - 1) * inner) for launch in launches)


def _work(hardware: Hardware, launch: _Launch, pessimistic: bool) -> float:
    """Seconds that one launch needs for moving bytes and for arithmetic, whichever is longer, and for spills."""
    programs = launch.programs if launch.programs is not None else hardware.processors
    used = max(1, min(programs, hardware.processors))
    bandwidth = min(hardware.bandwidth, used * L2_BYTES_PER_CLOCK.at(pessimistic) * hardware.clock_hz)
    matrix = hardware.fp16 if launch.half else hardware.tf32
    peak, efficiency = (matrix, MMA_EFFICIENCY) if launch.tensor_cores else (hardware.fp32, FMA_EFFICIENCY)
    rate = peak * used / hardware.processors * efficiency.at(pessimistic)
    spill = launch.spilled * math.ceil(programs / used) / (SPILL_BYTES_PER_CLOCK * hardware.clock_hz)
    return max(launch.bytes / bandwidth, launch.flops / rate) + spill
