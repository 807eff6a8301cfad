"""How long a verdict takes in Triton's interpreter, from what the reference's operators do. No torch, no candidate.

A kernel is not known yet, so a plain one is assumed: one launch per operator, blocks of 1024 values, products in tiles of 32 x 64 x 32.
The interpreter pays for each operation of each program, and a little for each value that is loaded or stored.

The constants were measured on two cores of an x86 server that had other work as well (Python 3.11, Triton's interpreter with our race
detector; a copy, GELU, softmax over rows and a tiled product, 16 to 1024 programs): 35 to 80 us per operation of a program, 60 to 140 ns
per value. Quick verdicts took, beyond what a tiny size takes: 14 to 20 s for a GELU of 1.6 million values (predicted: 13 s), 9 s for a
softmax of 2048 rows of 512 (9 s), 58 s for a product of 512 x 512 x 512 in tiles of 32 x 32 x 32 (19 s). An idle machine is faster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.schema import Task

REACH_SECONDS = 240.0
"""The longest predicted verdict that is begun: a call may take 120 s, and measured ones took up to three times their prediction."""

_CALLS = 6
"""Forwards of a quick verdict in the interpreter: three calls, a replay, and what the compiler and the counts take next to them."""
_OPERATION_SECONDS = 50e-6
"""One operation of `triton.language` in one program."""
_VALUE_SECONDS = 100e-9
"""One value that is loaded or stored."""
_OPERATIONS = 24
"""Operations of a program, or of one step of a product: addresses, masks, loads, arithmetic, stores."""
_BLOCK = 1024
"""Values of one block."""
_STEP_FLOPS = 2 * 32 * 64 * 32
"""Of one step of a product."""
_STEP_VALUES = 32 * 32 + 32 * 64
"""Values that one step of a product loads."""
_VALUE_BYTES = 4
"""Most tasks hold float32."""


class Costly(Protocol):
    """What an operator does: an `OperatorCost`, or a node of a trace."""

    @property
    def flops(self) -> float:
        """Floating-point operations."""
        ...

    @property
    def bytes(self) -> float:
        """What it moves."""
        ...

    @property
    def launches(self) -> int:
        """Kernels of PyTorch."""
        ...


def predict_seconds(trace: Iterable[Costly]) -> float:
    """Seconds that one quick verdict spends in the interpreter, for a kernel that is written plainly."""
    return _CALLS * sum(map(_predict_operator, trace))


def require_reach(task: Task, trace: Iterable[Costly]) -> None:
    """Raises TaskError where no kernel of the task can be judged in the interpreter at this size; one sentence for the user."""
    seconds = predict_seconds(trace)
    if seconds <= REACH_SECONDS:
        return
    where = {"full": "at full size", "small": "at its small size"}.get(task.size, "at these sizes")
    way_out = "set smaller ones with --set NAME=VALUE" if task.size != "full" else "use --size small, or set sizes with --set NAME=VALUE"
    takes = f"a verdict takes {say_seconds(seconds)} without a card, beyond the interpreter's reach"
    raise TaskError(f"{task.path}: {where} {takes}; {way_out}")


def say_seconds(seconds: float) -> str:
    """`about 5 s`, `about 3 min`, `about 41 h`."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"about {seconds / length:,.0f} {unit}"
    return f"about {max(1.0, seconds):.0f} s"


def _predict_operator(cost: Costly) -> float:
    """Seconds of one forward of one operator; what computes more than it moves is a product."""
    moved = cost.bytes / _VALUE_BYTES
    steps = cost.flops / _STEP_FLOPS if cost.flops > moved else moved / (2 * _BLOCK)
    loaded = steps * _STEP_VALUES if cost.flops > moved else 0.0
    return max(cost.launches, steps) * _OPERATIONS * _OPERATION_SECONDS + (moved + loaded) * _VALUE_SECONDS
