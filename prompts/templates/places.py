"""Where the failing element of a result lies, in words for a repair: an edge, the last partial tile, a tie."""

from __future__ import annotations

from collections.abc import Sequence

from tritonsmith.evaluator.schema import Correctness, LaunchFacts, TensorSpec

_TILES = (128, 64, 32)
"""Tile sizes that are tried where the kernel's own are not known."""
_WHOLE = ("int", "uint", "bool")


def describe_place(correctness: Correctness, outputs: Sequence[TensorSpec], facts: LaunchFacts) -> str:
    """One sentence about the worst element, empty where nobody knows it: index, values, and what kind of place it is."""
    index = correctness.worst_index
    spec = next((spec for spec in outputs if _holds(spec, index)), None)
    if not index or spec is None:
        return ""
    values = ""
    if correctness.worst_expected is not None and correctness.worst_actual is not None:
        values = f" (expected {correctness.worst_expected:.6g}, got {correctness.worst_actual:.6g})"
    known = {value for kernel in facts.kernels for value in kernel.constexprs.values() if isinstance(value, int) and _is_tile(value)}
    tiles = sorted(known, reverse=True) or _TILES
    kinds = [_describe_axis(axis, at, size, tiles) for axis, (at, size) in enumerate(zip(index, spec.shape, strict=True))]
    kinds = [kind for kind in kinds if kind] or ["inside, at no edge"]
    if _is_tie(spec, correctness):
        kinds.append("a whole number that is off by one: compare roundings in between and how halves are rounded")
    return f"The worst element is at {list(index)} of {list(spec.shape)}{values}: {'; '.join(kinds)}."


def _holds(spec: TensorSpec, index: tuple[int, ...]) -> bool:
    return len(spec.shape) == len(index) and all(at < size for at, size in zip(index, spec.shape, strict=True))


def _is_tile(value: int) -> bool:
    return 16 <= value <= 4096 and value & (value - 1) == 0


def _describe_axis(axis: int, at: int, size: int, tiles: Sequence[int]) -> str:
    """What is special about a place along one axis; empty for nothing."""
    if size == 1:
        return ""
    if at in (0, size - 1):
        return f"the {'last' if at else 'first'} along axis {axis}"
    for tile in tiles:
        if tile < size and size % tile and at >= size // tile * tile:
            return f"in the last, partial tile of {tile} along axis {axis}"
    return ""


def _is_tie(spec: TensorSpec, correctness: Correctness) -> bool:
    expected, actual = correctness.worst_expected, correctness.worst_actual
    return spec.dtype.startswith(_WHOLE) and expected is not None and actual is not None and abs(expected - actual) == 1
