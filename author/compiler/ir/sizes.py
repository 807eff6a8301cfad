"""Whole numbers that know which symbols they came from."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, SupportsIndex

from tritonsmith.author.compiler.ir.code import Binary, Expression, Name, Number, SymbolicInt, Unary, number
from tritonsmith.author.compiler.ir.printer import print_expression

_Product = tuple[Expression, ...]
_Sum = dict[_Product, int]
"""A sum: the factor of each product of atoms; the empty product stands for a number alone."""
Arithmetic = Callable[[int, int], int]
_CALCULATE: dict[str, Arithmetic] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
}  # fmt: skip


class Size(SymbolicInt):
    """An int with the expression of symbols that it is the value of.

    It is compared and hashed as the plain int, and printed as its expression: text that depends on a symbol says so.
    Arithmetic with ints gives Sizes; `sum` and `math.prod` keep them. What is no arithmetic of whole numbers (`/`, bits,
    `float`, `int`) gives plain numbers. `min` and `max` give one of their arguments, and `abs` a Size or its negation.
    """

    _expression: Expression | None
    _sum: _Sum | None

    def __new__(cls, value: int, expression: Expression) -> Size:
        """A Size of a value and the expression that gives it."""
        self = super().__new__(cls, value)
        self._expression, self._sum = expression, None
        return self

    @property
    def expression(self) -> Expression:
        """What gives the value. It is written when it is first asked for: most Sizes are steps of a calculation."""
        if self._expression is None:
            assert self._sum is not None, "a Size has one of the two"
            self._expression = _write(self._sum)
        return self._expression

    @property
    def sum(self) -> _Sum:
        """The expression as a sum of products."""
        if self._sum is None:
            assert self._expression is not None, "a Size has one of the two"
            self._sum = _read_sum(self._expression)
        return self._sum

    def __reduce__(self) -> tuple[type[Size], tuple[int, Expression]]:
        return Size, (int(self), self.expression)

    def __deepcopy__(self, memo: dict[int, Any]) -> Size:
        return self

    def __copy__(self) -> Size:
        return self

    def __add__(self, other: int) -> int:
        return _apply("+", self, other)

    def __radd__(self, other: int) -> int:
        return _apply("+", other, self)

    def __sub__(self, other: int) -> int:
        return _apply("-", self, other)

    def __rsub__(self, other: int) -> int:
        return _apply("-", other, self)

    def __mul__(self, other: int) -> int:
        return _apply("*", self, other)

    def __rmul__(self, other: int) -> int:
        return _apply("*", other, self)

    def __floordiv__(self, other: int) -> int:
        return _apply("//", self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _apply("//", other, self)

    def __mod__(self, other: int) -> int:
        return _apply("%", self, other)

    def __rmod__(self, other: int) -> int:
        return _apply("%", other, self)

    def __divmod__(self, other: int) -> tuple[int, int]:
        return _apply("//", self, other), _apply("%", self, other)

    def __rdivmod__(self, other: int) -> tuple[int, int]:
        return _apply("//", other, self), _apply("%", other, self)

    def __pow__(self, other: int, modulo: int | None = None) -> Any:
        return int(self) ** other if modulo is not None or other < 0 else _apply("**", self, other)

    def __rpow__(self, other: int, modulo: int | None = None) -> Any:
        return other ** int(self) if self < 0 else _apply("**", other, self)

    def __neg__(self) -> int:
        return _apply("-", 0, self)

    def __pos__(self) -> int:
        return self

    def __abs__(self) -> int:
        return self if self >= 0 else -self

    def __index__(self) -> int:
        return int(self)

    def __repr__(self) -> str:
        return print_expression(self.expression)

    def __format__(self, form: str) -> str:
        return format(int(self), form) if form else repr(self)

    def __round__(self, digits: SupportsIndex = 0) -> int:
        return self if int(digits) >= 0 else round(int(self), digits)


def symbol(name: str, value: int) -> Size:
    """A symbol with the value that it has here: `symbol("N", 1024) * 4` is 4096, of the expression `N * 4`."""
    return Size(value, Name(name))


# Arithmetic on sums: coefficients of products, which are sorted tuples of factors


def _apply(word: str, left: int, right: int) -> int:
    """The result of an operation of which one operand is a Size; NotImplemented where the other is no int."""
    if not isinstance(left, int) or not isinstance(right, int):
        return NotImplemented
    value = _CALCULATE[word](int(left), int(right))
    ours, theirs = _to_sum(left), _to_sum(right)
    match word:
        case "+" | "-":
            total = _add(ours, theirs, 1 if word == "+" else -1)
        case "*":
            total = _multiply(ours, theirs)
        case "//" | "%":
            total = _divide(word, left, right)
        case _:
            total = _raise(ours, left, right)
    return _to_size(value, total)


def _to_sum(value: int) -> _Sum:
    if not isinstance(value, Size):
        return {(): int(value)} if value else {}
    return value.sum


def _read_sum(node: Expression) -> _Sum:
    match node:
        case Number(value=int() as value):
            return {(): value} if value else {}
        case Unary(operator="-", operand=operand):
            return _add({}, _read_sum(operand), -1)
        case Binary(left=left, operator="+" | "-" as word, right=right):
            return _add(_read_sum(left), _read_sum(right), 1 if word == "+" else -1)
        case Binary(left=left, operator="*", right=right):
            return _multiply(_read_sum(left), _read_sum(right))
        case Binary(left=left, operator="**", right=Number(value=int() as power)):
            return _power(_read_sum(left), power)
        case _:
            return {(node,): 1}


def _add(left: _Sum, right: _Sum, sign: int) -> _Sum:
    if not right:
        return left
    total = dict(left)
    for product, factor in right.items():
        total[product] = total.get(product, 0) + sign * factor
    return {product: factor for product, factor in total.items() if factor}


def _multiply(left: _Sum, right: _Sum) -> _Sum:
    if right.keys() == {()}:
        return {product: factor * right[()] for product, factor in left.items()}
    if left.keys() == {()}:
        return {product: factor * left[()] for product, factor in right.items()}
    total: _Sum = {}
    for ours, first in left.items():
        for theirs, second in right.items():
            product = tuple(sorted((*ours, *theirs), key=repr)) if ours and theirs else ours or theirs
            total[product] = total.get(product, 0) + first * second
    return {product: factor for product, factor in total.items() if factor}


def _power(base: _Sum, power: int) -> _Sum:
    total: _Sum = {(): 1}
    for _ in range(power):
        total = _multiply(total, base)
    return total


_MOST_FACTORS = 8
"""The highest power that is multiplied out."""


def _raise(base: _Sum, left: int, right: int) -> _Sum:
    if not isinstance(right, Size) and right <= _MOST_FACTORS:
        return _power(base, int(right))
    return {(Binary(number(left), "**", number(right)),): 1}


def _divide(word: str, left: int, right: int) -> _Sum:
    """A quotient or a remainder: what the divisor divides leaves it, `(a * b + c) // b` is `a + c // b`."""
    divided: _Sum = {}
    rest = _to_sum(left)
    divisor = list(_to_sum(right).items())
    if len(divisor) == 1:
        quotients = {product: _take_out(product, factor, *divisor[0]) for product, factor in rest.items()}
        divided = dict(quotient for quotient in quotients.values() if quotient is not None)
        rest = {product: factor for product, factor in rest.items() if quotients[product] is None}
    if not rest:
        return divided if word == "//" else {}
    if not isinstance(right, Size) and rest.keys() == {()}:  # two numbers
        ratio = _CALCULATE[word](rest[()], int(right))
        return _add(divided if word == "//" else {}, {(): ratio} if ratio else {}, 1)
    node: Expression = Binary(_write(rest), word, number(right))
    return _add(divided if word == "//" else {}, {(node,): 1}, 1)


def _take_out(product: _Product, factor: int, by: _Product, number: int) -> tuple[_Product, int] | None:
    """A product divided by another one; None where that leaves a rest."""
    left = list(product)
    for atom in by:
        if atom not in left:
            return None
        left.remove(atom)
    return (tuple(left), factor // number) if factor % number == 0 else None


def _to_size(value: int, total: _Sum) -> int:
    if total.keys() <= {()}:
        return value
    size = int.__new__(Size, value)
    size._expression, size._sum = None, total
    return size


def _write(total: _Sum) -> Expression:
    """The expression of a sum: positive products first, a number last."""
    written: Expression | None = None
    for product, factor in sorted(total.items(), key=lambda entry: (entry[1] < 0, not entry[0])):
        term = _write_product(product, abs(factor))
        if written is None:
            written = term if factor > 0 else Unary("-", term)
        else:
            written = Binary(written, "+" if factor > 0 else "-", term)
    return number(0) if written is None else written


def _write_product(product: tuple[Expression, ...], factor: int) -> Expression:
    parts = [*product, *([number(factor)] if factor != 1 or not product else [])]
    written = parts[0]
    for part in parts[1:]:
        written = Binary(written, "*", part)
    return written
