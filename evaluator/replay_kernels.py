"""Kernels of a candidate without the rest of it: taken from its text, held to the language, made ready for the interpreter.

In an interpreter a kernel is plain Python and could reach into the process that judges it. So only what Triton's compiler would accept
as well is run here: no imports, no definitions, no private attributes, no names but parameters, language, helpers and numbers.
Imports Triton: for evaluator processes with TRITON_INTERPRET=1 only.
"""

from __future__ import annotations

import ast
import copy
import importlib
import math
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tritonsmith.evaluator.replay_format import Unreplayable
from tritonsmith.evaluator.triton_untyped import interpreter

_BUILTINS: dict[str, Any] = {
    one.__name__: one
    for one in (range, min, max, abs, int, float, bool, len, isinstance, print, str, tuple, list, enumerate, zip, sum, AssertionError)
}
_FORBIDDEN_NODES = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Try, ast.Global, ast.Nonlocal,
    ast.Delete, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Raise, ast.GeneratorExp, ast.DictComp, ast.SetComp,
)  # fmt: skip
_FORBIDDEN_ATTRIBUTES = ("handle", "fn", "data")
_LANGUAGE = re.compile(r"triton(\.language(\.[a-z]\w*)*)?$")
_OF_TRITON_ITSELF = ("language", "cdiv", "next_power_of_2")


