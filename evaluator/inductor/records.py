"""What the parts of the generator share. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

ATTENTION = "torch.ops.tritonsmith.attention.default"
"""The name of attention's operator in Inductor's text."""

Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides, in elements."""


class NoSeedError(Exception):
    """There is no self-contained text; the message is one sentence without its end that says which piece is missing."""


@dataclass(frozen=True)
class PlainKernel:
    """One of Inductor's kernels as a function of plain Triton."""

    name: str
    text: str
    """The function with its decorator, and before it the functions that only it calls."""
    parameters: tuple[str, ...]
    """Those that are passed, in order: tensors first, without sizes that the body sets itself and without constants."""
    left_out: tuple[int, ...]
    """Places of Inductor's own arguments that are no longer passed."""
    grid: str
    """The grid as Python writes it."""
    constants: tuple[tuple[str, int], ...]
    """Block sizes by name."""
    warps: int
    stages: int
    helpers: frozenset[str]
    """Names of Inductor's own functions that the text calls."""


_LINE = 140
"""Characters of a line, at most."""


def wrap_call(start: str, parts: Sequence[str], end: str, indent: str = "") -> list[str]:
    """A call or the head of a function on one line, or on as many as it needs."""
    whole = f"{indent}{start}{', '.join(parts)}{end}"
    if len(whole) <= _LINE:
        return [whole]
    lines, line = [f"{indent}{start}"], f"{indent}    "
    for part in parts:
        if len(line) + len(part) + 2 > _LINE and line.strip():
            lines.append(line.rstrip())
            line = f"{indent}    "
        line += f"{part}, "
    return [*lines, line.rstrip(), f"{indent}{end}"]


def count_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
