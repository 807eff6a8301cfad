"""Records about limits: how far a time is from its floor, and what counters say of the kernels. Percentages are from 0 to 100."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from tritonsmith.evaluator.records.plain import Record

_BEYOND = 1.05
"""Share from which on a kernel is called faster than its floor; below, clocks and caches explain it."""


class Limit(StrEnum):
    """What a forward cannot do without."""

    BYTES = "bytes"
    """Inputs, parameters and outputs, each moved once."""
    OPERATIONS = "operations"
    LAUNCHES = "launches"
    """One launch: a forward needs no more."""
    CHAIN = "serial chain"
    """Recurrent steps that wait for each other."""


class FloorShare(Record):
    """The least time of a task on a card, what sets it, and how near a kernel is."""

    limit: Limit
    """The largest of the lower bounds."""
    ms: float
    share: float
    """Floor over time, of the same kind (measured or estimated): 1.0 is a kernel at its floor."""
    parts: dict[str, float] = Field(default_factory=dict)
    """Every lower bound in milliseconds."""

    @property
    def words(self) -> str:
        """`62 % of its floor (0.0123 ms by bytes)`; beyond it, that the bound does not hold."""
        if self.share > _BEYOND:
            return f"faster than its floor ({self.ms:.3g} ms by {self.limit.value}): that bound does not hold for it"
        return f"{self.share:.0%} of its floor ({self.ms:.3g} ms by {self.limit.value})".replace("%", " %", 1)


def _sort(table: Mapping[str, float]) -> list[tuple[str, float]]:
    """The largest first, whatever order a table was stored in: equal figures make equal prompts."""
    return sorted(table.items(), key=lambda row: (-row[1], row[0]))


class KernelCounters(Record):
    """What is known of one kernel's work on the card; None where nobody knows."""

    name: str
    launches: int = 1
    grid: int | None = None
    """Programs."""
    sm_throughput: float | None = None
    """Percent of the processors' peak throughput."""
    active_warps: float | None = None
    """Percent of the warps that processors can hold."""
    dram_throughput: float | None = None
    """Percent of the memory's peak throughput."""
    l2_hit_rate: float | None = None
    """Percent of the L2 cache's sectors that were there."""
    memory_stalls: float | None = None
    """Percent of all stalls in which warps wait for memory."""
    stalls: dict[str, float] = Field(default_factory=dict)
    """The most frequent reasons why warps wait, in percent of all stalls."""
    instructions: dict[str, int] = Field(default_factory=dict)
    """Instructions of the compiled text by kind."""
    ms: float | None = None
    """Milliseconds of all its launches, by which kernels are weighted; under the profiler where the profiler counted."""


    @property
    def words(self) -> str:
        """Its figures in one line; empty where nobody knows any."""
        named = {
            "sm throughput": self.sm_throughput, "active warps": self.active_warps, "dram throughput": self.dram_throughput,
            "L2 hit rate": self.l2_hit_rate, "memory stalls": self.memory_stalls,
        }  # fmt: skip
        parts = [f"{name} {value:.1f} %" for name, value in named.items() if value is not None]
        parts += [f"stalled by {', '.join(f'{name} {value:.0f} %' for name, value in _sort(self.stalls))}"] if self.stalls else []
        most = _sort(self.instructions)[:5]
        parts += [f"instructions in its text: {', '.join(f'{name} {count}' for name, count in most)}"] if most else []
        return "; ".join(parts)


class Counters(Record):
    """Evidence about a candidate's kernels: from Nsight Compute, else from compiling and counting."""

    source: str
    """`ncu` or `compiled`."""
    reason: str = ""
    """Why Nsight Compute did not count, as a sentence."""
    kernels: tuple[KernelCounters, ...] = ()
    bandwidth_share: float | None = None
    """Percent of the card's memory bandwidth that the least bytes of the candidate's kernels need in its time."""
    operations_share: float | None = None
    """Percent of the card's rate for the arithmetic used that the task's operations need in its time."""

    def mean(self, name: str) -> float | None:
        """A figure over all kernels, weighted by their time where it is known; None where no kernel has it."""
        rows = [(value, kernel.ms) for kernel in self.kernels if (value := getattr(kernel, name)) is not None]
        weights = [ms for _, ms in rows if ms is not None]
        if len(weights) < len(rows) or not sum(weights):
            weights = [float(kernel.launches) for kernel in self.kernels if getattr(kernel, name) is not None]
        total = sum(weights)
        return sum(float(value) * weight for (value, _), weight in zip(rows, weights, strict=True)) / total if total else None


class LineFacts(Record):
    """What one line of a kernel did to memory in a forward that the interpreter ran."""

    line: int
    kind: str
    """`load`, `store` or `atomic`."""
    most: int
    """Times that one program came by, at most over the programs: iterations of the loops around the line."""
    programs: int
    """Programs that came by."""
    foreign: int = 0
    """Loads of what another program of the launch had written."""
