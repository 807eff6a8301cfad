"""What a walk through a Triton kernel notes down: accesses, products, polls, and the marks of an online softmax."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from tritonsmith.evaluator.texts.source.forms import Polynomial
from tritonsmith.evaluator.texts.source.kernel_file import KernelSource
from tritonsmith.evaluator.texts.source.values import NOTHING, AccessSite, Env, KernelWalk, Product, Rescale, Use, Value

_CHAIN = 3
"""So many products in one sum are noted, whatever they are added to."""


@dataclass(frozen=True)
class Conditions:
    """Under what a statement stands."""

    guards: frozenset[int] = frozenset()
    """Conditions about program ids."""
    sides: frozenset[int] = frozenset()
    """Sides of branches that are the same for all programs and iterations."""
    after_arrival: bool = False
    """Whether one is about what an atomic gave back."""
    elected: bool = False
    """The same, also where it picks the first program that an atomic counts."""

    def under(self, test: Value, side: int) -> Conditions:
        """These and one more; `side` is 1, or -1 for the other side."""
        guard, fixed = frozenset({side * (abs(test.signature) + 1)}), not (test.pids or test.loops or test.reads or test.carried)
        guards = self.guards | guard if test.pids else self.guards
        arrived = self.after_arrival or test.atomic and not _is_first(test, side)
        return Conditions(guards, self.sides | guard if fixed else self.sides, arrived, self.elected or test.atomic)


def _is_first(test: Value, side: int) -> bool:
    """Whether a condition picks the first program that an atomic counts, which waits for nobody: the one that finds 0."""
    symbols = list(test.form.symbols())
    if len(symbols) != 1 or len(symbols[0].parts) != 2 or not symbols[0].key.startswith("CompareEq" if side > 0 else "CompareNotEq"):
        return False
    counted = [part for part in symbols[0].parts if part.terms]
    return len(counted) == 1 and all(symbol.key.startswith("loaded") for symbol in counted[0].symbols())


class WalkNotes:
    """The notes on one kernel, and the place of the walk in its loops.

    Args:
        index: the file with the kernel.
        facts: where the notes go.
        evaluate: what the walk makes of an expression.
    """

    def __init__(self, index: KernelSource, facts: KernelWalk, evaluate: Callable[[ast.AST | None, Env], Value]) -> None:
        self._index = index
        self._facts = facts
        self._evaluate = evaluate
        self.loops: tuple[int, ...] = ()
        """Loops around the statement that is walked through, outermost first."""
        self.silent = 0
        """Above zero nothing is noted that would count twice: in all passes over a loop's body but the last."""
        self.around = Conditions()
        """Conditions around the statement."""
        self.stored: dict[Polynomial, Value] = {}
        """What the iteration that is walked through has stored, by address."""
        self._scaled: set[tuple[int, str]] = set()

    def note_access(self, site: AccessSite) -> None:
        """A load, a store or an atomic."""
        if not self.silent:
            self._facts.accesses.append(site)

    def note_condition(self, test: Value, side: int) -> None:
        """A condition, by the numbers that stand in guards where it holds and where it does not."""
        number = side * (abs(test.signature) + 1)
        self._facts.conditions |= {number: (test, True), -number: (test, False)}

    def note_operation(self, name: str, signature: int, first: Value, second: Value, line: int) -> None:
        """A sum, difference or product of two values."""
        if name in ("Add", "Sub", "Mult"):
            self._facts.operations[signature] = (name, first.signature, second.signature, line)
            self._facts.loops_at[line] = self.loops
        if name == "Mult":
            self.note_gates(first, second)
            self._facts.factors[signature] = first, second
            self._note_rescaling(first, second, line)
        elif name == "Sub":
            self._facts.differences[signature] = first, second

    def _note_rescaling(self, first: Value, second: Value, line: int) -> None:
        """An old total times an exponential of what another carried name was, wherever it stands, such as in what a helper returns."""
        for total, factor in ((first, second), (second, first)) if self.loops and not self.silent else ():
            old = {name for owner, name, use in total.carried if owner == self.loops[-1] and use is Use.COPY}
            others = {name for owner, name, use in factor.carried if owner == self.loops[-1] and use is Use.EXPONENT}
            if old and others - old:
                self._facts.rescales.append(Rescale("scaling", line, self.loops))

    def note_gates(self, first: Value, second: Value) -> None:
        """Two factors: a name that the innermost loops carry may be multiplied by what the iteration loads."""
        for carried, other in ((first, second), (second, first)):
            names = {(owner, name) for owner, name, _ in carried.carried}
            for owner, name in names:
                moved = any(f"loop:{owner}" in origin.deps for origin in other.origins)
                if moved and not other.mixed and not any(loop == owner for loop, *_ in other.carried):
                    self._facts.loops[owner].gated.add(name)

    def note_dot(self) -> None:
        """A product of tiles, for the kernel and all loops around."""
        self._facts.has_dot = True
        for loop in self.loops:
            self._facts.loops[loop].has_dot = True

    def note_products(self, target: str, value: ast.expr | None, env: Env, *, needs_name: bool = False) -> None:
        """The products that are added to a total.

        Args:
            target: name of the total.
            value: what is added, or with `needs_name` what the total becomes.
            env: values of names before.
            needs_name: whether only a sum in which the total itself stands counts.
        """
        if self.silent or value is None:
            return
        terms = list(_terms_of(value))
        self.silent += 1
        factors = [(term, pair) for term in terms if (pair := self._find_factors(term, env))]
        totals = self._find_totals(target, terms, env)
        self.silent -= 1
        named = any(isinstance(term, ast.Name) and self._is_total(term.id, target, env) for term in terms)
        if needs_name and not named and len(factors) < _CHAIN:
            return
        for term, (left, right) in factors:
            outer = {left.axes, right.axes} == {frozenset({0}), frozenset({1})}
            summed = isinstance(term, ast.Call) and self._index.resolve_language_name(term.func) == "sum"
            loops = self.loops if named or not needs_name else ()
            self._facts.products.append(Product(term.lineno, left, right, loops, target, outer, summed, totals, self.around.sides))

    def _find_totals(self, target: str, terms: list[ast.expr], env: Env) -> frozenset[tuple[int, str]]:
        """What the innermost loop carries that a sum goes on from: the target, or a name among the terms."""
        names = [target, *(term.id for term in terms if isinstance(term, ast.Name))]
        carried = [item for name in names for item in env.get(name, NOTHING).carried] if self.loops else []
        return frozenset((owner, name) for owner, name, use in carried if owner == self.loops[-1] and use <= Use.SUM)

    def _find_factors(self, term: ast.expr, env: Env) -> tuple[Value, Value] | None:
        """The two factors of a product, looking through tl.sum(...), fma, names and helpers."""
        pair = _factors_of(self._index, term)
        if pair:
            return self._evaluate(pair[0], env), self._evaluate(pair[1], env)
        if isinstance(term, ast.Call) and term.args and self._index.resolve_language_name(term.func) == "sum":
            term = term.args[0]
        helper = isinstance(term, ast.Call) and isinstance(term.func, ast.Name) and term.func.id in self._index.jit
        if not helper and not isinstance(term, ast.Name):
            return None
        return self._facts.factors.get(self._evaluate(term, env).signature)

    def _is_total(self, name: str, target: str, env: Env) -> bool:
        """Whether a name is the target itself or, in a helper, holds what the innermost loop carries."""
        copies = (bool(self.loops) and owner == self.loops[-1] and use is Use.COPY for owner, _, use in env.get(name, NOTHING).carried)
        return name == target or not target and any(copies)

    def note_softmax(self, name: str, node: ast.Call, env: Env, result: Value) -> None:
        """A running maximum, or an exponential of the difference to a carried name."""
        if self.silent or not self.loops:
            return
        loop = self.loops[-1]
        if name == "maximum" and any(owner == loop for owner, *_ in result.carried):
            self._facts.rescales.append(Rescale("maximum", node.lineno, self.loops))
        if name in ("exp", "exp2", "math.exp", "math.exp2", "libdevice.exp") and node.args:
            self.silent += 1
            exponent = self._evaluate(node.args[0], env)
            self.silent -= 1
            if any(owner == loop and use is Use.COPY for left in self._find_minuends(exponent) for owner, _, use in left.carried):
                self._facts.rescales.append(Rescale("exponential", node.lineno, self.loops))

    def _find_minuends(self, value: Value, depth: int = 4) -> list[Value]:
        """What others are subtracted from in a difference, also in one that is multiplied by a number."""
        if difference := self._facts.differences.get(value.signature):
            return [difference[0]]
        parts = self._facts.factors.get(value.signature, ()) if depth else ()
        return [left for part in parts for left in self._find_minuends(part, depth - 1)]

    def note_scaling(self, target: str, value: ast.expr, env: Env, direct: bool) -> None:
        """A carried total that is multiplied by a factor which rests on another carried name.

        With `direct` this is `total *= value`, otherwise `total = value`, where the total is a factor somewhere in `value`.
        """
        own = {name for owner, name, _ in env.get(target, NOTHING).carried if owner in self.loops[-1:]}
        if self.silent or not own:
            return
        factors = [value] if direct else _partners_of(target, value)
        self.silent += 1
        carried = (pair for factor in factors for pair in self._evaluate(factor, env).carried)
        found = any(name not in own and loop == self.loops[-1] for loop, name, _ in carried)
        self.silent -= 1
        if found:
            self._facts.rescales.append(Rescale("scaling", value.lineno, self.loops))
            self._scaled.add((self.loops[-1], target))
        if (self.loops[-1], target) in self._scaled and any(self._weighs(part, env) for part in ast.walk(value)):
            self._facts.rescales.append(Rescale("weighted", value.lineno, self.loops))

    def _weighs(self, node: ast.AST, env: Env) -> bool:
        """Whether it is tl.sum(a * b), or a weight that rests on sums of products times a tile that is loaded."""
        if _is_sum_of_products(self._index, node):
            return True
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            return False
        self.silent += 1
        left, right = self._evaluate(node.left, env), self._evaluate(node.right, env)
        self.silent -= 1
        pairs = ((left, right), (right, left))
        return any(one.mixed and one.reads and other.reads and not other.mixed and other.rank > 0 for one, other in pairs)


