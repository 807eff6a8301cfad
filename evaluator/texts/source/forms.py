"""Addresses and indices as polynomials over what a program cannot choose: sizes, program ids, iterations and ranges of elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

_MOST_TERMS = 40
"""A longer sum is kept as one opaque symbol."""
_MOST_FACTORS = 6
"""A product of more factors is kept as one opaque symbol."""


@dataclass(frozen=True)
class Symbol:
    """One thing that a polynomial is made of."""

    kind: str
    """`parameter`, `program`, `programs`, `loop`, `carried`, `range`, or `opaque`."""
    key: str
    deps: frozenset[str] = frozenset()
    """What an opaque symbol depends on, as `kind:key` of the others."""
    parts: tuple[Polynomial, ...] = field(default=(), compare=False, repr=False)
    """What an opaque symbol was made of."""

    @property
    def name(self) -> str:
        """What other symbols' `deps` call it."""
        return f"{self.kind}:{self.key}"

    @cached_property
    def all_deps(self) -> frozenset[str]:
        """Itself and everything that it depends on."""
        return self.deps | {self.name}

    def is_place(self, beside: str = "") -> bool:
        """Whether it is a place of the output: it differs between elements or programs, and not with the symbol of a loop."""
        return beside not in self.all_deps and any(dep.startswith(("range:", "program:")) for dep in self.all_deps)

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.key))

    def __hash__(self) -> int:
        return self._hash


Monomial: TypeAlias = tuple[Symbol, ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of symbols with whole factors."""

    terms: frozenset[tuple[Monomial, int]] = frozenset()

    @property
    def constant(self) -> int | None:
        """The number that it is, where it is one."""
        if not self.terms:
            return 0
        (first, *rest) = self.terms
        return first[1] if not rest and not first[0] else None

    @cached_property
    def deps(self) -> frozenset[str]:
        """Everything that it depends on."""
        return frozenset().union(*(symbol.all_deps for monomial, _ in self.terms for symbol in monomial))

    def coefficient(self, name: str) -> Polynomial:
        """What the symbol of this name is multiplied by, where it stands alone in a term."""
        found = {}
        for monomial, factor in self.terms:
            for place, symbol in enumerate(monomial):
                if symbol.name == name:
                    found[monomial[:place] + monomial[place + 1 :]] = factor
                    break
        return _make(found)

    def split(self, *kinds: str) -> tuple[Polynomial, Polynomial]:
        """The terms that depend on symbols of these kinds, and the others."""
        inside: dict[Monomial, int] = {}
        outside: dict[Monomial, int] = {}
        for monomial, factor in self.terms:
            deps = {dep.partition(":")[0] for symbol in monomial for dep in symbol.all_deps}
            (inside if deps & set(kinds) else outside)[monomial] = factor
        return _make(inside), _make(outside)

    def __add__(self, other: Polynomial) -> Polynomial:
        found = dict(self.terms)
        for monomial, factor in other.terms:
            found[monomial] = found.get(monomial, 0) + factor
        return _make(found)

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other.scaled(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        found: dict[Monomial, int] = {}
        if len(self.terms) * len(other.terms) > _MOST_TERMS:
            return make_opaque("product", self, other)
        for first, left in self.terms:
            for second, right in other.terms:
                both = tuple(sorted((*first, *second), key=_order))
                if len(both) > _MOST_FACTORS:
                    return make_opaque("product", self, other)
                found[both] = found.get(both, 0) + left * right
        return _make(found)

    def scaled(self, factor: int) -> Polynomial:
        """A whole multiple."""
        return _make({monomial: number * factor for monomial, number in self.terms})

    def replace(self, old: str, new: Symbol) -> Polynomial:
        """The same with another symbol in place of one."""
        found: dict[Monomial, int] = {}
        for monomial, factor in self.terms:
            key = tuple(sorted((new if symbol.name == old else symbol for symbol in monomial), key=_order))
            found[key] = found.get(key, 0) + factor
        return _make(found)

    def symbols(self) -> Iterator[Symbol]:
        """All symbols, some more than once."""
        for monomial, _ in self.terms:
            yield from monomial

    def all_symbols(self) -> Iterator[Symbol]:
        """All symbols, those that opaque ones were made of included."""
        for symbol in self.symbols():
            yield symbol
            for part in symbol.parts:
                yield from part.all_symbols()


def _order(symbol: Symbol) -> tuple[str, str]:
    return symbol.kind, symbol.key


def _make(found: dict[Monomial, int]) -> Polynomial:
    return Polynomial(frozenset((monomial, factor) for monomial, factor in found.items() if factor))


def make_number(value: int) -> Polynomial:
    """A whole number."""
    return _make({(): value})


def make_symbol(kind: str, key: str) -> Polynomial:
    """One symbol."""
    return _make({(Symbol(kind, key),): 1})


def make_opaque(what: str, *parts: Polynomial) -> Polynomial:
    """A symbol for what no polynomial says, such as a quotient; equal for equal parts."""
    key = f"{what}{hash(parts) & 0xFFFFFFFFFFFF:x}"
    deps: frozenset[str] = frozenset().union(*(part.deps for part in parts))
    return _make({(Symbol("opaque", key, frozenset(dep for dep in deps if not dep.startswith("opaque:")), parts),): 1})


def find_multiple(form: Polynomial, unit: Polynomial) -> int | None:
    """The whole number by which `unit` must be multiplied to give `form`; None where there is none."""
    if not unit.terms:
        return 0 if not form.terms else None
    amounts = dict(form.terms)
    monomial, factor = min(unit.terms, key=lambda term: [_order(symbol) for symbol in term[0]])
    ratio, rest = divmod(amounts.get(monomial, 0), factor)
    return ratio if not rest and form == unit.scaled(ratio) else None


ZERO = Polynomial()
ONE = make_number(1)
