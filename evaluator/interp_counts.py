"""What one interpreted launch did, and how those counts fill the facts of the compiled kernel. Imports neither torch nor Triton."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tritonsmith.evaluator.schema import KernelFacts

Constexpr = int | float | bool | str | None


@dataclass(frozen=True)
class LaunchCount:
    """One launch of one kernel as the interpreter ran it; bytes are those of unmasked lanes."""

    name: str
    grid: tuple[int, int, int]
    constexprs: dict[str, Constexpr] = field(default_factory=dict)
    bytes_loaded: int = 0
    """Summed over programs: traffic between processors and the L2 cache, not device memory."""
    bytes_stored: int = 0
    unique_bytes: int = 0
    """Distinct bytes read or written: the traffic a perfect cache would leave."""
    dot_flops: dict[str, int] = field(default_factory=dict)
    """By kind of product: `ieee`, `tf32`, `tf32x3`, `fp16`, `bf16`, `fp8`, ... (padding included)."""
    flops: int = 0
    """Elementwise floating-point operations."""
    atomics: int = 0
    sync_rounds: int = 0
    """Times a program waits for another one between two publications of its own, at most over the programs."""
    races: tuple[str, ...] = ()
    """One sentence per pair of source lines that access one element in no defined order."""
    count: int = 1
    """Equal launches that this record stands for."""

    @property
    def total_flops(self) -> int:
        """Products and elementwise operations together."""
        return self.flops + sum(self.dot_flops.values())

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a report in JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "LaunchCount":
        """The inverse of as_dict, also after a round trip through JSON; missing counts are zero, unknown keys ignored."""
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        return cls(**known | {"grid": tuple(values["grid"]), "races": tuple(values.get("races", ()))})


def merge(kernels: Sequence[KernelFacts], launches: Sequence[LaunchCount]) -> list[KernelFacts]:
    """Facts of compiled kernels with bytes, FLOPs and sync rounds per launch (mean over launches of the same name and grid).

    Launches that agree in constexprs too are preferred. A kernel the interpreter never saw keeps its empty counts.
    """
    by_grid: dict[tuple[str, tuple[int, int, int]], list[LaunchCount]] = defaultdict(list)
    for launch in launches:
        by_grid[launch.name, launch.grid].append(launch)
    return [_filled(kernel, by_grid.get((kernel.name, kernel.grid), [])) for kernel in kernels]


def _filled(kernel: KernelFacts, launches: list[LaunchCount]) -> KernelFacts:
    same = [x for x in launches if all(kernel.constexprs.get(name, value) == value for name, value in x.constexprs.items())]
    chosen = same or launches
    if not chosen:
        return kernel
    count = sum(x.count for x in chosen)
    return kernel.model_copy(
        update={
            "bytes_loaded": sum(x.bytes_loaded * x.count for x in chosen) / count,
            "bytes_stored": sum(x.bytes_stored * x.count for x in chosen) / count,
            "flops": sum(x.total_flops * x.count for x in chosen) / count,
            "sync_rounds": max(x.sync_rounds for x in chosen),
        }
    )
