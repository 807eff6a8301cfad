"""Expressions that many kernels have: conditions that hold together, memory that is read and stored, ranges of places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tritonsmith.author.compiler.ir.code import (
    Assign,
    Attribute,
    Binary,
    Call,
    Evaluate,
    Expression,
    For,
    Keyword,
    Name,
    Statement,
    Word,
    number,
)  # fmt: skip
from tritonsmith.author.compiler.ir.precedence import tidy
from tritonsmith.author.compiler.ir.template import expression

_LOAD, _STORE = expression("tl.load"), expression("tl.store")
ROWS, BLOCK = Name("ROWS"), Name("BLOCK")
"""Constants of a kernel: rows of a program, and places of them at once."""


def join_tests(tests: Iterable[Expression]) -> Expression | None:
    """The condition that all of these hold, each said once; None where there are none."""
    joined: Expression | None = None
    for test in dict.fromkeys(tests):
        joined = test if joined is None else tidy(Binary(joined, "&", test))
    return joined


def choose(test: Expression | None, value: Expression, neutral: Expression) -> Expression:
    """A value where a condition holds, and another one elsewhere; the value alone where there is no condition."""
    return value if test is None else expression("tl.where({c}, {a}, {b})", c=test, a=value, b=neutral)


def load(address: Expression, mask: Expression | None, neutral: Expression, options: Sequence[Keyword] = ()) -> Call:
    """The elements at an address; `neutral` where the mask does not hold."""
    masked = () if mask is None else (Keyword("mask", mask), Keyword("other", neutral))
    return Call(_LOAD, (address,), (*masked, *options))


def store(address: Expression, value: Expression, mask: Expression | None, options: Sequence[Keyword] = ()) -> Statement:
    """The statement that stores elements where the mask holds."""
    return Evaluate(Call(_STORE, (address, value), (*(() if mask is None else (Keyword("mask", mask),)), *options)))


def assign(name: str, value: Expression) -> Assign:
    """`name = value`."""
    return Assign((Name(name),), value=value)


def loop(name: str, *bounds: int | Expression, body: Iterable[Statement] = (), kind: str = "range") -> For:
    """A loop of a variable over a range: `loop("k", 0, 64, block)`."""
    return For(Name(name), expression(f"{kind}({{*bounds}})", bounds=bounds), tuple(body))


def add(*terms: Expression | int | None) -> Expression:
    """The sum of terms from the left, sums among them flattened; what is None or 0 is left out: `add(Name("p"), 0, i)` is `p + i`."""
    total: Expression | None = None
    for term in terms:
        if term is not None and term != 0:
            node = number(term) if isinstance(term, int) else term
            total = node if total is None else _append(total, node)
    return number(0) if total is None else total


def _append(total: Expression, term: Expression) -> Expression:
    if isinstance(term, Binary) and term.operator in ("+", "-"):
        return tidy(Binary(_append(total, term.left), term.operator, term.right))
    return tidy(Binary(total, "+", term))


def times(value: Expression, factor: int) -> Expression:
    """`value * factor`."""
    return tidy(Binary(value, "*", number(factor)))


def divide(value: Expression, by: int) -> Expression:
    """`value // by`."""
    return tidy(Binary(value, "//", number(by)))


def widen(value: Expression, wide: bool) -> Expression:
    """A place, in 64 bits where it must be."""
    return expression("{value}.to(tl.int64)", value=value) if wide else value


def is_name(node: Expression) -> bool:
    """Whether an expression is a variable or a word that computes nothing."""
    return isinstance(node, Name | Word)


def reads(call: Expression) -> Call | None:
    """The load that an expression is, whatever type it is brought to; None for any other."""
    while isinstance(call, Call) and isinstance(call.function, Attribute) and call.function.name == "to":
        call = call.function.value
    return call if isinstance(call, Call) and call.function == _LOAD else None


def stores(node: Statement) -> bool:
    """Whether a statement stores elements."""
    return isinstance(node, Evaluate) and isinstance(node.value, Call) and node.value.function == _STORE


def options(**values: str | bool) -> tuple[Keyword, ...]:
    """Keywords of a call whose values are strings or truths."""
    return tuple(Keyword(key, Word(str(value)) if isinstance(value, bool) else _quote(value)) for key, value in values.items())


def _quote(text: str) -> Expression:
    return expression(f'"{text}"')
