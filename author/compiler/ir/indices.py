"""Integer expressions that say where an element lies: sums of variables with factors, quotients and remainders by constants.

They are simplified as they are made, so that a view of a view reads like the index that a person would write.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tritonsmith.author.compiler.ir.code import Binary, Compare, Expression, Group, Name, Unary, number
from tritonsmith.author.compiler.ir.precedence import tidy
from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.walk import iterate


@dataclass(frozen=True)
class Variable:
    """A number of a kernel, from 0 to `size` - 1."""

    name: str
    size: int

    @cached_property
    def code(self) -> Expression:
        """Its record."""
        return Name(self.name)

    @property
    def text(self) -> str:
        """As the kernel writes it."""
        return self.name

    @property
    def bounds(self) -> tuple[int, int]:
        """Least and greatest value."""
        return 0, max(self.size - 1, 0)

    @property
    def names(self) -> frozenset[str]:
        """Variables that it depends on."""
        return frozenset((self.name,))


@dataclass(frozen=True)
class Digit:
    """The quotient, or the remainder, of an index by a constant."""

    of: Index
    by: int
    remainder: bool

    @cached_property
    def _hash(self) -> int:
        return hash((self.of, self.by, self.remainder))

    def __hash__(self) -> int:
        return self._hash  # indices are nested, and asked for in tables all the time

    @cached_property
    def code(self) -> Expression:
        """Its record; what it divides has parentheses where it is more than a name."""
        inner = self.of.code
        left = Group(inner) if isinstance(inner, Binary) else inner
        return tidy(Binary(left, "%" if self.remainder else "//", number(self.by)))

    @cached_property
    def text(self) -> str:
        """As the kernel writes it."""
        return print_expression(self.code)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """Least and greatest value."""
        low, high = self.of.bounds
        if self.remainder:
            return (low, high) if 0 <= low and high < self.by else (0, self.by - 1)
        return low // self.by, high // self.by

    @property
    def names(self) -> frozenset[str]:
        """Variables that it depends on."""
        return self.of.names


@dataclass(frozen=True)
class Loaded:
    """A number from 0 to `size` - 1 that a kernel has read from memory."""

    code: Expression
    size: int
    names: frozenset[str]
    """Variables that it depends on."""

    @cached_property
    def text(self) -> str:
        """As the kernel writes it."""
        return print_expression(self.code)

    @property
    def bounds(self) -> tuple[int, int]:
        """Least and greatest value."""
        return 0, max(self.size - 1, 0)


Atom = Variable | Digit | Loaded


@dataclass(frozen=True)
class Index:
    """A sum of atoms with factors, and a constant."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    @cached_property
    def _hash(self) -> int:
        return hash((self.terms, self.constant))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def code(self) -> Expression:
        """Its record."""
        return self._add_terms(None)

    def add_to(self, base: Expression) -> Expression:
        """The record of a base and this index behind it, as one sum from the left: `p + i * 4 + j`."""
        return self._add_terms(base)

    def _add_terms(self, total: Expression | None) -> Expression:
        first = True
        for atom, factor in self.terms:
            minus, inner = factor < 0, atom.code
            if minus and first:  # the sign binds closer than the product
                minus, inner = False, tidy(Unary("-", Group(inner) if isinstance(inner, Binary) else inner))
            elif abs(factor) != 1 and has_division(inner):
                inner = Group(inner)
            inner = tidy(Binary(inner, "*", number(abs(factor)))) if abs(factor) != 1 else inner
            total, first = inner if total is None else tidy(Binary(total, "-" if minus else "+", inner)), False
        if first and (self.constant or total is None):
            last = number(self.constant)
            return last if total is None else Binary(total, "+", last)
        if self.constant and total is not None:
            return Binary(total, "-" if self.constant < 0 else "+", number(abs(self.constant)))
        assert total is not None
        return total

    @cached_property
    def text(self) -> str:
        """As the kernel writes it."""
        return print_expression(self.code)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """Least and greatest value."""
        ends = [sorted((atom.bounds[0] * factor, atom.bounds[1] * factor)) for atom, factor in self.terms]
        return self.constant + sum(low for low, _ in ends), self.constant + sum(high for _, high in ends)

    @cached_property
    def reach(self) -> int:
        """The greatest distance from zero of what its quotients and remainders are taken of, and of its numbers.

        Sums may leave a type and come back to it, as two's complement does. A quotient of what has left is wrong.
        """
        found = abs(self.constant)
        for atom, factor in self.terms:
            found = max(found, abs(factor))
            if isinstance(atom, Digit):
                found = max(found, atom.by, *map(abs, atom.of.bounds), atom.of.reach)
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        """Variables that it depends on."""
        return frozenset().union(*(atom.names for atom, _ in self.terms)) if self.terms else frozenset()

    def __add__(self, other: Index | int) -> Index:
        other = other if isinstance(other, Index) else Index(constant=other)
        return _sum([*self.terms, *other.terms], self.constant + other.constant)

    def __sub__(self, other: Index | int) -> Index:
        return self + (other * -1 if isinstance(other, Index) else -other)

    def __mul__(self, factor: int) -> Index:
        return _sum([(atom, count * factor) for atom, count in self.terms], self.constant * factor)

    def __floordiv__(self, by: int) -> Index:
        return _divide(self, by)[0]

    def __mod__(self, by: int) -> Index:
        return _divide(self, by)[1]


