"""Who does the work of a forward: the candidate's kernels, a library, or both."""

from __future__ import annotations

from tritonsmith.evaluator.schema import Label, LaunchFacts

_KERNEL_SHARE = 0.9
"""Share of the time in the candidate's own kernels from which on they do the work."""
_LIBRARY_SHARE = 0.05
"""Share up to which a library does it."""


def choose_label(facts: LaunchFacts, *, backward: bool = False) -> Label:
    """Who does the work, by the share of (device) time in the candidate's own kernels.

    Where forward and backward are judged together, a backward of PyTorch's operators is a right answer and takes most of the time.
    So own kernels make a hybrid there, whatever their share.
    """
    share = facts.own_time_share if facts.own_time_share is not None else (1.0 if facts.triton_launches else 0.0)
    if not facts.triton_launches or (share <= _LIBRARY_SHARE and not backward):
        return Label.LIBRARY
    return Label.KERNEL if share >= _KERNEL_SHARE else Label.HYBRID
