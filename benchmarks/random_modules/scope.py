"""What a step may use: the values so far, and the dice. Imports torch."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
TYPES = (*FLOATS, *WHOLE, torch.bool)

T = TypeVar("T")
Test = Callable[[torch.Tensor], bool]


def is_float(value: torch.Tensor) -> bool:
    """Whether a tensor is floating."""
    return value.is_floating_point()


def is_whole(value: torch.Tensor) -> bool:
    """Whether a tensor has whole numbers."""
    return value.dtype in WHOLE


def is_bool(value: torch.Tensor) -> bool:
    """Whether a tensor has booleans."""
    return value.dtype == torch.bool


def is_number(value: torch.Tensor) -> bool:
    """Whether a tensor has no booleans."""
    return value.dtype != torch.bool


def has_axes(least: int, most: int = 9) -> Test:
    """A test for a number of axes."""
    return lambda value: least <= value.ndim <= most


@dataclass
class Scope:
    """Values by name, and chance.

    Args:
        chance: what everything is drawn from.
        values: what is there, newest last.
        frozen: addresses of the memory of arguments, which no step writes to.
    """

    chance: random.Random
    values: dict[str, torch.Tensor]
    frozen: set[int] = field(default_factory=set)

    def pick(self, *tests: Test) -> str:
        """The name of a value that passes the tests, a new one rather than an old one. Raises LookupError where none does."""
        names = [name for name, value in self.values.items() if all(test(value) for test in tests)]
        if not names:
            raise LookupError("no such value")
        return self.chance.choices(names, weights=[1 + 3 * place for place in range(len(names))])[0]

    def pick_alike(self, name: str, *tests: Test) -> str:
        """The name of a value that broadcasts with another one; rarely one of another type."""
        first = self.values[name]
        mixed = self.chance.random() < 0.15

        def fits(value: torch.Tensor) -> bool:
            pairs = zip(reversed(value.shape), reversed(first.shape), strict=False)
            return (mixed or value.dtype == first.dtype) and all(a == b or 1 in (a, b) for a, b in pairs)

        return self.pick(fits, *tests)

    def pick_alike_shape(self, name: str, *tests: Test) -> str:
        """The name of a value of any type that broadcasts with another one."""
        shape = self.values[name].shape
        return self.pick(
            lambda value: all(
                a == b or 1 in (a, b) for a, b in zip(reversed(value.shape), reversed(shape), strict=False)
            ),
            *tests,
        )

    def pick_written(self) -> str:
        """The name of a value that a step may write to."""
        return self.pick(
            lambda value: value.untyped_storage().data_ptr() not in self.frozen and _owns_elements(value)
        )

    def choose(self, options: Sequence[T]) -> T:
        """One of some."""
        return self.chance.choice(options)

    def axis(self, name: str) -> int:
        """An axis of a value, at times from behind."""
        count = self.values[name].ndim
        if not count:
            raise LookupError("no axis")
        place = self.chance.randrange(count)
        return place - count if self.chance.random() < 0.5 else place

    def number(self) -> str:
        """A number for a floating operator."""
        return self.choose(
            [
                "0.5",
                "2.0",
                "1.5",
                "-1.0",
                "0.1",
                "0.3",
                "3",
                "-2",
                "1",
                "0.7",
                "1e-3",
                "-0.0",
                "0.0",
                "10.0",
                "2",
                "1e-5",
                "100.0",
            ]
        )

    def whole(self) -> str:
        """A whole number."""
        return self.choose(["1", "2", "3", "-1", "5", "7", "-3", "100", "13", "1000", "0"])


def _owns_elements(value: torch.Tensor) -> bool:
    """Whether no two elements share memory."""
    return (
        all(step or size == 1 for step, size in zip(value.stride(), value.shape, strict=True))
        and value.numel() > 0
    )
