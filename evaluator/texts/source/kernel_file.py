"""A kernel file as syntax: what is Triton, what is host code, where launches stand. Strings and comments never count."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from tritonsmith.evaluator.errors import KernelFileError
from tritonsmith.evaluator.texts.source.parse import parse
from tritonsmith.evaluator.texts.source.plain import write_plainly

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
HostLoop: TypeAlias = ast.For | ast.While | ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp

_MOST_STEPS = 200_000
"""Nodes that one reading may visit, a node once for every way that leads to it; the largest kernels of ours need a few thousand."""

_TRANSPARENT = ("staticmethod", "getattr", "triton.autotune", "triton.heuristics", "torch.library.wrap_triton")
"""Functions that give back what they are given."""


@dataclass
class KernelSource:
    """An indexed kernel file."""

    tree: ast.Module
    aliases: dict[str, str] = field(default_factory=dict)
    """Local name to the full dotted name that it was imported as."""
    jit: dict[str, ast.FunctionDef] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    kernel_aliases: dict[str, str] = field(default_factory=dict)
    """Local names that stand for a jit function (`k = gru_fast if flag else gru_slow` names the first)."""
    launchers: dict[str, ast.Subscript] = field(default_factory=dict)
    """Local names that stand for `kernel[grid]`."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Whole numbers that the module names at its top level."""
    steps: int = 0
    """Nodes visited so far by readers that follow calls."""
    _methods_of: dict[str, dict[str, Function]] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree, which is walked once."""
        return list(ast.walk(self.tree))

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call of the file, in source order."""
        return _sort_calls(self.nodes)

    def count_step(self) -> None:
        """Count a visited node. Raises KernelFileError where calls branch so often that following them would take for ever."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise KernelFileError("its functions call each other in more ways than can be followed; write it plainer")

    def resolve_name(self, node: ast.AST) -> str:
        """Full name of `a.b.c` with import aliases resolved; empty for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self.aliases.get(node.id, node.id), *reversed(parts)])

    def resolve_language_name(self, node: ast.AST) -> str:
        """Name within triton.language (`load`, `dot`, `math.fma`); empty for anything else."""
        name = self.resolve_name(node)
        for prefix in ("triton.language.extra.", "triton.language.core.", "triton.language.standard.", "triton.language."):
            if name.startswith(prefix):
                return name.removeprefix(prefix)
        return ""

    def find_launched_kernel(self, node: ast.Call) -> str | None:
        """Name of the jit function that a call `kernel[grid](...)` launches, also by way of a name for `kernel[grid]`."""
        place = self.find_launcher(node)
        return self.find_jit(place.value) if place is not None else None

    def find_launcher(self, node: ast.Call) -> ast.Subscript | None:
        """The `kernel[grid]` that a call enters."""
        func = node.func
        if isinstance(func, ast.Name | ast.Attribute):
            return self.launchers.get(func.id if isinstance(func, ast.Name) else func.attr)
        return func if isinstance(func, ast.Subscript) else None

    def find_jit(self, node: ast.AST) -> str | None:
        """The jit function that an expression stands for; the first one of a table or a choice."""
        if isinstance(node, ast.Name | ast.Attribute):
            own = node.id if isinstance(node, ast.Name) else node.attr
            kernel = self.kernel_aliases.get(own, own)
            return kernel if kernel in self.jit else None
        parts: list[ast.expr] = []
        if isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.Subscript):
            parts = [node.value]
        elif isinstance(node, ast.Dict):
            parts = node.values
        elif isinstance(node, ast.List | ast.Tuple):
            parts = node.elts
        elif isinstance(node, ast.Call) and self.resolve_name(node.func) in _TRANSPARENT:
            parts = node.args[:1]
        return next((name for part in parts if (name := self.find_jit(part))), None)

    def find_kernels(self, launched: Iterable[str] = ()) -> dict[str, ast.FunctionDef]:
        """Jit functions that are launched, also by calls that somebody else followed; where none is, those that no other one calls."""
        launched = {*launched, *(name for call in self.calls if (name := self.find_launched_kernel(call)))}
        launched |= set(self.kernel_aliases.values()) & self.jit.keys() if launched else set()
        if not launched:
            called = {call.func.id for node in self.jit.values() for call in calls_of(node) if isinstance(call.func, ast.Name)}
            launched = set(self.jit) - called
        return {name: node for name, node in self.jit.items() if name in launched}

    def find_model_methods(self) -> dict[str, Function]:
        """Methods of ModelNew, inherited ones of classes in the file included."""
        return self.find_methods("ModelNew")

    def find_methods(self, name: str) -> dict[str, Function]:
        """Methods of a class in the file, own ones before inherited ones."""
        if name not in self._methods_of:
            found = self._methods_of.setdefault(name, {})
            waiting, seen = [name], set[str]()
            while waiting:  # every class once, however often it is inherited
                node = self.classes.get(waiting.pop(0))
                if node is None or node.name in seen:
                    continue
                seen.add(node.name)
                own = {method.name: method for method in node.body if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)}
                found |= {key: method for key, method in own.items() if key not in found}
                waiting += [base.id for base in node.bases if isinstance(base, ast.Name)]
        return self._methods_of[name]


