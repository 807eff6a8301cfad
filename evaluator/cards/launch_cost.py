"""What a launch costs: the one place for these figures. Prompts, analyses, recipes, estimates and detection read them here.

Measured on an H200's host (torch 2.11, triton 3.6). A launch as called costs the host's time, which the card waits for only where it has
nothing else to do. A timed forward is queued while the card is held (`HOLD`), so a few launches cost no more there than inside a graph.
"""

from __future__ import annotations

LAUNCH_AS_CALLED = 9.5e-6
"""Host seconds of a Triton launch from Python: 7.6 with 1 argument, 11.8 with 16; the geometric middle."""
LAUNCH_IN_GRAPH = 1.06e-6
"""Seconds of a kernel that does next to nothing, in a row of kernels: 6.55 ms for 6150 kernels of cuDNN's GRU inside a CUDA graph."""
OPERATOR_AS_CALLED = 7.8e-6
"""Host seconds of an operator of PyTorch from Python: 5.1 for add_, 11.8 for a small matmul; the geometric middle."""
OPERATOR_INSIDE = 6.3e-6
"""Host seconds of each further kernel inside one call of a library: cuDNN's GRU takes 25 to 45 ms for 6144 of them."""
HOLD = 0.5e-3
"""Seconds that a forward has to be queued before it starts."""


def count_host_seconds(own: float, library: float = 0.0) -> float:
    """Seconds of the host for so many Triton launches and operators of PyTorch, as called."""
    return own * LAUNCH_AS_CALLED + library * OPERATOR_AS_CALLED


def count_launch_seconds(own: float, library: float = 0.0, *, in_graph: bool = False) -> float:
    """Seconds that a timed forward's launches take if they do nothing; no time of as many launches is lower.

    Args:
        own: Triton launches.
        library: operators of PyTorch.
        in_graph: whether one replay of a CUDA graph starts all of them.
    """
    return max((own + library) * LAUNCH_IN_GRAPH, 0.0 if in_graph else count_host_seconds(own, library) - HOLD)
