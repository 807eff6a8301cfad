"""What is known of the best kernel at each size that a task declares."""

from __future__ import annotations

from typing import Any

from tritonsmith.evaluator.schema import Record, Task, Verdict
from tritonsmith.evaluator.tasks.files import declared_shapes, find_value

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
    own = ", ".join(f"{name} = {value}" for name in names if (value := find_value(task, name)) is not ...)
    score = verdict.timing.score if verdict.timing else None
    rows = [SizeRow(size=own or "the size of the file", proof="right, on all kinds of inputs", score=score)]
    found = str(verdict.environment.get("audit", {}).get(_AUDIT, ""))
    count = found.removeprefix("right at ").removesuffix(" of them")
    proof = f"right at {count} of these {len(declared)}, drawn by the judge" if found else ""
    if count == str(len(declared)):
        proof = "right at a size that the judge drew"
    return (*rows, *(SizeRow(size=_write(shape), proof=proof) for shape in declared))


def _write(shape: Any) -> str:
    return ", ".join(
        f"{name} = {' to '.join(map(str, value)) if isinstance(value, tuple) else value}" for name, value in shape.items()
    )
