"""What a loop runs over, whether it waits, and what an iteration does to what the one before left."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tritonsmith.evaluator.texts.source.forms import ONE, ZERO, Polynomial, make_number, make_symbol
from tritonsmith.evaluator.texts.source.values import AccessSite, Env, Loop, Use, Value, combine, union

_MOST_NAMES = 60
"""In loops with more carried names each is followed only to itself."""
Evaluate: TypeAlias = Callable[[ast.AST | None, Env], Value]


def open_loop(key: int, node: ast.For | ast.While, outer: tuple[int, ...], guards: frozenset[int]) -> Loop:
    """The record of a loop, with nothing known of it."""
    unrolled = isinstance(node, ast.For) and "static_range" in ast.unparse(node.iter).partition("(")[0]
    kind = "static" if unrolled else "for" if isinstance(node, ast.For) else "while"
    return Loop(key, node.lineno, kind, outer, guards=guards)


def read_head(node: ast.For, loop: Loop, env: Env, evaluate: Evaluate) -> Value:
    """The value of a for loop's variable; the loop gets its bounds."""
    bounds = [argument for argument in node.iter.args] if isinstance(node.iter, ast.Call) else []
    values = [evaluate(bound, env) for bound in bounds[:3]]
    loop.bound = ast.unparse(bounds[min(1, len(bounds) - 1)]) if bounds else ""
    number = make_symbol("loop", str(loop.id))
    if not values:
        loop.step = ONE
        if isinstance(node.iter, ast.Tuple | ast.List):
            loop.last = make_number(len(node.iter.elts))
        return Value(hash(("loop", loop.id)), loops=frozenset({loop.id}), form=number)
    loop.first = values[0].form if len(values) > 1 else ZERO
    loop.last = values[min(1, len(values) - 1)].form
    loop.step = values[2].form if len(values) > 2 else ONE
    whole = union(*values, signature=hash(("loop", loop.id)), roots=False, form=loop.first + loop.step * number)
    return replace(whole, loops=whole.loops | {loop.id}, rank=0, reads=frozenset(), origins=frozenset(), carried=frozenset())


def read_loop_test(test: ast.expr, loop: Loop, env: Env, evaluate: Evaluate) -> None:
    """The bounds of a while loop that counts: `while i < n` with an i that grows by even steps."""
    for part in _split_test(test):
        if not isinstance(part, ast.Compare) or len(part.comparators) != 1:
            continue
        for left, right in ((part.left, part.comparators[0]), (part.comparators[0], part.left)):
            form = evaluate(left, env).form
            for variable in loop.variables:
                ahead = form - variable  # `while i + 1 < n`
                if ahead.constant is not None:
                    loop.step = variable.coefficient(loop.name)
                    loop.first = variable - loop.step * make_symbol("loop", str(loop.id))
                    loop.last = evaluate(right, env).form - ahead
                    loop.bound = ast.unparse(right)
                    return


def note_trips(loop: Loop) -> None:
    """The number of iterations, where the bounds are numbers."""
    first, last, step = loop.first.constant, loop.last.constant if loop.last else None, loop.step.constant if loop.step else None
    if first is not None and last is not None and step:
        loop.trips = len(range(first, last, step))


def find_polled_parts(
    node: ast.While, loop: Loop, at_test: Env, left: Env, accesses: Sequence[AccessSite], evaluate: Evaluate
) -> None:
    """Whether a while loop waits: it goes on until memory that an iteration reads at one fixed place holds something else.

    A part of the test that compares a counter of the loop is none that waits, and a loop that stores or takes work from a counter waits
    for nobody.
    """
    test, body = node.test, node.body
    for part in _split_test(test):
        value = evaluate(part, at_test)
        if any(isinstance(inner, ast.Name) and at_test[inner.id].form in loop.variables for inner in _names_in(part, at_test)):
            continue
        sources = [value, *(left[name] for owner, name, _ in value.carried if owner == loop.id and name in left)]
        fixed = any(loop.name not in origin.deps for source in sources for origin in source.origins)
        counted = any(source.atomic for source in sources) and any(_takes_work(access, loop) for access in accesses)
        if counted:
            loop.queue = True
        elif fixed and not any(access.kind == "store" for access in accesses):
            loop.polls = True
            loop.by_program |= bool(value.pids)
            if locks := [access.swaps for access in accesses if access.swaps]:
                loop.lock = all(before != after for before, after in locks)
        elif _may_stand_still(part, body, at_test) and accesses and not any(access.kind == "store" for access in accesses):
            loop.polls = True


def _may_stand_still(part: ast.expr, body: list[ast.stmt], env: Env) -> bool:
    """Whether some way through the body changes nothing that a condition names, so that only memory can end the loop."""
    names = {inner.id for inner in _names_in(part, env)}
    return bool(names) and not _changes(body, names) and any(_changes([statement], names, always=False) for statement in body)


def _changes(body: list[ast.stmt], names: set[str], always: bool = True) -> bool:
    """Whether statements set one of some names, on every way through them or on any."""
    for statement in body:
        if always and isinstance(statement, ast.If):
            if statement.orelse and _changes(statement.body, names) and _changes(statement.orelse, names):
                return True
        elif any(isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each.id in names for each in ast.walk(statement)):
            return True
    return False


def _takes_work(access: AccessSite, loop: Loop) -> bool:
    """Whether an access in the loop lies where a counter says that came from an atomic."""
    return access.kind in ("store", "load") and bool(access.address.atomic or any(owner == loop.id for owner, *_ in access.address.carried))


def _names_in(part: ast.expr, env: Env) -> list[ast.Name]:
    return [inner for inner in ast.walk(part) if isinstance(inner, ast.Name) and inner.id in env]


def _split_test(test: ast.expr) -> list[ast.expr]:
    """Parts of a condition that are joined by and, or, & or |."""
    if isinstance(test, ast.BoolOp):
        return [part for value in test.values for part in _split_test(value)]
    if isinstance(test, ast.BinOp) and isinstance(test.op, ast.BitAnd | ast.BitOr):
        return [*_split_test(test.left), *_split_test(test.right)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _split_test(test.operand)
    return [test]


def read_updates(loop: Loop, left: dict[str, Value]) -> None:
    """What an iteration does to each name that rests on itself, also by way of other names that the loop carries."""
    edges: dict[tuple[str, str], Use] = {}
    for name, value in left.items():
        for owner, before, use in value.carried:
            if owner == loop.id and before in left:
                edges[before, name] = max(use, edges.get((before, name), Use.COPY))
    names = sorted({name for pair in edges for name in pair})
    if len(names) <= _MOST_NAMES:
        for middle in names:
            for first in names:
                for last in names:
                    if (first, middle) in edges and (middle, last) in edges:
                        use = combine(edges[first, middle], edges[middle, last])
                        edges[first, last] = max(use, edges.get((first, last), Use.COPY))
    loop.updates = {name: edges[name, name] for name in names if (name, name) in edges and _rests_on_data(loop, left[name])}
    loop.tiles = {name for name in loop.updates if left[name].rank > 0}
    loop.dotted = {name for name in loop.updates if left[name].dotted}
    loop.reduced = {name for name in loop.dotted if left[name].rank < 2}


def _rests_on_data(loop: Loop, value: Value) -> bool:
    """Whether it is more than a counter or a pointer: it rests on loaded values, or on tiles."""
    return bool(value.reads) or value.rank > 0 and not value.roots


def is_multiple_of_programs(form: Polynomial) -> bool:
    """Whether a step depends on how many programs there are."""
    return any(dep.startswith("programs:") for dep in form.deps)