def _partners_of(target: str, value: ast.expr) -> list[ast.expr]:
    """What stands across from the name in each product within an expression."""
    products: list[tuple[ast.expr, ast.expr]] = []
    for part in ast.walk(value):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
            products.append((part.left, part.right))
        elif isinstance(part, ast.Call) and ast.unparse(part.func).rpartition(".")[2] == "fma" and len(part.args) > 2:
            products.append((part.args[0], part.args[1]))
    return [
        other
        for left, right in products
        for own, other in ((left, right), (right, left))
        if any(isinstance(part, ast.Name) and part.id == target for part in ast.walk(own))
    ]


def _terms_of(node: ast.expr) -> list[ast.expr]:
    """Terms of a sum."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return [*_terms_of(node.left), *_terms_of(node.right)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fma" and len(node.args) > 2:
        return [node, *_terms_of(node.args[2])]
    return [node]


def _factors_of(index: KernelSource, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The two factors of a product, looking through tl.sum(...) and fma."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return node.left, node.right
    if isinstance(node, ast.Call):
        name = index.resolve_language_name(node.func)
        if name == "sum" and node.args:
            return _factors_of(index, node.args[0])
        if name.endswith("fma") and len(node.args) >= 2:
            return node.args[0], node.args[1]
    return None


def _is_sum_of_products(index: KernelSource, node: ast.AST) -> bool:
    """tl.sum(a * b)."""
    if not isinstance(node, ast.Call) or index.resolve_language_name(node.func) != "sum" or not node.args:
        return False
    return isinstance(node.args[0], ast.BinOp) and isinstance(node.args[0].op, ast.Mult)
