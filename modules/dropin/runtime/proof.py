"""For what a kernel is proven, and whether a call is within that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

Extent: TypeAlias = "int | tuple[str, int, int]"
"""Length of an axis: a number, or `(name, factor, offset)` for `factor * name + offset`."""


@dataclass(frozen=True)
class TensorCase:
    """A tensor that a kernel was judged with."""

    dtype: str
    """As torch names it, without `torch.`."""
    shape: tuple[Extent, ...]
    strides: tuple[int, ...] | None = None
    """None for a tensor whose elements lie one by one in the order of its axes."""


@dataclass(frozen=True)
class Case:
    """Inputs that a kernel was judged with: one size, or a range of sizes."""

    tensors: tuple[TensorCase | None, ...]
    """For each tensor of the call; None for one that forward does not read."""
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """For each name of a size its lowest and highest value."""


@dataclass(frozen=True)
class Proof:
    """Everything that a verdict rests on."""

    cases: tuple[Case, ...]
    capability: str = ""
    """Of the card, such as `90`; empty where it does not matter."""
    training: bool = False
    """The mode that the module was judged in."""
    by_mode: tuple[str, ...] = ()
    """What of the module acts otherwise in the other mode."""
    updates: tuple[str, ...] = ()
    """Buffers that forward updates."""
    precision: str = "ieee"
    words: tuple[str, ...] = ()
    """What was proven and on what, line by line, for a person."""
    backward: bool = False
    """Whether its gradients were judged with it."""

    def covers(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether the tensors of a call are within what is proven. Compilers can follow this; shapes may be symbols."""
        return any([not _find_fault(case, tensors)[0] for case in self.cases])  # noqa: C419 - compilers follow lists

    def refuse_tensors(self, tensors: Sequence[torch.Tensor]) -> str:
        """In what the tensors of a call leave what is proven; empty where they do not."""
        if self.covers(tensors):
            return ""
        if len(self.cases) != 1:
            return f"the inputs {describe_tensors(tensors)} are none of the {len(self.cases)} sizes that the kernel is proven for"
        (case,) = self.cases
        kind, number = _find_fault(case, tensors)
        known, tensor, what = case.tensors[number], tensors[number], f"tensor {number + 1} of the call"
        assert known is not None
        if kind == "type":
            return f"{what} is {name_type(tensor.dtype)}, and the kernel is proven for {known.dtype}"
        if kind == "shape":
            return f"{what} has the shape {list(tensor.shape)}, and the kernel is proven for {_write_shape(known.shape, case.ranges)}"
        return f"{what} lies in memory in another way than the kernel is proven for"


def _find_fault(case: Case, tensors: Sequence[torch.Tensor]) -> tuple[str, int]:
    """What of which tensor is not as in a case: type, shape or layout; empty where all is."""
    sizes: dict[str, int] = {}
    for number, (known, tensor) in enumerate(zip(case.tensors, tensors)):  # noqa: B905 - compilers follow it so
        if known is None:
            continue
        if tensor.dtype is not getattr(torch, known.dtype):
            return "type", number
        if len(tensor.shape) != len(known.shape) or not _fits(known.shape, tensor.shape, sizes, case.ranges):
            return "shape", number
        if not (tensor.is_contiguous() if known.strides is None else tensor.stride() == known.strides):
            return "layout", number
    return "", 0


def _fits(
    known: Sequence[Extent],
    shape: Sequence[int],
    sizes: dict[str, int],
    ranges: Mapping[str, tuple[int, int]],
) -> bool:
    """Whether a shape is one of a case; names of sizes get their values."""
    for extent, length in zip(known, shape, strict=True):
        if isinstance(extent, int):
            if length != extent:
                return False
            continue
        name, factor, offset = extent
        if name in sizes:
            if length != factor * sizes[name] + offset:
                return False
            continue
        low, high = ranges[name]
        if length < factor * low + offset or length > factor * high + offset or (length - offset) % factor:
            return False
        sizes[name] = (length - offset) // factor
    return True


def _write_shape(shape: Sequence[Extent], ranges: Mapping[str, tuple[int, int]]) -> str:
    return f"[{', '.join(str(part) if isinstance(part, int) else _write_extent(part, ranges) for part in shape)}]"


def _write_extent(extent: tuple[str, int, int], ranges: Mapping[str, tuple[int, int]]) -> str:
    name, factor, offset = extent
    low, high = ranges[name]
    return f"{factor * low + offset} to {factor * high + offset}"


def describe_tensors(tensors: Sequence[torch.Tensor]) -> str:
    """Types and shapes in words: `float32[8, 64], int64[8]`."""
    return ", ".join(f"{name_type(tensor.dtype)}{list(tensor.shape)}" for tensor in tensors)


def describe_case(case: Case) -> str:
    """A case in words: `float32[1 to 64, 512]`."""
    return ", ".join(
        "a tensor that is not read"
        if known is None
        else f"{known.dtype}{_write_shape(known.shape, case.ranges)}"
        for known in case.tensors
    )


def name_type(dtype: torch.dtype) -> str:
    """A type as it is written in words: `float32`."""
    return str(dtype).removeprefix("torch.")
