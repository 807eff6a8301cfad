"""Kernels of a candidate without the rest of it: read from its text, confined to the language, ready for the interpreter.

In an interpreter a kernel is plain Python and could reach into the process that judges it. So only what Triton's compiler would accept
as well is run here: no imports, no definitions, no private attributes, no names but parameters, language, helpers and numbers.
Imports Triton: for evaluator processes with TRITON_INTERPRET=1 only.
"""

from __future__ import annotations

import ast
import copy
import importlib
import math
import operator
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from tritonsmith.evaluator.channel.trace import Unreplayable
from tritonsmith.evaluator.confined.stand_ins.untyped import interpreter, tl

_BUILTINS: dict[str, Any] = {
    builtin.__name__: builtin
    for builtin in (range, min, max, abs, int, float, bool, len, isinstance, print, str, tuple, list, enumerate, zip, sum, AssertionError)
}
"""Builtins of Python that a kernel may use."""
_FORBIDDEN_NODES = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Try, ast.Global, ast.Nonlocal,
    ast.Delete, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Raise, ast.GeneratorExp, ast.DictComp, ast.SetComp,
)  # fmt: skip
"""Syntax that Triton's compiler does not accept in a kernel."""
_FORBIDDEN_ATTRIBUTES = ("handle", "fn", "data")
"""Attributes that lead from a tensor or function of the interpreter to what lies below it."""
_LANGUAGE = re.compile(r"triton(\.language(\.[a-z]\w*)*)?$")
"""Modules of the language."""
_OF_TRITON_ITSELF = ("language", "cdiv", "next_power_of_2")
"""Names of triton itself that a kernel may use."""
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
"""What module-level numbers may be computed with."""
_LARGEST = 2.0**64
"""Larger results are taken for unknown: squares of squares would fill the memory in a few lines."""