class Kernels:
    """The jitted functions of one text.

    Args:
        source: the candidate's text.
        filename: what frames of its kernels say.
    """

    def __init__(self, source: str, filename: str) -> None:
        tree = ast.parse(source)
        self._filename = filename
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self._definitions = [node for node in functions if any(map(_is_jit, node.decorator_list))]
        self._namespace: dict[str, Any] = {"__builtins__": dict(_BUILTINS), "__name__": "kernels"}
        self._language: dict[str, Any] = {}
        self._known: set[str] = set()
        for node in ast.walk(tree):
            for name, value in _imported(node):
                self._language.setdefault(name, value)
        for node in tree.body:
            self._assign(node)
        self._namespace.update(self._language)
        self._made: dict[int, Any] = {}

    def function(self, name: str, line: int) -> Any:
        """The kernel of that name whose definition spans the line. Raises Unreplayable."""
        if sum(node.name == name for node in self._definitions) > 1:
            raise Unreplayable(f"kernel {name} is defined more than once in the candidate's text")
        for node in self._definitions:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if node.name == name and first <= line <= (node.end_lineno or first):
                if node.lineno not in self._made:
                    self._made[node.lineno] = self._make(node)
                return self._made[node.lineno]
        raise Unreplayable(f"kernel {name} does not stand in the candidate's text as a jitted function")

    def is_tuned(self, name: str) -> bool:
        """Whether the definition has decorators beside jit: an autotuner, heuristics."""
        return any(node.name == name and len(node.decorator_list) > 1 for node in self._definitions)

    def bind(self, scalars: dict[str, Any], functions: dict[str, Any]) -> None:
        """Numbers and helpers ({name: [name of the definition, line]}) that the kernels of a launch refer to. Raises Unreplayable."""
        taken = {*self._language, *_BUILTINS}
        self._known |= {name for name in (*scalars, *functions) if name not in taken and not name.startswith("__")}
        self._namespace.update({name: value for name, value in scalars.items() if name in self._known})
        for name, (original, line) in functions.items():
            if name in self._known:
                self._namespace[name] = self.function(str(original), int(line))

    def _assign(self, node: ast.stmt) -> None:
        """`NAME = literal` and `name = tl.something` at the top of the module."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        value = getattr(node, "value", None)
        if len(targets) != 1 or not isinstance(targets[0], ast.Name) or value is None:
            return
        if isinstance(value, ast.Constant):
            self._namespace[targets[0].id] = value.value
            self._known.add(targets[0].id)
        elif isinstance(value, ast.Attribute) and (found := self._resolve(value)) is not None and not isinstance(found[0], ModuleType):
            self._language.setdefault(targets[0].id, found[0])

    def _make(self, node: ast.FunctionDef) -> Any:
        plain = copy.deepcopy(node)
        plain.decorator_list, plain.returns = [], None
        for parameter in _parameters(plain):
            constant = parameter.annotation is not None and "constexpr" in ast.unparse(parameter.annotation)
            parameter.annotation = ast.copy_location(ast.Constant("constexpr"), parameter) if constant else None
        self._check(plain)
        for name, value in vars(interpreter).items():  # what the rewritten text refers to
            self._namespace.setdefault(name, value)
        tree = interpreter.FunctionRewriter.ast_transformer.visit(ast.Module([plain], []))
        local: dict[str, Any] = {}
        try:
            exec(compile(ast.fix_missing_locations(tree), self._filename, "exec", dont_inherit=True), self._namespace, local)  # noqa: S102 - checked above
        except NameError as error:
            raise Unreplayable(f"a default of kernel {node.name} cannot be computed from its text: {error}") from None
        function = local[node.name]
        kernel = interpreter.InterpretedFunction(function)
        kernel.rewritten_fn[function] = function
        return kernel

    def _check(self, function: ast.FunctionDef) -> None:
        own = {one.arg for one in _parameters(function)}
        own |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for statement in (*function.body, function.args):
            for node in ast.walk(statement):
                if problem := self._problem(node, own):
                    line = getattr(node, "lineno", function.lineno)
                    raise Unreplayable(f"kernel {function.name}, line {line}: {problem} is not part of Triton's language")

    def _problem(self, node: ast.AST, own: set[str]) -> str:
        if isinstance(node, _FORBIDDEN_NODES):
            return type(node).__name__
        if isinstance(node, ast.keyword) and (node.arg or "").startswith("_"):
            return f"the argument {node.arg}"
        if isinstance(node, ast.Attribute):
            if node.attr.startswith("_") or node.attr in _FORBIDDEN_ATTRIBUTES or isinstance(node.ctx, ast.Store):
                return f"the attribute {node.attr}"
            if self._root(node) in self._language and self._root(node) not in own and self._resolve(node) is None:
                return ast.unparse(node)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            return "an assignment to an element"
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if not any(node.id in names for names in (own, self._language, _BUILTINS, self._known)):
                return f"the name {node.id}"
        return ""

    @staticmethod
    def _root(node: ast.expr) -> str:
        while isinstance(node, ast.Attribute):
            node = node.value
        return node.id if isinstance(node, ast.Name) else ""

    def _resolve(self, node: ast.expr) -> tuple[Any] | None:
        """What a dotted name stands for, in a tuple; None where it leaves the language."""
        if isinstance(node, ast.Name):
            return (self._language[node.id],) if node.id in self._language else None
        if not isinstance(node, ast.Attribute) or (owner := self._resolve(node.value)) is None:
            return None
        if not isinstance(owner[0], ModuleType):
            return owner  # an attribute of a type or a number
        if owner[0] is math and not node.attr.startswith("_"):
            return (getattr(math, node.attr),) if hasattr(math, node.attr) else None
        if node.attr.startswith("_") or (owner[0].__name__ == "triton" and node.attr not in _OF_TRITON_ITSELF):
            return None
        if not hasattr(owner[0], node.attr):
            return None
        return (found,) if _is_language(found := getattr(owner[0], node.attr)) else None


def _parameters(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _is_jit(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(name).split(".")[-1] == "jit"


def _is_language(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return value.__name__.startswith("triton.language")
    home = getattr(value, "__module__", None) or type(value).__module__
    return home == "triton" or home.startswith(("triton.", "tritonsmith.evaluator.interp_"))


def _imported(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Names of Triton's language that an import statement binds."""
    if isinstance(node, ast.Import):
        for one in node.names:
            if one.name == "math":
                yield one.asname or "math", math
            elif _LANGUAGE.match(one.name) and (module := _module(one.name)) is not None:
                yield (one.asname, module) if one.asname else ("triton", _module("triton"))
    elif isinstance(node, ast.ImportFrom) and not node.level and _LANGUAGE.match(node.module or ""):
        owner = _module(node.module or "")
        for one in node.names:
            if one.name.startswith("_") or owner is None or (node.module == "triton" and one.name not in _OF_TRITON_ITSELF):
                continue
            value = getattr(owner, one.name, None) or _module(f"{node.module}.{one.name}")
            if value is not None and _is_language(value):
                yield one.asname or one.name, value


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
