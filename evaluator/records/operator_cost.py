"""What one operator of a reference does, as the probe counts it, and how the probe finds operators."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_ATTENTION = ("query", "key", "value")
"""The first arguments of an attention."""


class TraceWay(StrEnum):
    """How the operators of a reference's forward were found."""

    FX = "fx"
    """torch.fx followed the code without sizes or values, so the nodes hold for other sizes too."""
    RUN = "run"
    """The calls of one forward were recorded, so loops are unrolled and branches are those that it took."""


def align_heads(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """An operator's arguments for PyTorch's count of operations, which asks for as many heads of keys as of queries.

    Where an attention has fewer (grouped heads), shapes stand for keys and values, as if each query's head had its own.
    """
    if "scaled_dot_product" not in name or len(args) < len(_ATTENTION) or len(args[0].shape) < len(_ATTENTION):
        return args
    query, *given = args[: len(_ATTENTION)]
    heads = query.shape[-3]
    seen = (one if one.shape[-3] == heads else (*one.shape[:-3], heads, *one.shape[-2:]) for one in given)
    return (query, *seen, *args[len(_ATTENTION) :])


@dataclass(frozen=True)
class OperatorCost:
    """One operator of the reference's eager forward."""

    name: str
    launches: int = 1
    """Device kernels that one call starts."""
    flops: float = 0.0
    bytes: float = 0.0
    """Operands and results, each moved once per launch that reads it."""
    half: bool = False
    """Whether it multiplies 16-bit matrices, which tensor cores do at their full rate."""
    chain: int | None = None
    """Longest chain of launches that wait for each other; all of them when None."""
