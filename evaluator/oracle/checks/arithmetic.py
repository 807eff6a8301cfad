"""In which classes a task is judged, as its own types and the class asked for say. Imports torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from tritonsmith.evaluator.oracle.checks.correctness import list_arithmetic
from tritonsmith.evaluator.reference.watch import EIGHTHS
from tritonsmith.evaluator.schema import PrecisionClass

_STEPS = {PrecisionClass.IEEE: 2.0**-21, PrecisionClass.TF32: 2.0**-10}
"""By class: four units of the last place, as a share of a value."""


@dataclass(frozen=True)
class Arithmetic:
    """What a task computes in."""

    asked: PrecisionClass
    """The class that a candidate must reach."""
    half: bool
    """Whether the task is one of 16 bits by its own types: then the reference's own error is that of the module as it is."""
    half_step: float
    """A unit of the last place of the coarsest 16-bit type that the task has; of bfloat16 where it has none."""
    eighth: bool = False
    """Whether inputs or weights are floating values of eight bits, whose products tensor cores add up with few bits."""

    @classmethod
    def of(cls, asked: PrecisionClass, found: PrecisionClass, tensors: Iterable[torch.Tensor]) -> Arithmetic:
        """From the class asked for, the one that follows from the task's types, and its inputs, weights and outputs."""
        types = {tensor.dtype for tensor in tensors}
        fine = torch.float16 in types and torch.bfloat16 not in types
        half_step = torch.finfo(torch.float16 if fine else torch.bfloat16).eps
        return cls(asked, found is PrecisionClass.HALF, half_step, not types.isdisjoint(EIGHTHS))

    @property
    def classes(self) -> list[PrecisionClass]:
        """What the reference computes in for every class up to the one asked for; in a task of 16 bits only that one."""
        return [self.asked] if self.half and self.asked is PrecisionClass.HALF else list_arithmetic(self.asked)

    def find_step(self, precision: PrecisionClass) -> float:
        """How far values are moved, as a share of each, to see what rounding decides; in 16 bits a unit of the type's last place."""
        return _STEPS.get(precision, self.half_step)

    @property
    def tf32(self) -> bool:
        """Whether library calls in fp32 may use TF32; in a task of 16 bits they may not, unless that is asked for."""
        return self.asked.allows_tf32 and not (self.half and self.asked is PrecisionClass.HALF)
