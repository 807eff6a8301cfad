"""Equations of `einsum`: products of matrices where they are any, else products elementwise and sums. `tensordot`, `inner`."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

from tritonsmith.author.compiler.ir.operators import A, B
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import FLOATS, Tensor, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import formula
from tritonsmith.author.compiler.lowering.products import contract, multiply
from tritonsmith.author.compiler.lowering.reductions import find_moments, reduce
from tritonsmith.author.compiler.lowering.views import permute, reshape, swap, view


@dataclass(frozen=True)
class Term:
    """An operand, with a letter for each axis."""

    value: Tensor
    letters: str


def read_equation(equation: str, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]] | None:
    """The operands as [..., M, K] and [..., K, N], and which axes of their product [..., M, N] the result has in turn.

    None for equations that are no product of matrices, one for each place along the leading axes.
    """
    given, arrow, result = equation.replace(" ", "").partition("->")
    first, comma, second = given.partition(",")
    letters = (first, second, result)
    if not arrow or not comma or any(not one.isalpha() or len(set(one)) != len(one) for one in letters):
        return None
    leads = [letter for letter in result if letter in first and letter in second]
    rows = [letter for letter in result if letter in first and letter not in second]
    columns = [letter for letter in result if letter in second and letter not in first]
    summed = [letter for letter in first if letter in second and letter not in result]
    if (len(rows), len(columns), len(summed)) != (1, 1, 1) or len(result) != len(leads) + 2:
        return None
    wanted = ([*leads, *rows, *summed], [*leads, *summed, *columns])
    if any(len(want) != len(has) for want, has in zip(wanted, letters[:2], strict=True)):
        return None  # a letter that only one operand has is summed
    turned = [permute(one, tuple(has.index(letter) for letter in want))
              for one, has, want in zip((left, right), letters[:2], wanted, strict=True)]  # fmt: skip
    if turned[0].shape[:-2] != turned[1].shape[:-2]:
        return None
    plain = [*leads, *rows, *columns]
    return turned[0], turned[1], tuple(plain.index(letter) for letter in result)


def _contract_all(call: NodeCall) -> Lowered:
    """`einsum` of any number of tensors: two after the other."""
    equation = call.get(0, "equation")
    rest = call.args[1] if len(call.args) == 2 and isinstance(call.args[1], list | tuple) else call.args[1:]
    if not isinstance(equation, str) or not all(isinstance(one, Tensor) for one in rest):
        raise NotCovered("of other than tensors")
    terms, out = _read_terms(equation, list(rest))
    return _reduce_terms(terms, out, call)


def _reduce_terms(terms: list[Term], out: str, call: NodeCall) -> Tensor:
    """The terms put together, in the order of the letters that are left. Raises NotCovered."""
    if call.dtype not in FLOATS:
        raise NotCovered(f"on {call.dtype}")
    found = [_sum_letters(_show_diagonal(term), _list_needed(terms, place, out)) for place, term in enumerate(terms)]
    while len(found) > 1:
        first, second = _choose_pair(found, out)
        others = "".join(one.letters for one in found if one is not first and one is not second) + out
        kept = "".join(dict.fromkeys(letter for letter in first.letters + second.letters if letter in others))
        last = len(found) == 2
        node = call.node.name if last else f"{call.node.name}_part{len(found)}"
        made = _join(first, second, out if last and {*kept} == {*out} else kept, (call.name, node, widen(call.dtype)))
        found = [made, *(one for one in found if one is not first and one is not second)]
    (term,) = found
    if {*term.letters} != {*out}:
        raise NotCovered("with letters that no operand has")
    return permute(term.value, tuple(term.letters.index(letter) for letter in out))


def _read_terms(equation: str, values: list[Tensor]) -> tuple[list[Term], str]:
    """The operands with their letters, and those of the result; dots are letters too. Raises NotCovered."""
    given, arrow, out = equation.replace(" ", "").partition("->")
    texts = given.split(",")
    if len(texts) != len(values):
        raise NotCovered(equation)
    free = [letter for letter in string.ascii_letters if letter not in equation]
    ranks = [len(one.shape) - len(text.replace("...", "")) if "..." in text else 0 for text, one in zip(texts, values, strict=True)]
    dots = "".join(free[: max(ranks)])
    terms = []
    for text, value, rank in zip(texts, values, ranks, strict=True):
        letters = text.replace("...", dots[len(dots) - rank :] if rank else "")
        if len(letters) != len(value.shape) or not (letters.isalpha() or not letters):
            raise NotCovered(equation)
        terms.append(Term(value, letters))
    every = "".join(term.letters for term in terms)
    if not arrow:
        return terms, dots + "".join(sorted(letter for letter in {*every} - {*dots} if every.count(letter) == 1))
    sizes: dict[str, int] = {}
    for term in terms:
        for letter, size in zip(term.letters, term.value.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise NotCovered("of sizes that broadcast")
    return terms, out.replace("...", dots)


def _show_diagonal(term: Term) -> Term:
    """The operand with every letter once: of one that stands twice, the places where both are equal."""
    letters = "".join(dict.fromkeys(term.letters))
    if letters == term.letters:
        return term
    sizes = dict(zip(term.letters, term.value.shape, strict=True))
    shown = view(term.value, tuple(sizes[one] for one in letters), lambda at: tuple(at[letters.index(one)] for one in term.letters))
    return Term(shown, letters)


def _list_needed(terms: list[Term], place: int, out: str) -> str:
    """The letters of an operand that others have, or the result."""
    return out + "".join(one.letters for number, one in enumerate(terms) if number != place)


def _sum_letters(term: Term, needed: str) -> Term:
    """The operand with sums over letters that nothing else needs."""
    axes = tuple(axis for axis, letter in enumerate(term.letters) if letter not in needed)
    if not axes:
        return term
    total = reduce(term.value, axes, "sum", widen(term.value.dtype))
    return Term(total, "".join(letter for letter in term.letters if letter in needed))


def _choose_pair(terms: list[Term], out: str) -> tuple[Term, Term]:
    """The two operands to put together next: those whose product has the fewest letters."""
    pairs = [(one, other) for place, one in enumerate(terms) for other in terms[place + 1 :]]

    def count_letters(pair: tuple[Term, Term]) -> int:
        others = "".join(one.letters for one in terms if one not in pair) + out
        return sum(letter in others for letter in {*pair[0].letters, *pair[1].letters})

    return min(pairs, key=count_letters)


def _join(first: Term, second: Term, kept: str, as_: tuple[str, str, str]) -> Term:
    """Two operands put together: a product of matrices where it is one. It has a name, a node and a type."""
    name, node, wide = as_
    try:
        return Term(contract(first.value, second.value, (first.letters, second.letters, kept), name, node), kept)
    except NotCovered:
        pass
    letters = kept + "".join(dict.fromkeys(one for one in first.letters + second.letters if one not in kept))
    sides = [_spread(one, letters) for one in (first, second)]
    return _sum_letters(Term(formula(A * B, *sides, like=wide), letters), kept)


def _spread(term: Term, letters: str) -> Tensor:
    """The operand with an axis for each letter, of one element where it does not have that."""
    order = [term.letters.index(letter) for letter in letters if letter in term.letters]
    turned = permute(term.value, tuple(order))
    sizes = dict(zip(term.letters, term.value.shape, strict=True))
    return reshape(turned, tuple(sizes.get(letter, 1) for letter in letters))


def _dot_axes(call: NodeCall) -> Lowered:
    """`tensordot`: sums over axes of both operands."""
    left, right, axes = call.tensor(0, "a"), call.tensor(1, "b"), call.get(2, "dims", default=2)
    if isinstance(axes, int):
        first, second = [*range(len(left.shape) - axes, len(left.shape))], [*range(axes)]
    else:
        first, second = ([axis % len(one.shape) for axis in given] for given, one in zip(axes, (left, right), strict=True))
    letters = iter(string.ascii_letters)
    names = [next(letters) for _ in left.shape]
    others = [names[first[second.index(axis)]] if axis in second else next(letters) for axis in range(len(right.shape))]
    out = "".join(one for one in names if one not in others) + "".join(one for one in others if one not in names)
    return _reduce_terms([Term(left, "".join(names)), Term(right, "".join(others))], out, call)


def _multiply_rows(call: NodeCall) -> Lowered:
    """`inner`: rows of one operand times rows of the other one; `vdot` is that of vectors."""
    left, right = call.tensor(0, "input", "self"), call.tensor(1, "other")
    letters = string.ascii_letters
    first, second = letters[1 : len(left.shape)], letters[len(left.shape) : len(left.shape) + len(right.shape) - 1]
    return _reduce_terms([Term(left, first + "a"), Term(right, second + "a")], first + second, call)


def _trace(call: NodeCall) -> Lowered:
    """The sum of the diagonal of a matrix."""
    source = call.tensor(0, "input", "self")
    if len(set(source.shape)) > 1:
        raise NotCovered("of a matrix that is not square")
    return _reduce_terms([Term(source, "aa")], "", call)


def _multiply_kronecker(call: NodeCall) -> Lowered:
    """`kron`: a block of the second operand for each element of the first one."""
    left, right = call.tensor(0, "input", "self"), call.tensor(1, "other")
    if len(left.shape) != len(right.shape):
        raise NotCovered("of tensors with other axes")
    sides: list[Any] = [[size for pair in pairs for size in pair] for pairs in (
        [(size, 1) for size in left.shape], [(1, size) for size in right.shape]
    )]  # fmt: skip
    spread = [reshape(one, tuple(shape)) for one, shape in zip((left, right), sides, strict=True)]
    return reshape(formula(A * B, *spread, like=call.dtype), call.shape)


def _covary(call: NodeCall) -> Lowered:
    """`cov` and `corrcoef` of rows: the product of their distances from their means with themselves."""
    source = call.tensor(0, "input", "self")
    weights = [call.get(-1, name, default=None) for name in ("fweights", "aweights")]
    if len(source.shape) != 2 or len(call.args) > 1 or any(one is not None for one in weights):
        raise NotCovered("with weights")
    correlated, number = call.node.target.endswith("corrcoef"), source.shape[1]
    _, squares, distance = find_moments(source, (1,))
    product = multiply(distance, swap(distance, 0, 1), call.name, call.node.name)
    if not correlated:
        return formula(A / B, product, number - call.get(-1, "correction", default=1), like=call.dtype)
    sizes = formula(Op.SQRT(A) * Op.SQRT(B), squares, swap(squares, 0, 1), like=squares.dtype)
    return formula(Op.MINIMUM(Op.MAXIMUM(A / B, -1.0), 1.0), product, sizes, like=call.dtype)


TABLE: dict[str, Lower] = {
    "einsum": _contract_all, "tensordot": _dot_axes, "inner": _multiply_rows,
    "vdot": _multiply_rows, "trace": _trace, "kron": _multiply_kronecker,
    "cov": _covary, "corrcoef": _covary,
}  # fmt: skip
