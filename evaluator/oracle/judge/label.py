"""Who does the work of a forward: the candidate's kernels, a library, or both."""

from __future__ import annotations

from tritonsmith.evaluator.schema import Label, LaunchFacts

_KERNEL_SHARE = 0.9
"""Share of the time in the candidate's own kernels from which on they do the work."""
_LIBRARY_SHARE = 0.05
"""Share up to which a library does it."""
_FORWARDS_WITH_BACKWARD = 4.0
"""Forwards that take as long as forward, the same again, and gradients: each product has two products of its size as gradients."""


def choose_label(facts: LaunchFacts, *, backward: bool = False) -> Label:
    """Who does the work, by the share of (device) time in the candidate's own kernels.

    Where forward and backward are judged together, a backward of PyTorch's operators is a right answer. It runs forward again, and its
    gradients take about two forwards more. So the same share of forward is a quarter of it there.
    """
    share = facts.own_time_share if facts.own_time_share is not None else (1.0 if facts.triton_launches else 0.0)
    least = _LIBRARY_SHARE / _FORWARDS_WITH_BACKWARD if backward else _LIBRARY_SHARE
    if not facts.triton_launches or share <= least:
        return Label.LIBRARY
    return Label.KERNEL if share >= _KERNEL_SHARE else Label.HYBRID
