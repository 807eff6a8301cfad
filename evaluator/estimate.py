"""Latency estimate: stub of the interface, body follows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonsmith.evaluator.schema import Hardware, KernelFacts


@dataclass(frozen=True)
class OperatorCost:
    """One operator of the reference's trace."""

    name: str
    launches: int = 1
    """Device kernels that one call starts."""
    flops: float = 0.0
    bytes: float = 0.0
    """Operands and results, each moved once."""
    chain: int | None = None
    """Longest chain of launches that wait for each other; all of them when None."""


@dataclass(frozen=True)
class Estimate:
    """A band, not a measurement: it only ranks candidates under one formula."""

    low_ms: float
    high_ms: float
    ms: float
    """Geometric middle of the band."""
    parts: dict[str, float] = field(default_factory=dict)
    """Middle values in milliseconds of what adds up: `host`, `device`, `floor`, `sync`, `memory`, `arithmetic`."""


def estimate_candidate(
    hardware: Hardware,
    kernels: Sequence[KernelFacts],
    torch_ops: Mapping[str, int],
    torch_flops: float,
    torch_bytes: float,
    in_graph: bool = False,
    torch_launches: int | None = None,
) -> Estimate:
    """Estimate of one forward from compile facts and the interpreter's counts (see interp_counts.merge)."""
    raise NotImplementedError


def estimate_trace(hardware: Hardware, ops: Sequence[OperatorCost], in_graph: bool = False) -> Estimate:
    """Estimate of the reference from its operator trace, by the same formula."""
    raise NotImplementedError
