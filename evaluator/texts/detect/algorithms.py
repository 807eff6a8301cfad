"""Algorithms of high complexity, by their arithmetic: Flash Attention, Winograd convolution, the fast Fourier transform."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import TypeAlias

from tritonsmith.evaluator.texts.detect.records import Trait, TraitHit
from tritonsmith.evaluator.texts.source.kernel_file import KernelSource
from tritonsmith.evaluator.texts.source.parse import parse_expression
from tritonsmith.evaluator.texts.source.values import KernelWalk, Loop

_Matrix: TypeAlias = tuple[tuple[float, ...], ...]

_WINOGRAD_MATRICES = (
    "[[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]",
    "[[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]",
    "[[1, 1, 1, 0], [0, 1, -1, -1]]",
    "[[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]",
    "[[1/4, 0, 0], [-1/6, -1/6, -1/6], [-1/6, 1/6, -1/6], [1/24, 1/12, 1/6], [1/24, -1/12, 1/6], [0, 0, 1]]",
    "[[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]",
)
"""Input, filter and output transforms of F(2x2, 3x3) and F(4x4, 3x3), Lavin and Gray 2015."""


def find_flash_attention(walk: KernelWalk) -> TraitHit | None:
    """Online softmax around products with values: a running maximum by whose change earlier totals are scaled."""
    for loop, marks in find_flash_loops(walk):
        return TraitHit(
            name=Trait.HIGH_COMPLEXITY,
            line=loop.line,
            evidence=f"{walk.name}: online softmax as in Flash Attention: running maximum in line {marks['maximum']}, "
            f"totals scaled by its change in line {marks['scaling']}",
        )
    return None


def find_flash_loops(walk: KernelWalk) -> Iterator[tuple[Loop, dict[str, int]]]:
    """Loops of Flash Attention with the lines of its marks."""
    for loop in walk.loops.values():
        marks = {mark.kind: mark.line for mark in walk.rescales if mark.loops and mark.loops[-1] == loop.id}
        if (loop.dotted - loop.reduced or "weighted" in marks) and {"maximum", "exponential", "scaling"} <= marks.keys():
            yield loop, marks


def find_winograd_transform(walk: KernelWalk) -> TraitHit | None:
    """The input transform of F(2x2, 3x3) on four values: a - c, b + c, c - b, b - d."""
    sums = {pair: line for pair, line in _pairs(walk, "Add")} | {(right, left): line for (left, right), line in _pairs(walk, "Add")}
    differences = {pair: line for pair, line in _pairs(walk, "Sub")}
    for (third, second), line in sorted(differences.items(), key=lambda item: item[1]):
        if (second, third) not in sums:
            continue
        firsts = {left for left, right in differences if right == third} - {second}
        fourths = {right for left, right in differences if left == second} - {third}
        if any(first != fourth for first in firsts for fourth in fourths):
            text = f"{walk.name}: line {line} belongs to the input transform of Winograd F(2x2, 3x3): a - c, b + c, c - b, b - d"
            return TraitHit(name=Trait.HIGH_COMPLEXITY, line=line, evidence=text)
    return None


def find_fourier_transform(walk: KernelWalk) -> TraitHit | None:
    """A butterfly: complex values times complex factors, added to others and subtracted from the same."""
    turned = {part: line for part, line, _ in _find_complex_products(walk)}
    added: dict[int, set[int]] = {}
    taken: dict[int, set[int]] = {}
    for (left, right), _ in _pairs(walk, "Add"):
        added.setdefault(right, set()).add(left)
        added.setdefault(left, set()).add(right)
    for (left, right), _ in _pairs(walk, "Sub"):
        taken.setdefault(right, set()).add(left)
    both = {part: line for part, line in turned.items() if added.get(part, set()) & taken.get(part, set())}
    sums = {frozenset(pair) for pair, _ in _pairs(walk, "Add")}
    halves = {key for key, (name, left, right, _) in walk.operations.items() if name == "Sub" and frozenset((left, right)) in sums}
    both |= {part: line for part, line, factors in _find_complex_products(walk) if len(factors & halves) > 1}
    if len(both) < 2:
        return None
    line = min(both.values())
    text = f"{walk.name}: a butterfly of a fast Fourier transform: what line {line} turns is added to others and subtracted from them"
    return TraitHit(name=Trait.HIGH_COMPLEXITY, line=line, evidence=text)


def _pairs(walk: KernelWalk, op: str) -> Iterator[tuple[tuple[int, int], int]]:
    for name, left, right, line in walk.operations.values():
        if name == op and left != right:
            yield (left, right), line


def _find_complex_products(walk: KernelWalk) -> Iterator[tuple[int, int, frozenset[int]]]:
    """Both parts of complex products, ac - bd and ad + bc: signature, line, and the signatures of a, b, c and d."""
    products = {key: frozenset((left, right)) for key, (name, left, right, _) in walk.operations.items() if name == "Mult"}
    signed: dict[str, list[tuple[int, frozenset[int], frozenset[int], int]]] = {"Add": [], "Sub": []}
    for key, (name, left, right, line) in walk.operations.items():
        if name in signed and left in products and right in products and products[left] != products[right]:
            signed[name].append((key, products[left], products[right], line))
    for real, first, second, line in signed["Sub"]:
        for imaginary, third, fourth, other in signed["Add"]:
            whole = first | second
            if whole == third | fourth and len(whole) == 4 and {first, second} != {third, fourth}:
                yield real, line, whole
                yield imaginary, other, whole


def find_winograd_matrices(index: KernelSource) -> TraitHit | None:
    """The transform matrices as literals, also transposed."""
    for literal in index.nodes:
        if isinstance(literal, ast.List | ast.Tuple) and _read_matrix(literal) in _find_known_matrices():
            text = f"line {literal.lineno}: a transform matrix of Winograd convolution"
            return TraitHit(name=Trait.HIGH_COMPLEXITY, line=literal.lineno, evidence=text)
    return None


@cache
def _find_known_matrices() -> frozenset[_Matrix | None]:
    return frozenset(_read_matrix(parse_expression(matrix)) for matrix in _WINOGRAD_MATRICES)


def _read_matrix(node: ast.expr) -> _Matrix | None:
    """The numbers of a literal matrix; of the matrix and its transpose, the one with fewer rows or smaller numbers.

    So 1 and 1.0, lists and tuples compare equal.
    """
    if not isinstance(node, ast.List | ast.Tuple) or not all(isinstance(row, ast.List | ast.Tuple) for row in node.elts):
        return None
    rows = [[_read_number(value) for value in row.elts] for row in node.elts if isinstance(row, ast.List | ast.Tuple)]
    numbers = tuple(tuple(value for value in row if value is not None) for row in rows)
    if {len(row) for row in numbers} != {len(rows[0]) if rows else 0} or sum(map(len, numbers)) != sum(map(len, rows)):
        return None
    return min(numbers, tuple(zip(*numbers, strict=True)), key=lambda matrix: (len(matrix), matrix))


def _read_number(node: ast.expr) -> float | None:
    """A number as a literal, a quotient of two, or either with a sign."""
    if isinstance(node, ast.Constant):
        return round(float(node.value), 6) if isinstance(node.value, int | float) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _read_number(node.operand)
        return None if value is None else -value or 0.0
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        above, below = _read_number(node.left), _read_number(node.right)
        return round(above / below, 6) if above is not None and below else None
    return None
