"""What one operator of a reference does, as the probe counts it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorCost:
    """One operator of the reference's eager forward."""

    name: str
    launches: int = 1
    """Device kernels that one call starts."""
    flops: float = 0.0
    bytes: float = 0.0
    """Operands and results, each moved once per launch that reads it."""
    chain: int | None = None
    """Longest chain of launches that wait for each other; all of them when None."""
