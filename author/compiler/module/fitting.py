"""Arguments in place of the numbers in which kernels differ."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from tritonsmith.author.compiler.ir.code import Binary, Expression, Name, number
from tritonsmith.author.compiler.module.uses import NumberUse

Values = tuple[int, ...]
"""A number in each of several kernels."""
Product = tuple[int, tuple[Values, ...]]
"""A number, and sizes that it is multiplied with."""
_ALIGNED = 16
"""Triton compiles a kernel apart for arguments that are multiples of it: addresses stay as aligned as they are with a literal."""
_MOST_FACTORS = 3
"""Sizes that are multiplied for a number."""
_CHANCE = 16
"""A size below it is a factor of too many numbers, where few kernels differ: two of them may agree by chance."""
_FEW = 3
"""Kernels that agree by chance no more."""


@dataclass
class Fit:
    """What stands in place of each number that differs."""

    arguments: dict[str, Values] = field(default_factory=dict)
    """By name: what it is for each kernel."""
    plain: tuple[str, ...] = ()
    """Those that need not be known to the compiler."""
    words: dict[Values, Expression] = field(default_factory=dict)
    """Expressions of them, by the numbers that they are."""


def count_arguments(uses: Mapping[Values, Sequence[NumberUse]]) -> int:
    """How many arguments numbers take."""
    return len(uses) - len(_express(uses))


def fit_arguments(uses: Mapping[Values, Sequence[NumberUse]], taken: Collection[str], launched: bool) -> Fit:
    """Arguments for numbers that differ.

    Args:
        uses: by the numbers, one of each kernel: how they are used.
        taken: names that arguments may not have.
        launched: whether the kernels are launched, and may take numbers that the compiler does not know.
    """
    expressed = _express(uses)
    own = [values for values in uses if values not in expressed]
    plain = [values for values in own if launched and _is_start(uses[values]) and max(values) < 2**31
             and all(one % _ALIGNED == 0 for one in values)]  # fmt: skip
    known = [values for values in own if values not in plain]
    if len(set(zip(*known, strict=True)) if known else ()) == len(own[0]):
        plain = []  # each kernel is compiled by itself as it is
    fit = Fit()
    used = {*taken}
    for values in own:
        use = min(uses[values], key=lambda one: one.rank)
        name = _choose(use.name.lower() if values in plain else use.name, used)
        fit.arguments[name] = values
        fit.words[values] = Name(name)
    names = {values: name for name, values in fit.arguments.items()}
    fit.plain = tuple(names[values] for values in plain)
    for values, (times, factors) in expressed.items():
        terms = [*([number(times)] if times > 1 else []), *(fit.words[one] for one in factors)]
        fit.words[values] = reduce(lambda left, right: Binary(left, "*", right), terms)
    return fit


def _choose(name: str, used: set[str]) -> str:
    found = next(new for count in itertools.count(1) if (new := f"{name}_{count}" if count > 1 else name) not in used)
    used.add(found)
    return found


def _is_start(uses: Sequence[NumberUse]) -> bool:
    return all(one.added for one in uses)


def _express(uses: Mapping[Values, Sequence[NumberUse]]) -> dict[Values, Product]:
    """Numbers that are multiples or products of others: by the number what it is."""
    found: dict[Values, Product] = {}
    sizes: list[Values] = []
    counts: list[Values] = []
    for values in sorted(uses, key=lambda one: (not any(use.is_size or use.is_count for use in uses[one]), one)):
        loop = all(use.is_count for use in uses[values])
        product = _write_product(values, sizes, counts, loop, _is_start(uses[values]))
        if product is not None:
            found[values] = product
        elif any(use.is_size for use in uses[values]):
            sizes.append(values)
        elif loop:
            counts.append(values)
    return found


def _write_product(values: Values, sizes: Sequence[Values], counts: Sequence[Values], loop: bool, start: bool) -> Product | None:
    """A number and the sizes with which it gives the values; None where there are none.

    Args:
        values: the numbers.
        sizes: what they may be multiples of, small ones first.
        counts: of loops; multiples of these alone do for other counts only.
        loop: whether the numbers are such a count.
        start: whether they are only added to a pointer. These have a name of their own, unless they are just a product.
    """
    factors = [*counts, *sizes]
    for count in range(1, _MOST_FACTORS + 1):
        for tried in itertools.combinations_with_replacement(reversed(factors), count):
            likely = len(values) >= _FEW or any(min(one) >= _CHANCE for one in tried)
            if (loop or any(one in sizes for one in tried)) and likely and (times := _divide(values, tried)):
                if not start or times == 1 < count:
                    return times, tried
    return None


def _divide(values: Values, factors: Sequence[Values]) -> int:
    """What values are all the same multiple of; 0 where they are not."""
    products = list(map(math.prod, zip(*factors, strict=True)))
    found = {divmod(one, other) if other else (0, 1) for one, other in zip(values, products, strict=True)}
    times, rest = found.pop()
    return times if not found and not rest else 0
