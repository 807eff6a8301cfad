"""Where host code binds names: in functions, at the top level, as attributes of objects, and as operators of torch.library."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

from tritonsmith.evaluator.texts.source.host_things import Routine
from tritonsmith.evaluator.texts.source.kernel_file import Function, KernelSource

Binding: TypeAlias = tuple[ast.AST, int | str | None]
"""A value, and the place of the name in it where the name is only a part: a position, or `item`."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Names:
    """An index of bindings.

    Args:
        index: the file.
    """

    def __init__(self, index: KernelSource) -> None:
        self._index = index
        self._bound: dict[int, dict[str, list[Binding]]] = {}
        self._attributes: dict[str, dict[str, list[tuple[ast.expr, Function | None]]]] = {}
        self._results: dict[int, tuple[list[ast.expr], list[ast.expr]]] = {}
        self.operators = dict(_find_operators(index))
        """Functions of the file that torch knows as `namespace.name`."""

    def read(self, function: Routine | None) -> dict[str, list[Binding]]:
        """What each name is set to in a function, or at the top level."""
        key = id(function)
        if key not in self._bound:
            found = self._bound[key] = {}
            body: list[ast.stmt] | list[ast.expr] = self._index.tree.body
            if function is not None:
                body = function.body if isinstance(function.body, list) else [function.body]
            for name, value, part in _find_bindings(body):
                found.setdefault(name, []).append((value, part))
        return self._bound[key]

    def read_parameters(self, function: Routine) -> list[str]:
        """Names of all parameters."""
        own = function.args
        starred = [argument for argument in (own.vararg, own.kwarg) if argument is not None]
        return [argument.arg for argument in (*own.posonlyargs, *own.args, *own.kwonlyargs, *starred)]

    def read_default(self, function: Routine, name: str) -> ast.expr | None:
        """The default of a parameter."""
        own = function.args
        plain = [*own.posonlyargs, *own.args]
        defaults = dict(zip([argument.arg for argument in plain[len(plain) - len(own.defaults) :]], own.defaults, strict=True))
        defaults |= {argument.arg: value for argument, value in zip(own.kwonlyargs, own.kw_defaults, strict=True) if value is not None}
        return defaults.get(name)

    def read_results(self, function: Function) -> tuple[list[ast.expr], list[ast.expr]]:
        """What a function returns and what it yields."""
        if id(function) not in self._results:
            parts = list(_walk_own(function.body))
            returned = [part.value for part in parts if isinstance(part, ast.Return) and part.value is not None]
            yielded = [part.value for part in parts if isinstance(part, ast.Yield | ast.YieldFrom) and part.value is not None]
            self._results[id(function)] = returned, yielded
        return self._results[id(function)]

    def find_attribute_values(self, owner: str, name: str) -> list[tuple[ast.expr, Function | None]]:
        """What methods of a class assign to `self.name`, or the class itself to `name`; the latter without a method."""
        if owner not in self._attributes:
            self._attributes[owner] = {}
            for key, value, method in self._read_attributes(owner):
                self._attributes[owner].setdefault(key, []).append((value, method))
        return self._attributes[owner].get(name, [])

    def _read_attributes(self, owner: str) -> Iterator[tuple[str, ast.expr, Function | None]]:
        for method in self._index.find_methods(owner).values():
            for node in ast.walk(method):
                if (added := _read_added(node)) is not None and isinstance(added[0], ast.Attribute):
                    yield added[0].attr, added[1], method
                if isinstance(node, ast.Call) and (named := _read_named(node)) is not None:
                    yield *named, method
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                        for one, value in _pair(target, node.value):
                            if isinstance(one, ast.Attribute):
                                yield one.attr, value, method
        for name in [owner, *self.read_bases(owner)]:
            for statement in self._index.classes[name].body if name in self._index.classes else ():
                if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                        if isinstance(target, ast.Name):
                            yield target.id, statement.value, None

    def read_bases(self, owner: str) -> list[str]:
        """Classes of the file that a class inherits from."""
        node = self._index.classes.get(owner)
        return [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in self._index.classes] if node else []

    def read_outside_bases(self, owner: str) -> list[str]:
        """Full names of classes outside of the file that a class, or one that it inherits from, inherits from."""
        node = self._index.classes.get(owner)
        if node is None:
            return []
        own = [self._index.resolve_name(base) for base in node.bases]
        return [name for name in own if name and name not in self._index.classes] + [
            name for base in self.read_bases(owner) if base != owner for name in self.read_outside_bases(base)
        ]


def has_decorator(function: Function, *names: str) -> bool:
    """Whether a function has one of these decorators, by the last part of the name."""
    return any(ast.unparse(decorator).rpartition(".")[2] in names for decorator in function.decorator_list)


def _find_operators(index: KernelSource) -> Iterator[tuple[str, Function]]:
    """Functions under `@torch.library.custom_op("namespace::name")` and the like."""
    for function in index.functions.values():
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and index.resolve_name(decorator.func).startswith("torch.library."):
                texts = [argument.value for argument in decorator.args if isinstance(argument, ast.Constant)]
                for text in texts:
                    if isinstance(text, str) and "::" in text and not index.resolve_name(decorator.func).endswith("fake"):
                        yield text.replace("::", ".").split("(")[0], function


def write_pattern(node: ast.expr) -> str:
    """A text with a star for each part that is no constant: `layer*` for `f"layer{i}"`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(write_pattern(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return write_pattern(node.left) + write_pattern(node.right)
    return "*"


def _read_named(node: ast.Call) -> tuple[str, ast.expr] | None:
    """What `setattr(self, name, value)` and `self.add_module(name, value)` set."""
    function = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
    places = {"setattr": 1, "add_module": 0, "register_module": 0}
    if function not in places or len(node.args) != places[function] + 2:
        return None
    return write_pattern(node.args[places[function]]), node.args[-1]


def _walk_own(body: list[ast.stmt] | list[ast.expr]) -> Iterator[ast.AST]:
    """Nodes of a function, those of functions and classes within aside."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)


def _read_added(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """A list with what is put into it: `xs.append(x)`, `xs.extend(more)`, `xs += more`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr in ("append", "appendleft", "insert", "add", "put", "put_nowait"):
            return node.func.value, ast.copy_location(ast.List([node.args[-1]], ast.Load()), node)
        if node.func.attr == "extend":
            return node.func.value, node.args[0]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.value, ast.List | ast.Tuple):
        return node.target, node.value
    return None


def _pair(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets with their values; tuples on both sides are taken apart."""
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List) and len(target.elts) == len(value.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from _pair(one, other)
    else:
        yield target, value


def _find_bindings(body: list[ast.stmt] | list[ast.expr]) -> Iterator[tuple[str, ast.AST, int | str | None]]:
    for node in _walk_own(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node, None
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for one, value in _pair(target, node.value):
                    yield from _name(one, value, None)
        elif isinstance(node, ast.For | ast.comprehension):
            yield from _name(node.target, node.iter, "item")
        elif (added := _read_added(node)) is not None and isinstance(added[0], ast.Name):
            yield added[0].id, added[1], None
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield from _name(node.optional_vars, node.context_expr, None)


def _name(target: ast.expr, value: ast.expr, part: int | str | None) -> Iterator[tuple[str, ast.AST, int | str | None]]:
    if isinstance(target, ast.Name):
        yield target.id, value, part
    elif isinstance(target, ast.Tuple | ast.List):
        for place, one in enumerate(target.elts):
            inner = one.value if isinstance(one, ast.Starred) else one
            yield from _name(inner, value, place if part is None else part)
