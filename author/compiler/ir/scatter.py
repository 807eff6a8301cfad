"""Elements that meet those at places of a tensor that other values say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tritonsmith.author.compiler.ir.indices import Coordinates, Index
from tritonsmith.author.compiler.ir.operators import Constant
from tritonsmith.author.compiler.ir.values import Formula, Tensor


class Meeting(StrEnum):
    """What becomes of an element and another one for the same place; each is an atomic operation of Triton."""

    SUM = "add"
    LARGEST = "max"
    SMALLEST = "min"


@dataclass(eq=False, kw_only=True)
class Scatter(Tensor):
    """A tensor after elements of another one have met those at places that others hold; elements for no place of it are left out."""

    base: Tensor
    """What it is before."""
    source: Tensor
    """Its elements, each of which goes to one place."""
    places: tuple[Tensor, ...]
    where: Callable[[Coordinates], tuple[Coordinates, ...]]
    """For each of `places`: where it is read for an element of the source."""
    move: Callable[[Coordinates, Sequence[Index]], Coordinates]
    """Where an element of the source goes, by its coordinates and the values of `places`."""
    limits: tuple[int, ...]
    """For each of `places`: how many values it can have."""
    meeting: Meeting

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return (self.base, self.source, *self.places)

    @property
    def is_fresh(self) -> bool:
        """Whether it begins with one number everywhere."""
        return isinstance(self.base, Formula) and not self.base.inputs

    @property
    def counts(self) -> bool:
        """Whether it says how often each place of one axis is met."""
        ones = isinstance(self.source, Formula) and not self.source.inputs and self.source.expression == Constant(1)
        return ones and self.meeting is Meeting.SUM and len(self.shape) == 1
