"""Runs the programs of a launch at the same time: stub of the interface, body follows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from tritonsmith.evaluator.interp_counts import LaunchCount


class KernelFault(Exception):
    """A kernel did something that no GPU would let pass; the message is one sentence with kernel, line and program."""


class DeadlockError(KernelFault):
    """Every resident program waits for memory that nobody will change."""


class OutOfBoundsError(KernelFault):
    """An access outside the tensors of the launch."""


class KernelError(KernelFault):
    """Any other exception raised inside a kernel."""


@dataclass
class Session:
    """What happened while it was active."""

    launches: list[LaunchCount] = field(default_factory=list)
    faults: list[KernelFault] = field(default_factory=list)
    """Every fault raised, also those that the candidate's own code caught."""


@contextmanager
def session(
    order: Literal["round_robin", "shuffled"], seed: int, detect_races: bool = True, resident: dict[str, int] | None = None
) -> Iterator[Session]:
    """Run every Triton launch inside under this schedule; `resident` bounds the programs in flight per kernel name."""
    raise NotImplementedError
    yield Session()
