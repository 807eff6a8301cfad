"""What one operator of the reference costs; shared by the trace, the probe and the estimate. No torch."""

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