ZERO = Index()


def variable(name: str, size: int) -> Index:
    """A variable of a kernel as an index; 0 where it can only be 0."""
    return Index(((Variable(name, size), 1),)) if size > 1 else ZERO


def loaded(given: Expression, size: int, names: frozenset[str] = frozenset()) -> Index:
    """A number that a kernel has read from memory, as an index."""
    return Index(((Loaded(given, size, names), 1),))


def has_division(node: Expression) -> bool:
    """Whether a quotient or a remainder stands in an expression."""
    return any(isinstance(part, Binary) and part.operator in ("//", "%") for part in iterate(node))


def _sum(terms: Iterable[tuple[Atom, int]], constant: int) -> Index:
    counts: dict[Atom, int] = {}
    for atom, factor in terms:
        counts[atom] = counts.get(atom, 0) + factor
    for atom in [one for one in counts if isinstance(one, Digit) and one.remainder]:
        assert isinstance(atom, Digit)
        factor = counts.get(atom, 0)
        quotient = _divide(atom.of, atom.by)[0]
        if not factor or len(quotient.terms) != 1 or quotient.constant:
            continue
        whole, unit = quotient.terms[0]
        if unit == 1 and counts.get(whole) == factor * atom.by:  # (i // n) * n + i % n
            del counts[whole], counts[atom]
            return _sum(
                [*counts.items(), *((inner, number * factor) for inner, number in atom.of.terms)], constant + atom.of.constant * factor
            )
        for other in [one for one in counts if isinstance(one, Digit) and one.remainder and one is not atom]:
            assert isinstance(other, Digit)
            same = counts[other] == factor * atom.by and _divide(atom.of, atom.by)[0] == other.of
            if same:  # ((i // m) % n) * m + i % m
                del counts[other], counts[atom]
                merged = _divide(atom.of, atom.by * other.by)[1]
                return _sum(
                    [*counts.items(), *((inner, number * factor) for inner, number in merged.terms)], constant + merged.constant * factor
                )
    kept = [(atom, factor) for atom, factor in counts.items() if factor]
    return Index(tuple(sorted(kept, key=lambda term: (-abs(term[1]), term[0].text))), constant)


