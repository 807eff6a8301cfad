"""How a task is taken apart along the first axis of its tensors. Imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Batch:
    """A task whose rows do not depend on each other."""

    rows: int
    """Length of the axis."""
    split: tuple[int, ...]
    """Numbers of the input tensors that have it."""
    rms_factor: float = 1.0
    """The reference's root mean square error over all rows at once, in units of that of parts; at least 1."""
    max_factor: float = 1.0
    """The same of its largest error."""

    def cut(self, tensors: Sequence[torch.Tensor], first: int, count: int) -> list[torch.Tensor]:
        """Some rows of the inputs; inputs without the axis are whole."""
        return [tensor[first : first + count] if number in self.split else tensor for number, tensor in enumerate(tensors)]


def cut_outputs(outputs: Sequence[torch.Tensor], first: int, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The rows of outputs that a part beginning at row `first` is about; `like` are the part's own outputs."""
    return [output[first : first + part.shape[0]] if part.ndim else output for output, part in zip(outputs, like, strict=True)]