class Kernels:
    """The jitted functions of one text, and its functions on constants.

    Args:
        source: the candidate's text.
        filename: what frames of its kernels say.
    """

    def __init__(self, source: str, filename: str) -> None:
        tree = ast.parse(source)
        self._filename = filename
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        called, self._tuned = set(_find_jit_calls(tree)), set(_find_tuner_calls(tree))
        self._definitions = [node for node in functions if _is_marked(node) or (node.name in called and not node.decorator_list)]
        self._namespace: dict[str, Any] = {"__builtins__": dict(_BUILTINS), "__name__": "kernels"}
        self._language: dict[str, Any] = {}
        self._known: set[str] = set()
        for node in ast.walk(tree):
            for name, value in _read_imports(node):
                self._language.setdefault(name, value)
        for node in tree.body:
            self._assign(node)
        self._namespace.update(self._language)
        self._made: dict[int, Any] = {}

    def find_function(self, name: str, line: int) -> Any:
        """The kernel of that name whose definition spans the line. Raises Unreplayable."""
        if sum(node.name == name for node in self._definitions) > 1:
            raise Unreplayable(f"kernel {name} is defined more than once in the candidate's text")
        for node in self._definitions:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if node.name == name and first <= line <= (node.end_lineno or first):
                if node.lineno not in self._made:
                    self._made[node.lineno] = self._make(node)
                return self._made[node.lineno]
        raise Unreplayable(f"kernel {name} does not stand in the candidate's text as a jitted function")

    def is_tuned(self, name: str) -> bool:
        """Whether the definition has other decorators than jit, or is given to one: an autotuner, heuristics."""
        return name in self._tuned or any(node.name == name and len(node.decorator_list) > 1 for node in self._definitions)

    def bind(self, scalars: dict[str, Any], functions: dict[str, Any]) -> None:
        """Numbers and helpers ({name: [name of the definition, line]}) that the kernels of a launch refer to. Raises Unreplayable."""
        taken = {*self._language, *_BUILTINS}
        self._known |= {name for name in (*scalars, *functions) if name not in taken and not name.startswith("__")}
        self._namespace.update({name: value for name, value in scalars.items() if name in self._known})
        for name, (original, line) in functions.items():
            if name in self._known:
                self._namespace[name] = self.find_function(str(original), int(line))

    def _assign(self, node: ast.stmt) -> None:
        """`NAME = number or text` and `name = tl.something` at the top of the module."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        value = getattr(node, "value", None)
        if len(targets) != 1 or not isinstance(targets[0], ast.Name) or value is None:
            return
        if (constant := self._evaluate(value)) is not None:
            self._namespace[targets[0].id] = constant[0]
            self._known.add(targets[0].id)
        elif isinstance(value, ast.Attribute) and (found := self._resolve(value)) is not None and not isinstance(found[0], ModuleType):
            self._language.setdefault(targets[0].id, found[0])

    def _evaluate(self, node: ast.expr) -> tuple[Any] | None:
        """The value, in a tuple, of a literal, arithmetic on known numbers, or tl.constexpr of such; else None."""
        if isinstance(node, ast.Constant):
            return (node.value,)
        if isinstance(node, ast.Name):
            return (self._namespace[node.id],) if node.id in self._known else None
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            found = self._resolve(node.func) if isinstance(node.func, ast.Attribute | ast.Name) else None
            inner = self._evaluate(node.args[0])
            return (tl.constexpr(inner[0]),) if found == (tl.constexpr,) and inner is not None else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            only = self._evaluate_number(node.operand)
            return None if only is None else (-only,)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right = self._evaluate_number(node.left), self._evaluate_number(node.right)
            if left is None or right is None or (not right and not isinstance(node.op, ast.Add | ast.Sub | ast.Mult)):
                return None
            result = _ARITHMETIC[type(node.op)](left, right)
            return (result,) if abs(result) < _LARGEST else None
        return None

    def _evaluate_number(self, node: ast.expr) -> Any:
        """The int or float that an expression stands for; None for anything else."""
        found = self._evaluate(node)
        value = found[0].value if found and isinstance(found[0], tl.constexpr) else found[0] if found else None
        return value if isinstance(value, int | float) else None

    def _make(self, node: ast.FunctionDef) -> Any:
        plain, of_constants = copy.deepcopy(node), any(map(_is_of_constants, node.decorator_list))
        plain.decorator_list, plain.returns = [], None
        for parameter in _list_parameters(plain):
            constant = parameter.annotation is not None and "constexpr" in ast.unparse(parameter.annotation)
            parameter.annotation = ast.copy_location(ast.Constant("constexpr"), parameter) if constant else None
        self._check(plain)
        for name, value in vars(interpreter).items():  # what the rewritten text refers to
            self._namespace.setdefault(name, value)
        tree = ast.Module([plain], [])
        if not of_constants:
            tree = interpreter.FunctionRewriter.ast_transformer.visit(tree)
        local: dict[str, Any] = {}
        try:
            exec(compile(ast.fix_missing_locations(tree), self._filename, "exec", dont_inherit=True), self._namespace, local)  # noqa: S102 - checked above
        except NameError as error:
            raise Unreplayable(f"a default of kernel {node.name} cannot be computed from its text: {error}") from None
        function = local[node.name]
        if of_constants:
            return _wrap_plain(function)
        kernel = interpreter.InterpretedFunction(function)
        kernel.rewritten_fn[function] = function
        return kernel

    def _check(self, function: ast.FunctionDef) -> None:
        own = {parameter.arg for parameter in _list_parameters(function)}
        own |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for statement in (*function.body, function.args):
            for node in ast.walk(statement):
                if problem := self._find_problem(node, own):
                    line = getattr(node, "lineno", function.lineno)
                    raise Unreplayable(f"kernel {function.name}, line {line}: {problem} is not part of Triton's language")

    def _find_problem(self, node: ast.AST, own: set[str]) -> str:
        if isinstance(node, _FORBIDDEN_NODES):
            return type(node).__name__
        if isinstance(node, ast.keyword) and (node.arg or "").startswith("_"):
            return f"the argument {node.arg}"
        if isinstance(node, ast.Attribute):
            if node.attr.startswith("_") or node.attr in _FORBIDDEN_ATTRIBUTES or isinstance(node.ctx, ast.Store):
                return f"the attribute {node.attr}"
            if self._find_root(node) in self._language and self._find_root(node) not in own and self._resolve(node) is None:
                return ast.unparse(node)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            return "an assignment to an element"
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if not any(node.id in names for names in (own, self._language, _BUILTINS, self._known)):
                return f"the name {node.id}"
        return ""

    @staticmethod
    def _find_root(node: ast.expr) -> str:
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


def _list_parameters(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _is_jit(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(name).split(".")[-1] == "jit"


def _is_marked(node: ast.FunctionDef) -> bool:
    return any(_is_jit(decorator) or _is_of_constants(decorator) for decorator in node.decorator_list)


def _is_of_constants(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).split(".")[-1] == "constexpr_function"


def _find_jit_calls(tree: ast.Module) -> Iterator[str]:
    """Names of functions that the text hands to `jit` instead of decorating them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Name) and _is_jit(node):
            yield node.args[0].id


def _find_tuner_calls(tree: ast.Module) -> Iterator[str]:
    """Names of functions that the text hands to an autotuner or to heuristics instead of decorating them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            if ast.unparse(node.func.func).split(".")[-1] in ("autotune", "heuristics"):
                yield node.args[0].id


def _wrap_plain(function: Any) -> Any:
    """A function on constants as kernels call it: what it gets is no tl.constexpr, as in Triton."""

    def call(*arguments: Any, **named: Any) -> Any:
        unwrap = tl.core._unwrap_if_constexpr
        return function(*map(unwrap, arguments), **{name: unwrap(value) for name, value in named.items()})

    return call


def _is_language(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return value.__name__.startswith("triton.language")
    home = getattr(value, "__module__", None) or type(value).__module__
    return home == "triton" or home.startswith(("triton.", "tritonsmith.evaluator.confined.interpreter."))


def _read_imports(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Names of Triton's language that an import statement binds."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name == "math":
                yield alias.asname or "math", math
            elif _LANGUAGE.match(alias.name) and (module := _import_module(alias.name)) is not None:
                yield (alias.asname, module) if alias.asname else ("triton", _import_module("triton"))
    elif isinstance(node, ast.ImportFrom) and not node.level and _LANGUAGE.match(node.module or ""):
        owner = _import_module(node.module or "")
        for alias in node.names:
            if alias.name.startswith("_") or owner is None or (node.module == "triton" and alias.name not in _OF_TRITON_ITSELF):
                continue
            value = getattr(owner, alias.name, None) or _import_module(f"{node.module}.{alias.name}")
            if value is not None and _is_language(value):
                yield alias.asname or alias.name, value


def _import_module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
