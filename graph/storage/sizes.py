"""What is known of the best kernel at each size that a task declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tritonsmith.evaluator.schema import Record, SizeScore, SizeValue, Task, Timing, TimingKind, Verdict
from tritonsmith.evaluator.tasks.files import declared_shapes, find_value
from tritonsmith.graph.storage.outcome import digits, name_baseline

_AUDIT = "other sizes"
"""Name of the audit that calls a kernel at sizes which it was not written for."""


class SizeRow(Record):
    """One size, or a range of sizes."""

    size: str
    """Names with their values: `batch = 1 to 64, length = 128`."""
    proof: str = ""
    """Where the kernel was found right; empty where nothing was tried."""
    score: float | None = None
    """Against the strongest baseline; None where no time was taken."""
    baseline: str = ""
    """Name of that baseline."""
    ratios: dict[str, float] = Field(default_factory=dict)
    """Score against each baseline by its name, `eager` and `compile` at the least where a card measured."""
    median_ms: float | None = None
    """Milliseconds of a forward; at the size that was drawn for a range."""
    kind: str = ""
    """`measured` or `estimated`; empty without a score."""
    comparison: str = ""
    """`faster`, `same`, `slower` or `ambiguous` against the strongest baseline; empty without a score."""
    note: str = ""
    """A sentence about it: the kernel is slower there, or why no time was taken."""

    @property
    def words(self) -> str:
        """The score as a table has it: `1.31x torch.compile, 1.52x eager`, with `ESTIMATE` or SLOWER where it is so; a dash without one."""
        if self.score is None:
            return "-"
        told = f"{digits(self.score)}x {name_baseline(self.baseline)}"
        if "eager" in self.ratios and self.baseline != "eager":
            told += f", {digits(self.ratios['eager'])}x eager"
        return told + (" ESTIMATE" if self.kind == TimingKind.ESTIMATED.value else "") + (", SLOWER" if self.comparison == "slower" else "")


def list_sizes(task: Task, verdict: Verdict | None) -> tuple[SizeRow, ...]:
    """The task's own size and those that it declares; none for a task of one size.

    Args:
        task: as it is judged.
        verdict: of the best kernel; None without one.
    """
    declared = declared_shapes(task)
    if not declared or verdict is None:
        return ()
    names = dict.fromkeys(name for shape in declared for name in shape)
    own = {name: value for name in names if (value := find_value(task, name)) is not ...}
    rows = [SizeRow(size=write_sizes(own) or "the size of the file", proof="right, on all kinds of inputs", **_read_times(verdict.timing))]
    found = str(verdict.environment.get("audit", {}).get(_AUDIT, ""))
    count = found.removeprefix("right at ").removesuffix(" of them")
    proof = f"right at {count} of these {len(declared)}, drawn by the judge" if found else ""
    if count == str(len(declared)):
        proof = "right at a size that the judge drew"
    drawn = {size.entry: size for size in verdict.sizes}
    return (*rows, *(_make_row(shape, drawn.get(number), proof) for number, shape in enumerate(declared)))


def _make_row(shape: Mapping[str, Any], drawn: SizeScore | None, proof: str) -> SizeRow:
    if drawn is None:
        return SizeRow(size=write_sizes(shape), proof=proof)
    ranged = any(isinstance(value, tuple) for value in shape.values())
    proof = f"right at {write_sizes(drawn.sizes)}, drawn by the judge" if ranged else "right"
    return SizeRow(size=write_sizes(shape), proof=proof, note=describe_slow(drawn, shape) or drawn.note, **_read_times(drawn.timing))


def describe_slow(drawn: SizeScore, shape: Mapping[str, Any]) -> str:
    """A sentence about a size at which the kernel is slower than a baseline, and which of the two a drop-in runs there; else empty."""
    timing = drawn.timing
    if timing is None or timing.score >= 1.0:
        return ""
    certain = "SLOWER than" if timing.comparison and timing.comparison.value == "slower" else "not measured as fast as"
    told = f"at {write_sizes(drawn.sizes)} the kernel is {certain} {name_baseline(timing.baseline)} ({digits(timing.score)}x)"
    if is_left_to_original(drawn, shape):
        return f"{told}; a drop-in runs the original there"
    where = "in all of the range" if any(isinstance(value, tuple) for value in shape.values()) else "there"
    return f"{told}; a drop-in runs the kernel {where}"


def is_left_to_original(drawn: SizeScore, shape: Mapping[str, Any]) -> bool:
    """Whether a drop-in runs the original at an entry of SHAPES: a single size at which the kernel is slower than the module as called.

    In a range nobody knows where the kernel begins to be slower, so a range stays the kernel's.
    """
    return drawn.is_slower and not any(isinstance(value, tuple) for value in shape.values())


def _read_times(timing: Timing | None) -> dict[str, Any]:
    if timing is None:
        return {}
    return {
        "score": timing.score, "baseline": timing.baseline, "median_ms": timing.median_ms, "kind": timing.kind.value,
        "ratios": {"eager": timing.score_eager} | timing.ratios, "comparison": timing.comparison.value if timing.comparison else "",
    }  # fmt: skip


def write_sizes(shape: Mapping[str, SizeValue | tuple[int, ...] | object]) -> str:
    """Names with values or ranges: `batch = 1 to 64, length = 128`."""
    return ", ".join(
        f"{name} = {' to '.join(map(str, value)) if isinstance(value, tuple) else value}" for name, value in shape.items()
    )
