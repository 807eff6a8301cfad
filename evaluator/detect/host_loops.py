"""Loops of host code: what they run over, and whether each iteration works on data of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tritonsmith.evaluator.detect.grids import read_launch_arguments
from tritonsmith.evaluator.source.kernel_file import Call, HostLoop, KernelSource
from tritonsmith.evaluator.source.values import KernelWalk

WRAPPERS = ("enumerate", "reversed", "list", "tuple", "iter", "tqdm", "zip")
"""Functions that give back what they are given, element by element."""
_MAKERS = ("empty", "zeros", "empty_like", "zeros_like", "ones", "full", "new_empty", "new_zeros", "clone", "contiguous")
"""Functions that make a tensor of their own."""


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
    return " ".join(ast.unparse(generator) for generator in loop.generators)


def find_heads(loop: HostLoop) -> Iterator[Head]:
    """What a loop runs over, with zip, enumerate and the like taken apart."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(loop, ast.For):
        pairs = [(loop.target, loop.iter)]
    elif not isinstance(loop, ast.While):
        pairs = [(generator.target, generator.iter) for generator in loop.generators]
    while pairs:
        target, over = pairs.pop()
        name = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
        if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(over, ast.Call) and over.args:
            pairs.append((target.elts[1], over.args[0]))
            pairs.append((target.elts[0], _count_elements(over.args[0])))
        elif name == "zip" and isinstance(target, ast.Tuple) and isinstance(over, ast.Call) and len(target.elts) == len(over.args):
            pairs += list(zip(target.elts, over.args, strict=True))
        elif name in WRAPPERS and isinstance(over, ast.Call) and over.args:
            pairs.append((target, over.args[0]))
        else:
            yield Head(target, over)


def _count_elements(over: ast.expr) -> ast.expr:
    """`range(len(over))`."""
    length = ast.Call(ast.Name("len", ast.Load()), [over], [])
    return ast.Call(ast.Name("range", ast.Load()), [length], [])


def uses_name(node: ast.AST, name: str) -> bool:
    """Whether a name stands anywhere below a node."""
    return bool(name) and any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def is_independent(index: KernelSource, walks: Mapping[str, KernelWalk], loop: HostLoop, call: Call, function: ast.AST) -> bool:
    """Whether every iteration is proven to work on data of its own: it reads nothing that another one writes."""
    variables = {part.id for head in find_heads(loop) for part in ast.walk(head.target) if isinstance(part, ast.Name)}
    if call.kernel is None:
        return not _carries_name(loop) and not isinstance(loop, ast.While) and _stands_in(loop, call)
    if not _stands_in(loop, call) or call.kernel not in walks:
        return False
    arguments = read_launch_arguments(index, call)
    written = {root for access in walks[call.kernel].accesses if access.kind != "load" for root in access.address.roots}
    inside = {
        target.id: part.value
        for part in ast.walk(loop)
        if isinstance(part, ast.Assign)
        for target in part.targets
        if isinstance(target, ast.Name)
    }
    mine: dict[str, str] = {}
    for root in written:
        if root not in arguments:
            return False
        own = _find_own_part(arguments[root], variables, inside)
        if own is None:
            return False
        mine[own[0]] = own[1]
    for root, argument in arguments.items():
        base = _find_base(argument)
        if root not in written and base in mine and mine[base] and ast.unparse(argument) != mine[base]:
            return False  # out[t - 1] is read, out[t] is written
    given = {part.id for value in arguments.values() for part in ast.walk(value) if isinstance(part, ast.Name)}
    return bool(written) and not _carries_name(loop) & given


def _stands_in(loop: HostLoop, call: Call) -> bool:
    """Whether the call is written in the loop itself, not in a function that it enters."""
    return any(part is call.node for part in ast.walk(loop))


def _find_base(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _find_own_part(node: ast.expr, variables: set[str], inside: Mapping[str, ast.expr]) -> tuple[str, str] | None:
    """Name and text of a part that belongs to one iteration: out[i], the loop's variable itself, or a tensor made in the iteration."""
    if isinstance(node, ast.Name) and node.id in variables:
        return node.id, ""
    if isinstance(node, ast.Name) and node.id in inside:
        value = inside[node.id]
        if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _MAKERS:
            return node.id, ""
        return _find_own_part(value, variables, {})
    if isinstance(node, ast.Subscript) and any(uses_name(node.slice, name) for name in variables):
        return _find_base(node), ast.unparse(node)
    return None


def _carries_name(loop: HostLoop) -> set[str]:
    """Names that an iteration reads before it sets them."""
    if not isinstance(loop, ast.For | ast.While):
        return set()
    carried: set[str] = set()
    done: set[str] = set()
    for statement in loop.body:
        parts = list(ast.walk(statement))
        read = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
        written = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        carried |= read - done
        done |= written
    return carried & done
