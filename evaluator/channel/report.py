"""What a process that interprets or compiles a forward reports about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

MOST_LINES = 64
"""Lines of one kernel that a report counts accesses of."""
Constexpr = int | float | bool | str | None


@dataclass(frozen=True)
class LineCount:
    """What one line of a kernel did to memory in one launch."""

    line: int
    kind: str
    """`load`, `store` or `atomic`."""
    most: int
    """Times that one program came by, at most over the programs: iterations of the loops around the line."""
    programs: int
    """Programs that came by."""
    foreign: int = 0
    """Loads of what another program of the launch had written."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LineCount:
        """The inverse of asdict; what is no number raises ValueError or TypeError."""
        numbers = (int(values[name]) for name in ("most", "programs", "foreign"))
        return cls(int(values["line"]), str(values["kind"])[:8], *numbers)


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
    lines: tuple[LineCount, ...] = ()
    """The lines of the kernel's file that touch memory, in order, the first `MOST_LINES` of them."""
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
    def from_dict(cls, values: Mapping[str, Any]) -> LaunchCount:
        """The inverse of as_dict, also after a round trip through JSON; missing counts are zero, unknown keys ignored."""
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        lines = tuple(LineCount.from_dict(line) for line in tuple(values.get("lines", ()))[:MOST_LINES])
        return cls(**known | {"grid": tuple(values["grid"]), "races": tuple(values.get("races", ())), "lines": lines})


class OperatorCounter(Protocol):
    """What has counted the torch operators of a forward."""

    ops: Counter[str]
    launches: int
    flops: float
    bytes: float


_MOST_OUTPUTS = 20
"""Numbers of outputs that are kept."""


def read_copied(values: Mapping[str, Any]) -> tuple[int, ...]:
    """Numbers of the outputs that a runner copied into another memory layout. Raises TypeError or ValueError for a report without sense."""
    return tuple(int(number) for number in list(values.get("copied", ()))[:_MOST_OUTPUTS])


@dataclass(frozen=True)
class ForwardReport:
    """Torch operators of one forward that would run as library kernels, as one process saw them.

    The names of the fields are the keys of a report in JSON.
    """

    torch_ops: dict[str, int]
    """Calls by the operator's name."""
    torch_launches: int
    """Kernels that they start."""
    torch_flops: float
    """Their floating-point operations."""
    torch_bytes: float
    """Bytes of their operands and results."""

    @classmethod
    def from_counter(cls, counter: OperatorCounter, most_kinds: int | None = None) -> ForwardReport:
        """What was counted; of so many kinds of operators only, the most frequent ones, so that the report stays small."""
        ops = dict(counter.ops) if most_kinds is None else dict(counter.ops.most_common(most_kinds))
        return cls(ops, counter.launches, counter.flops, counter.bytes)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ForwardReport:
        """From the report of a process; what is missing is nothing. Raises TypeError, ValueError or OverflowError."""
        ops = {str(name): int(count) for name, count in dict(values.get("torch_ops", {})).items()}
        return cls(
            ops, int(values.get("torch_launches", 0)), float(values.get("torch_flops", 0)), float(values.get("torch_bytes", 0))
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a report in JSON."""
        return asdict(self)

    def __or__(self, other: ForwardReport) -> ForwardReport:
        """The larger of two views, kind by kind."""
        return ForwardReport(
            dict(Counter(self.torch_ops) | Counter(other.torch_ops)),
            max(self.torch_launches, other.torch_launches),
            max(self.torch_flops, other.torch_flops),
            max(self.torch_bytes, other.torch_bytes),
        )


FINISHED = "the candidate came to its end"
"""What a candidate under compute-sanitizer prints last."""
QUESTION = "question.json"
"""The file that says which candidate to run to a process that waits under compute-sanitizer."""


def fold_launches(launches: list[Any]) -> list[dict[str, Any]]:
    """One representative of equal launches (kernel, grid, constants): thousands of per-step launches must fit into one report."""
    folded: dict[str, dict[str, Any]] = {}
    for launch in launches:
        key = repr((launch.name, launch.grid, sorted(launch.constexprs.items(), key=str)))
        if key in folded:
            folded[key]["count"] += 1
        else:
            folded[key] = launch.as_dict() | {"races": ()}
    return list(folded.values())[:100]