def read_kernel_source(source: str, path: str, *, plainly: bool = False) -> KernelSource:
    """Parse and index a kernel file. Raises KernelFileError with the line.

    Args:
        source: the file's text.
        path: what errors call the file.
        plainly: whether host code is put into plainer words first (see `plain`); the tree then no longer is the text's.
    """
    try:
        tree = parse(source)
    except SyntaxError as error:
        raise KernelFileError(f"{path}, line {error.lineno}: Python cannot read it ({error.msg}); fix the syntax") from None
    except ValueError:
        raise KernelFileError(f"{path}: holds null bytes; name a Python source file") from None
    index = KernelSource(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                index.aliases[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                index.aliases[alias.asname or alias.name] = f"{'.' * node.level}{node.module or ''}.{alias.name}"
    if plainly:
        index.tree = tree = write_plainly(tree, index.resolve_name)
    for node in index.nodes:
        if isinstance(node, ast.FunctionDef) and any(_is_jit(index, decorator) for decorator in node.decorator_list):
            index.jit[node.name] = node
    for statement in _find_top_statements(tree.body):
        if isinstance(statement, ast.ClassDef):
            index.classes[statement.name] = statement
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name not in index.jit:
            index.functions[statement.name] = statement
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name) and statement.value.id in index.classes:
            index.classes |= {target.id: index.classes[statement.value.id] for target in statement.targets if isinstance(target, ast.Name)}
    index.numbers = _read_numbers(tree)
    _index_aliases(index)
    return index


def _find_top_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that a module runs, those under a condition included."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            inner = [*statement.body, *getattr(statement, "orelse", []), *getattr(statement, "finalbody", [])]
            yield from _find_top_statements(inner)


def _read_numbers(tree: ast.Module) -> dict[str, int]:
    """Names that are set once at the top level, to a whole number (also as tl.constexpr)."""
    found: dict[str, list[int | None]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            value = statement.value
            if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("constexpr") and value.args:
                value = value.args[0]
            number = value.value if isinstance(value, ast.Constant) and type(value.value) is int else None
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                for part in (part for part in ast.walk(target) if isinstance(part, ast.Name)):
                    found.setdefault(part.id, []).append(number)
    return {name: values[0] for name, values in found.items() if len(values) == 1 and values[0] is not None}


def _is_jit(index: KernelSource, decorator: ast.expr) -> bool:
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return index.resolve_name(node) in ("triton.jit", "triton.runtime.jit.jit", "triton.experimental.gluon.jit")


def _index_aliases(index: KernelSource) -> None:
    for target, value in _find_bindings(index):
        name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        first = value.body if isinstance(value, ast.IfExp) else value
        if isinstance(first, ast.Call) and _is_jit(index, first.func) and first.args and isinstance(first.args[0], ast.Name):
            wrapped = index.functions.pop(first.args[0].id, None)  # name = triton.jit(function)
            if isinstance(wrapped, ast.FunctionDef):
                index.jit[wrapped.name] = wrapped
                index.kernel_aliases[name] = wrapped.name
        elif name and name not in index.jit and not _is_launcher(index, value, name) and (kernel := index.find_jit(value)):
            index.kernel_aliases.setdefault(name, kernel)


def _is_launcher(index: KernelSource, value: ast.expr, name: str) -> bool:
    """Whether it is `kernel[grid]`, which then belongs to the name; a table of kernels is none."""
    if not isinstance(value, ast.Subscript) or not isinstance(value.value, ast.Name | ast.Attribute) or not index.find_jit(value.value):
        return False
    index.launchers[name] = value
    return True


def _find_bindings(index: KernelSource) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Names with what they are set to: by assignments, loops over tables, and arguments of functions of the file."""
    for node in index.nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                yield from zip(target.elts, value.elts, strict=True)
            else:
                yield target, value
        elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.List | ast.Tuple):
            yield node.target, node.iter
    functions = index.functions | {name: method for owner in index.classes for name, method in index.find_methods(owner).items()}
    for node in index.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            function = functions.get(node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
            if function is None or not any(isinstance(argument, ast.Name) and argument.id in index.jit for argument in node.args):
                continue
            names = [ast.Name(argument.arg, ast.Store()) for argument in function.args.args if argument.arg != "self"]
            yield from zip(names, node.args, strict=False)


def calls_of(node: ast.AST) -> Iterator[ast.Call]:
    """Every call below a node, in source order."""
    yield from _sort_calls(ast.walk(node))


def _sort_calls(nodes: Iterable[ast.AST]) -> list[ast.Call]:
    return sorted((node for node in nodes if isinstance(node, ast.Call)), key=lambda call: (call.lineno, call.col_offset))
