"""Records that differ in numbers alone: what stands in place of a number in the one record for all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tritonsmith.author.compiler.ir.code import (
    Binary,
    Conditional,
    Dict,
    Entry,
    Expression,
    Group,
    Name,
    Node,
    Number,
    Subscript,
    Tuple,
    Unary,
    number,
)
from tritonsmith.author.compiler.ir.sizes import symbol
from tritonsmith.author.compiler.ir.template import expression
from tritonsmith.author.compiler.ir.walk import Path, find, find_differences, put

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

N = TypeVar("N", bound=Node)
Numbers = tuple[int, ...]
"""What a size is in each of several records."""
Column = tuple[Number, ...]
"""The number that stands in one place of several records."""


def list_columns(records: Sequence[Node]) -> dict[Path, Column] | None:
    """The numbers in which records of one form differ, by place in the order of the text; None where anything else does."""
    columns: dict[Path, list[Number]] = {}
    for place, record in enumerate(records[1:], 1):
        differences = find_differences(records[0], record)
        if differences is None:
            return None
        for path, ours, theirs in differences:
            if isinstance(ours, Unary) and isinstance(theirs, Unary):  # two negative numbers
                path, ours, theirs = (*path, 0), ours.operand, theirs.operand
            if not isinstance(ours, Number) or not isinstance(theirs, Number):
                return None
            columns.setdefault(path, [ours] * len(records))[place] = theirs
    return {path: tuple(columns[path]) for path in sorted(columns)}


def put_in(record: N, words: Mapping[Path, Expression]) -> N:
    """The record with expressions in place of its numbers, in parentheses where an operator is next to them."""
    operated = {path for path in words if path and isinstance(find(record, path[:-1]), Binary | Unary)}
    return put(record, {path: _enclose(word) if path in operated else word for path, word in words.items()})


def read_whole(values: Sequence[Number]) -> Numbers | None:
    """The values as whole numbers; None where one has a fraction or an exponent."""
    whole = tuple(one.value for one in values if isinstance(one.value, int))
    return whole if len(whole) == len(values) else None


def read_real(values: Sequence[Number]) -> Numbers | None:
    """Values that are written as `3.0` as whole numbers; None where one is written otherwise."""
    whole = tuple(int(one.value) for one in values if one.spelling == f"{int(one.value)}.0")
    return whole if len(whole) == len(values) else None


@dataclass
class Fitter:
    """Writes numbers as expressions of sizes that differ from text to text."""

    sizes: dict[str, Numbers]
    """By name."""
    _made: dict[Expression, Numbers] = field(default_factory=dict)
    """Expressions that other numbers may be multiples of, such as the size of a pool's result."""

    def prepare(self, numbers: Iterable[Numbers]) -> None:
        """Find the sizes that others are multiples of among all numbers of a text."""
        for values in sorted(set(numbers)):
            self.write(values)

    def write(self, values: Numbers) -> Expression | None:
        """The expression; None where the numbers follow from no size in a way that is known."""
        if len(set(values)) == 1:
            return number(values[0])
        return (
            self._write_multiple(values) or self._write_sum(values, _NEAR) or self._write_window(values)
            or self._write_product(values, 2) or self._write_sum(values, _FAR) or self._write_product(values, 3)
        )  # fmt: skip

    def write_power(self, values: Numbers, within: bool) -> Expression | None:
        """The number of elements of a block, which is a power of two: one that holds a size, within bounds.

        within: whether there are sizes between these, for which the lower bound holds too.
        """
        low, high = min(values), max(values)
        if any(one & (one - 1) for one in values):
            return None
        counts = ((word, sizes, times) for times in range(1, _MOST_TIMES) for word, sizes in self._named())
        products = ((word, sizes, 1) for word, sizes in self._multiples(2))
        for word, sizes, times in itertools.chain(counts, products):
            powers = [1 << max(0, one * times - 1).bit_length() for one in sizes]
            if tuple(min(max(one, low), high) for one in powers) == values:
                power = expression("triton.next_power_of_2({size})", size=_multiply(word, times))
                if within or min(powers) < low:
                    power = expression("max({power}, {low})", power=power, low=low)
                return expression("min({power}, {high})", power=power, high=high) if max(powers) > high else power
        return None

    def _named(self) -> list[tuple[Expression, Numbers]]:
        return [(Name(name), sizes) for name, sizes in self.sizes.items()]

    def _known(self) -> list[tuple[Expression, Numbers]]:
        return [*self._named(), *((_enclose(word), sizes) for word, sizes in self._made.items())]

    def _write_multiple(self, values: Numbers) -> Expression | None:
        """A size, or a multiple of one."""
        for word, sizes in [*self._named(), *self._made.items()]:
            if (times := find_times(values, sizes)) is not None:
                return _multiply(_enclose(word), times) if times > 1 else word
        return None

    def _write_sum(self, values: Numbers, most: int) -> Expression | None:
        """A size with a number added."""
        for name, sizes in self.sizes.items():
            apart = {one - size for one, size in zip(values, sizes, strict=True)}
            if len(apart) == 1 and abs(more := apart.pop()) <= most:
                return expression("{sum}", sum=symbol(name, sizes[0]) + more)
        return None

    def _write_window(self, values: Numbers) -> Expression | None:
        """What a window that moves by a stride gives: a size with its rim, divided and rounded down."""
        for rim, by, name in itertools.product(sorted(range(-_RIM, _RIM + 1), key=abs), _DIVISORS, self.sizes):
            if tuple((one + rim) // by for one in self.sizes[name]) == values:
                word = expression("{size} // {by}", size=symbol(name, self.sizes[name][0]) + rim, by=by)
                self._made[word] = values
                return word
        return None

    def _write_product(self, values: Numbers, count: int) -> Expression | None:
        """A product of so many sizes, or a multiple of one."""
        for word, sizes in self._multiples(count):
            if (times := find_times(values, sizes)) is not None:
                return _multiply(word, times)
        return None

    def _multiples(self, count: int) -> Iterator[tuple[Expression, Numbers]]:
        """Products of so many sizes."""
        for factors in itertools.combinations_with_replacement(self._known(), count):
            product = factors[0][0]
            for word, _ in factors[1:]:
                product = Binary(product, "*", word)
            yield product, tuple(map(math.prod, zip(*(sizes for _, sizes in factors), strict=True)))


def write_table(values: Sequence[Expression], sizes: Mapping[str, Numbers]) -> Expression | None:
    """A look-up of numbers by the sizes to which they belong; None where two records have the same sizes."""
    single = next((name for name, ones in sizes.items() if len(set(ones)) == len(ones)), None)
    names = [single] if single is not None else list(sizes)
    keys = list(zip(*(sizes[name] for name in names), strict=True))
    if not names or len(set(keys)) < len(keys):
        return None
    entries = [Entry(_list(list(map(number, key))), value) for key, value in zip(keys, values, strict=True)]
    return Subscript(Dict(tuple(entries)), _list(list(map(Name, names))))


def _list(items: Sequence[Expression]) -> Expression:
    return items[0] if len(items) == 1 else Tuple(tuple(items))


def write_steps(values: Sequence[Expression], sizes: Mapping[str, Numbers]) -> Expression | None:
    """Numbers that change at some sizes and stay between: each up to the largest size that it was found for."""
    for name, ones in sizes.items():
        known = dict(sorted(zip(ones, values, strict=True), key=lambda pair: pair[0]))
        if len(known) == len(set(zip(ones, values, strict=True))):
            pairs = list(known.items())
            ends = [pair for pair, (_, behind) in itertools.pairwise(pairs) if pair[1] != behind]
            word = pairs[-1][1]
            for size, value in reversed(ends):
                word = Conditional(value, expression("{name} <= {size}", name=name, size=size), word)
            return word
    return None


def find_times(values: Numbers, sizes: Numbers) -> int | None:
    """By which number all sizes have to be multiplied."""
    if not sizes[0] or values[0] % sizes[0]:
        return None
    times = values[0] // sizes[0]
    return times if times and all(one == times * size for one, size in zip(values, sizes, strict=True)) else None


def _multiply(word: Expression, times: int) -> Expression:
    return Binary(word, "*", number(times)) if times > 1 else word


def _enclose(word: Expression) -> Expression:
    """An expression with parentheses that it keeps beside any operator."""
    return Group(word) if isinstance(word, Binary | Conditional) else word
