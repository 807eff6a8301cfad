"""Where a value that reaches a launch is written in the text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tritonsmith.evaluator.texts.source.kernel_file import KernelSource

_DEPTH = 6
"""Names in a chain that are followed."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class Definition:
    """The one constant that a value comes from."""

    node: ast.Constant
    at_launch: bool
    """Whether it stands in the launch itself, so that the grid may repeat it."""


class Definitions:
    """Finds the constants that values come from.

    Args:
        index: the file.
    """

    def __init__(self, index: KernelSource) -> None:
        self._index = index
        self._above = {child: node for node in ast.walk(index.tree) for child in ast.iter_child_nodes(node)}

    def find(self, value: ast.expr, launch: ast.Call) -> Definition | None:
        """The constant behind an argument of a launch; None where it is computed or has several."""
        found = self._follow(value, launch, 0)
        return None if found is None else Definition(found, found is value)

    def find_grid(self, launch: ast.Call) -> ast.expr | None:
        """The expression of a launch's grid, through one name."""
        assert isinstance(launch.func, ast.Subscript)
        grid: ast.expr = launch.func.slice
        if isinstance(grid, ast.Name):
            values = self._values_of(grid.id, launch)
            return values[0] if len(values) == 1 else None
        return grid

    def find_entries(self, value: ast.expr, launch: ast.Call) -> dict[str, ast.expr]:
        """The entries of a dictionary that is unpacked into a launch."""
        if isinstance(value, ast.Name):
            values = self._values_of(value.id, launch)
            value = values[0] if len(values) == 1 else value
        if isinstance(value, ast.Dict):
            return {
                key.value: entry
                for key, entry in zip(value.keys, value.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
            return {word.arg: word.value for word in value.keywords if word.arg}
        return {}

    def _follow(self, value: ast.expr, at: ast.AST, depth: int) -> ast.Constant | None:
        if isinstance(value, ast.Constant):
            return value
        if depth > _DEPTH:
            return None
        if isinstance(value, ast.Subscript):
            entry = self._entry(value, at, depth)
            return None if entry is None else self._follow(entry, entry if entry in self._above else at, depth + 1)
        if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("constexpr") and len(value.args) == 1:
            return self._follow(value.args[0], at, depth + 1)
        if isinstance(value, ast.Name):
            values = self._values_of(value.id, at)
        elif isinstance(value, ast.Attribute):
            own = isinstance(value.value, ast.Name) and value.value.id == "self"
            values = (list(self._attribute_values(value.attr, at)) if own else []) or list(self._class_values(value.attr))
        else:
            return None
        if len(values) != 1:
            return None
        return self._follow(values[0], values[0] if values[0] in self._above else at, depth + 1)

    def _entry(self, value: ast.Subscript, at: ast.AST, depth: int) -> ast.expr | None:
        """What stands at a constant place of a tuple, list or dictionary."""
        holder: ast.expr = value.value
        if not isinstance(value.slice, ast.Constant):
            return None
        if isinstance(holder, ast.Name):
            values = self._values_of(holder.id, at)
        elif isinstance(holder, ast.Attribute):
            values = list(self._attribute_values(holder.attr, at)) or list(self._class_values(holder.attr))
        else:
            values = [holder]
        if len(values) != 1:
            return None
        holder, key = values[0], value.slice.value
        if isinstance(holder, ast.Tuple | ast.List) and isinstance(key, int) and -len(holder.elts) <= key < len(holder.elts):
            return holder.elts[key]
        if isinstance(holder, ast.Dict):
            entries = zip(holder.keys, holder.values, strict=True)
            found = [entry for name, entry in entries if isinstance(name, ast.Constant) and name.value == key]
            return found[0] if len(found) == 1 else None
        if isinstance(holder, ast.Name) and depth < _DEPTH:
            return self._entry(ast.Subscript(holder, value.slice, ast.Load()), at, depth + 1)
        return None

    def _class_values(self, attribute: str) -> list[ast.expr]:
        """What classes of the file set an attribute to in their bodies."""
        return [value for node in self._index.classes.values() for value in _assigned(node, attribute)]

    def _values_of(self, name: str, at: ast.AST) -> list[ast.expr]:
        """What a name holds at a place: assignments of the innermost scope that has any, or a parameter's default."""
        scope: ast.AST | None = at
        while scope is not None:
            scope = self._above.get(scope)
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                if values := self._default_of(scope.args, name):
                    return values
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                if values := list(_assigned(scope, name)):
                    return values
        return []

    def _default_of(self, arguments: ast.arguments, name: str) -> list[ast.expr]:
        """A parameter's default, where no call of the file gives it by name."""
        places = [*arguments.posonlyargs, *arguments.args]
        defaults = dict(zip([place.arg for place in places][::-1], arguments.defaults[::-1], strict=False))
        defaults |= {place.arg: value for place, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value}
        if name in defaults and not any(isinstance(node, ast.keyword) and node.arg == name for node in ast.walk(self._index.tree)):
            return [defaults[name]]
        return []

    def _attribute_values(self, attribute: str, at: ast.AST) -> Iterator[ast.expr]:
        scope: ast.AST | None = at
        while scope is not None and not isinstance(scope, ast.ClassDef):
            scope = self._above.get(scope)
        for node in ast.walk(scope) if scope is not None else ():
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    yield from _part_for(target, node.value, lambda part: isinstance(part, ast.Attribute) and part.attr == attribute)


def _assigned(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    """What is assigned to a name in a scope, inner functions and classes left out."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, _SCOPES):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from _part_for(target, node.value, lambda part: isinstance(part, ast.Name) and part.id == name)
        elif isinstance(node, ast.For) and any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node.target)):
            yield node.iter
        waiting += ast.iter_child_nodes(node)


def _part_for(target: ast.expr, value: ast.expr, wanted: object) -> Iterator[ast.expr]:
    """The part of an assignment's value for a wanted target; the whole value where tuples do not match."""
    assert callable(wanted)
    if wanted(target):
        yield value
    elif isinstance(target, ast.Tuple | ast.List):
        for number, part in enumerate(target.elts):
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                yield from _part_for(part, value.elts[number], wanted)
            else:
                yield from _part_for(part, ast.Subscript(value, ast.Constant(number), ast.Load()), wanted)
