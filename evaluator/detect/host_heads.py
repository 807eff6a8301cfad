"""Heads of host loops: what they run over, with zip, enumerate, counting and the like taken apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tritonsmith.evaluator.source.kernel_file import HostLoop

WRAPPERS = ("enumerate", "reversed", "list", "tuple", "iter", "tqdm", "zip", "islice", "sorted", "pairwise", "chain", "deque")
"""Functions that give back what they are given, element by element."""


@dataclass(frozen=True)
class Head:
    """One `for target in over`, also of a comprehension."""

    target: ast.expr
    over: ast.expr


def describe_loop(loop: HostLoop) -> str:
    """The head of a loop as it is written."""
    if isinstance(loop, ast.For):
        return f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"
    if isinstance(loop, ast.While):
        return f"while {ast.unparse(loop.test)}"
    return " ".join(ast.unparse(generator).strip() for generator in loop.generators)


def find_heads(loop: HostLoop) -> Iterator[Head]:
    """What a loop runs over, with zip, enumerate and the like taken apart."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(loop, ast.For):
        pairs = [(loop.target, _bound_count(loop))]
    elif not isinstance(loop, ast.While):
        pairs = [(generator.target, generator.iter) for generator in loop.generators]
    while pairs:
        target, over = pairs.pop()
        name = ast.unparse(over.func).rpartition(".")[2] if isinstance(over, ast.Call) else ""
        if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(over, ast.Call) and over.args:
            pairs.append((target.elts[1], over.args[0]))
            pairs.append((target.elts[0], _count_elements(over.args[0])))
        elif name in ("zip", "product") and isinstance(target, ast.Tuple) and len(target.elts) == len(getattr(over, "args", ())):
            assert isinstance(over, ast.Call)
            pairs += list(zip(target.elts, over.args, strict=True))
        elif name == "ndindex" and isinstance(target, ast.Tuple) and isinstance(over, ast.Call) and len(target.elts) == len(over.args):
            pairs += [(one, _make_range(extent)) for one, extent in zip(target.elts, over.args, strict=True)]
        elif name == "pairwise" and isinstance(target, ast.Tuple) and isinstance(over, ast.Call) and over.args:
            shifted = ast.Slice(None, ast.Constant(-1)), ast.Slice(ast.Constant(1))
            pairs += [(one, ast.Subscript(over.args[0], part, ast.Load())) for one, part in zip(target.elts, shifted, strict=False)]
        elif name in ("islice", "takewhile") and isinstance(over, ast.Call) and (counted := _read_counted(name, over)) is not None:
            pairs.append((target, _make_range(counted)))
        elif name in WRAPPERS and isinstance(over, ast.Call) and over.args:
            pairs.append((target, over.args[0]))
        else:
            yield Head(target, over)


def _is_count(node: ast.expr) -> bool:
    """`count()`, also `itertools.count(1)`."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "count" and len(node.args) < 2


def _read_counted(name: str, over: ast.Call) -> ast.expr | None:
    """Where counting ends in `islice(count(), n)` and `takewhile(lambda i: i < n, count())`."""
    if len(over.args) != 2 or not _is_count(over.args[name == "takewhile"]):
        return None
    if name == "islice":
        return over.args[1]
    test = over.args[0].body if isinstance(over.args[0], ast.Lambda) else None
    return test.comparators[0] if isinstance(test, ast.Compare) and len(test.ops) == 1 else None


def _bound_count(loop: ast.For) -> ast.expr:
    """What a loop runs over; a range for one over `count()` that a comparison of its variable ends."""
    if not _is_count(loop.iter) or not isinstance(loop.target, ast.Name):
        return loop.iter
    for left, right in pairwise(find_conditions(loop)):
        if ast.unparse(left) == loop.target.id:
            return _make_range(right)
        if ast.unparse(right) == loop.target.id:
            return _make_range(left)
    return loop.iter


def find_conditions(loop: ast.For | ast.While) -> Iterator[ast.expr]:
    """Sides of the comparisons that end a loop: its test, and those under which it is left; a number alone is compared with zero."""
    tests = [loop.test] if isinstance(loop, ast.While) else []
    for part in ast.walk(loop):
        if isinstance(part, ast.If) and any(isinstance(inner, ast.Break | ast.Return) for inner in (*part.body, *part.orelse)):
            tests.append(part.test)
    for test in tests:
        for part in ast.walk(test):
            if isinstance(part, ast.Compare):
                yield from (part.left, *part.comparators)
        if isinstance(test, ast.Name):
            yield test


def _count_elements(over: ast.expr) -> ast.expr:
    """`range(len(over))`."""
    return _make_range(ast.Call(ast.Name("len", ast.Load()), [over], []))


def _make_range(extent: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("range", ast.Load()), [extent], [])