@lru_cache(maxsize=65536)
def _divide(index: Index, by: int) -> tuple[Index, Index]:
    """Quotient and remainder by a positive constant, rounded down."""
    if by == 1:
        return index, ZERO
    whole = _sum([(atom, factor // by) for atom, factor in index.terms if factor % by == 0], index.constant // by)
    rest = _sum([term for term in index.terms if term[1] % by], index.constant % by)
    low, high = rest.bounds
    if 0 <= low and high < by:
        return whole, rest
    if low // by == high // by:
        return whole + low // by, rest - (low // by) * by
    if low < 0:  # Triton rounds quotients towards zero, so what is divided is lifted above it
        whole, rest = whole + low // by, rest - (low // by) * by
    for step in sorted({math.gcd(factor, by) for _, factor in rest.terms} - {1}, reverse=True):
        coarse = _sum([term for term in rest.terms if term[1] % step == 0], rest.constant - rest.constant % step)
        fine = _sum([term for term in rest.terms if term[1] % step], rest.constant % step)
        if fine.bounds[0] >= 0 and fine.bounds[1] < step:
            quotient, remainder = _divide(_sum([(a, f // step) for a, f in coarse.terms], coarse.constant // step), by // step)
            return whole + quotient, remainder * step + fine
    if len(rest.terms) == 1 and rest.terms[0][1] == 1 and not rest.constant and isinstance(rest.terms[0][0], Digit):
        inner = rest.terms[0][0]
        if inner.remainder and inner.by % by == 0:  # (i % (n m)) // m = (i // m) % n, and (i % (n m)) % m = i % m
            whole_part, rest_part = _divide(inner.of, by)
            return whole + _divide(whole_part, inner.by // by)[1], rest_part
        if not inner.remainder:  # (i // m) // n
            return whole + _divide(inner.of, inner.by * by)[0], Index(((Digit(rest, by, True), 1),))
    return whole + Index(((Digit(rest, by, False), 1),)), Index(((Digit(rest, by, True), 1),))


def evaluate(index: Index, values: Mapping[str, int]) -> int:
    """The value of an index where its variables have these values, and others 0; numbers from memory count as 0."""
    total = index.constant
    for atom, factor in index.terms:
        if isinstance(atom, Digit):
            inner = evaluate(atom.of, values)
            total += factor * (inner % atom.by if atom.remainder else inner // atom.by)
        elif isinstance(atom, Variable):
            total += factor * values.get(atom.name, 0)
    return total


Shape = tuple[int, ...]
Coordinates = tuple[Index, ...]


def ravel(coordinates: Sequence[Index], shape: Shape) -> Index:
    """The place of an element in a contiguous tensor."""
    place = ZERO
    for coordinate, size in zip(coordinates, shape, strict=True):
        place = place * size + coordinate
    return place


def unravel(place: Index, shape: Shape) -> Coordinates:
    """The coordinates of the element at a place of a contiguous tensor."""
    found: list[Index] = []
    for axis, size in reversed(list(enumerate(shape))):
        if size == 1:
            found.append(ZERO)
        elif math.prod(shape[:axis]) == 1:
            found.append(place)
        else:
            place, inner = _divide(place, size)
            found.append(inner)
    return tuple(reversed(found))


@dataclass(frozen=True)
class Guard:
    """The condition low <= index < high."""

    index: Index
    low: int
    high: int

    @property
    def settled(self) -> bool:
        """Whether the bounds of the index say already that it holds."""
        least, greatest = self.index.bounds
        return self.low <= least and greatest < self.high

    def list_tests(self, operand: Expression | None = None) -> tuple[Expression, ...]:
        """Comparisons in parentheses that the bounds of the index do not already settle.

        operand: what is compared, where the kernel has a name for the index.
        """
        (least, greatest), shown = self.index.bounds, operand or self.index.code
        low = (Group(Compare((">=",), (shown, number(self.low)))),) if least < self.low else ()
        return (*low, *((Group(Compare(("<",), (shown, number(self.high)))),) if greatest >= self.high else ()))

    @property
    def reach(self) -> int:
        """The greatest distance from zero of what it compares."""
        return max(*map(abs, self.index.bounds), self.index.reach, abs(self.low), abs(self.high))

    @property
    def names(self) -> frozenset[str]:
        """Variables that it depends on."""
        return self.index.names


def join_guards(given: tuple[Guard, ...], more: Iterable[Guard]) -> tuple[Guard, ...] | None:
    """Conditions that hold together, with one range for all that ask for the same sum but for its constant; None where none can hold."""
    found = list(given)
    for guard in more:
        for place, one in enumerate(found):
            if one.index.terms == guard.index.terms:
                apart = guard.index.constant - one.index.constant
                found[place] = Guard(one.index, max(one.low, guard.low - apart), min(one.high, guard.high - apart))
                break
        else:
            found.append(guard)
    return None if any(guard.low >= guard.high for guard in found) else tuple(found)


def count(shape: Shape) -> int:
    """Elements of a tensor."""
    return math.prod(shape)
