"""Texts that differ in numbers alone: what stands in place of a number in the one text for all of them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w|\.\w)")
_NEAR = 2
"""The largest number that is added to a size before anything else is tried: what two sizes differ by may be chance."""
_FAR = 64
"""The largest one at all."""
_MOST_TIMES = 256
"""Elements that belong to one place of a size, for blocks that hold all elements."""
_DIVISORS = (2, 3, 4, 8)
"""Of sizes, as strides of windows are."""
_RIM = 8
"""Places that windows have more or less than the size."""
_OPERATORS = "+-*/%"

Numbers = tuple[int, ...]
"""What a size is in each of several texts."""


def blank(text: str) -> str:
    """The text without its numbers: equal for texts that differ in numbers alone."""
    return _NUMBER.sub("#", text)


def list_numbers(text: str) -> list[str]:
    """The numbers of a text."""
    return _NUMBER.findall(text)


def put_in(text: str, words: Sequence[str]) -> str:
    """The text with these in place of its numbers; sums and products stand in brackets where an operator is next to them."""
    found = iter(words)

    def choose(number: re.Match[str]) -> str:
        word = next(found)
        before, behind = text[: number.start()].rstrip()[-1:], text[number.end() :].lstrip()[:1]
        operated = before in _OPERATORS and bool(before) or behind in _OPERATORS and bool(behind)
        return f"({word})" if operated and " " in word else word

    return _NUMBER.sub(choose, text)


def read_whole(values: Sequence[str], end: str = "") -> Numbers | None:
    """The values as whole numbers, written with this end; None where one has a fraction or an exponent."""
    found = [one.removesuffix(end) for one in values if one.endswith(end)]
    return tuple(map(int, found)) if len(found) == len(values) and all(one.isdigit() for one in found) else None


@dataclass
class Fitter:
    """Writes numbers as expressions of sizes that differ from text to text."""

    sizes: dict[str, Numbers]
    """By name."""
    _made: dict[str, Numbers] = field(default_factory=dict)
    """Expressions that other numbers may be multiples of, such as the size of a pool's result."""

    def prepare(self, numbers: Iterable[Numbers]) -> None:
        """Find the sizes that others are multiples of among all numbers of a text."""
        for values in sorted(set(numbers)):
            self.write(values)

    def write(self, values: Numbers) -> str | None:
        """The expression; None where the numbers follow from no size in a way that is known."""
        if len(set(values)) == 1:
            return str(values[0])
        return (
            self._write_multiple(values) or self._write_sum(values, _NEAR) or self._write_window(values)
            or self._write_product(values, 2) or self._write_sum(values, _FAR) or self._write_product(values, 3)
        )  # fmt: skip

    def write_power(self, values: Numbers, within: bool) -> str | None:
        """The number of elements of a block, which is a power of two: one that holds a size, within bounds.

        within: whether there are sizes between these, for which the lower bound holds too.
        """
        low, high = min(values), max(values)
        if any(one & (one - 1) for one in values):
            return None
        counts = ((name, sizes, times) for times in range(1, _MOST_TIMES) for name, sizes in self.sizes.items())
        products = ((name, sizes, 1) for name, sizes in self._multiples(2))
        for name, sizes, times in itertools.chain(counts, products):
            powers = [1 << max(0, one * times - 1).bit_length() for one in sizes]
            if tuple(min(max(one, low), high) for one in powers) == values:
                inner = f"triton.next_power_of_2({name}{f' * {times}' if times > 1 else ''})"
                inner = f"max({inner}, {low})" if within or min(powers) < low else inner
                return f"min({inner}, {high})" if max(powers) > high else inner
        return None

    def _write_multiple(self, values: Numbers) -> str | None:
        """A size, or a multiple of one."""
        for name, sizes in (self.sizes | self._made).items():
            if (times := find_times(values, sizes)) is not None:
                return f"{_enclose(name)} * {times}" if times > 1 else name
        return None

    def _write_sum(self, values: Numbers, most: int) -> str | None:
        """A size with a number added."""
        for name, sizes in self.sizes.items():
            apart = {one - size for one, size in zip(values, sizes, strict=True)}
            if len(apart) == 1 and abs(more := apart.pop()) <= most:
                return f"{name} {'+' if more > 0 else '-'} {abs(more)}"
        return None

    def _write_window(self, values: Numbers) -> str | None:
        """What a window that moves by a stride gives: a size with its rim, divided and rounded down."""
        for rim, by, name in itertools.product(sorted(range(-_RIM, _RIM + 1), key=abs), _DIVISORS, self.sizes):
            if tuple((one + rim) // by for one in self.sizes[name]) == values:
                inner = f"({name} {'+' if rim > 0 else '-'} {abs(rim)})" if rim else name
                self._made[f"{inner} // {by}"] = values
                return f"{inner} // {by}"
        return None

    def _write_product(self, values: Numbers, number: int) -> str | None:
        """A product of so many sizes, or a multiple of one."""
        for name, sizes in self._multiples(number):
            if (times := find_times(values, sizes)) is not None:
                return f"{name} * {times}" if times > 1 else name
        return None

    def _multiples(self, number: int) -> Iterator[tuple[str, Numbers]]:
        """Products of so many sizes."""
        known = {_enclose(name): sizes for name, sizes in (self.sizes | self._made).items()}
        for names in itertools.combinations_with_replacement(known, number):
            yield " * ".join(names), tuple(map(math.prod, zip(*(known[name] for name in names), strict=True)))


def write_table(values: Sequence[str], sizes: Mapping[str, Numbers]) -> str | None:
    """A look-up of numbers by the sizes to which they belong; None where two texts have the same sizes."""
    single = next((name for name, ones in sizes.items() if len(set(ones)) == len(ones)), None)
    names = [single] if single is not None else list(sizes)
    keys = list(zip(*(sizes[name] for name in names), strict=True))
    if not names or len(set(keys)) < len(keys):
        return None
    entries = ", ".join(f"{key[0] if len(key) == 1 else key}: {value}" for key, value in zip(keys, values, strict=True))
    return f"{{{entries}}}[{', '.join(names)}]"


def write_steps(values: Sequence[str], sizes: Mapping[str, Numbers]) -> str | None:
    """Numbers that change at some sizes and stay between: each up to the largest size that it was found for."""
    for name, ones in sizes.items():
        runs: dict[int, str] = {}
        pairs = sorted(set(zip(ones, values, strict=True)))
        if len({size for size, _ in pairs}) == len(pairs):
            for (size, value), behind in zip(pairs, [*(value for _, value in pairs[1:]), ""], strict=True):
                if value != behind:
                    runs[size] = value
            *steps, last = runs.items()
            return "".join(f"{value} if {name} <= {size} else " for size, value in steps) + last[1]
    return None


def find_times(values: Numbers, sizes: Numbers) -> int | None:
    """By which number all sizes have to be multiplied."""
    if not sizes[0] or values[0] % sizes[0]:
        return None
    times = values[0] // sizes[0]
    return times if times and all(one == times * size for one, size in zip(values, sizes, strict=True)) else None


def _enclose(name: str) -> str:
    return f"({name})" if " " in name else name
