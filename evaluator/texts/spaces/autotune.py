"""The configurations of `@triton.autotune`, read from the text; and how an autotuner is taken out of it."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tritonsmith.evaluator.texts.source.kernel_file import KernelSource

OPTIONS = ("num_warps", "num_stages", "maxnreg")
"""Options of a launch that an autotuner may choose."""
_NAMES = ("triton.autotune", "triton.runtime.autotuner.autotune")
_MOST = 4096
"""Configurations that are read."""
_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip

Settings = dict[str, int | float | bool | str]


class Unreadable(Exception):
    """What is listed is computed in a way that this reader does not follow."""


@dataclass(frozen=True)
class Autotuner:
    """An autotuner around a kernel."""

    decorator: ast.Call
    configurations: tuple[Settings, ...]
    """Its list, with options of the launch among the constants."""


def find_autotuner(index: KernelSource, kernel: ast.FunctionDef) -> Autotuner | None:
    """The autotuner of a kernel; None where it has none. Raises Unreadable."""
    for decorator in kernel.decorator_list:
        if isinstance(decorator, ast.Call) and index.resolve_name(decorator.func) in _NAMES:
            given = next((word.value for word in decorator.keywords if word.arg == "configs"), None) or next(iter(decorator.args), None)
            if given is None:
                raise Unreadable("it names no configurations")
            found = _Reader(index).read(given, {})
            if not isinstance(found, list) or not found or not all(isinstance(entry, dict) for entry in found):
                raise Unreadable("its configurations are no list")
            return Autotuner(decorator, tuple(found))
    return None


class _Reader:
    """Evaluates the few forms in which lists of configurations are written; nothing is run.

    Args:
        index: the file.
    """

    def __init__(self, index: KernelSource) -> None:
        self._index = index
        self._steps = 0

    def read(self, node: ast.expr, names: Mapping[str, object]) -> object:
        """The value of an expression. Raises Unreadable."""
        self._steps += 1
        if self._steps > 64 * _MOST:
            raise Unreadable("it lists too many configurations")
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return names[node.id] if node.id in names else self._read_name(node.id)
        if isinstance(node, ast.List | ast.Tuple):
            return [value for part in node.elts for value in self._read_part(part, names)]
        if isinstance(node, ast.Dict):
            return {str(self.read(key, names)): self.read(value, names) for key, value in zip(node.keys, node.values, strict=True) if key}
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return list(self._read_comprehension(node.elt, node.generators, names))
        if isinstance(node, ast.Call):
            return self._read_call(node, names)
        return self._read_arithmetic(node, names)

    def _read_part(self, part: ast.expr, names: Mapping[str, object]) -> list[object]:
        if not isinstance(part, ast.Starred):
            return [self.read(part, names)]
        values = self.read(part.value, names)
        return values if isinstance(values, list) else []

    def _read_arithmetic(self, node: ast.expr, names: Mapping[str, object]) -> object:
        try:
            if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
                return _OPERATIONS[type(node.op)](self.read(node.left, names), self.read(node.right, names))
            if isinstance(node, ast.Compare):
                values = [self.read(part, names) for part in (node.left, *node.comparators)]
                pairs = zip(node.ops, itertools.pairwise(values), strict=True)
                return all(_COMPARISONS[type(test)](first, second) for test, (first, second) in pairs)
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise Unreadable(f"line {node.lineno} is not understood") from error
        if isinstance(node, ast.BoolOp):
            values = [self.read(part, names) for part in node.values]
            return all(values) if isinstance(node.op, ast.And) else any(values)
        if isinstance(node, ast.IfExp):
            return self.read(node.body if self.read(node.test, names) else node.orelse, names)
        raise Unreadable(f"line {node.lineno} is not understood")

    def _read_name(self, name: str) -> object:
        for statement in self._index.tree.body:
            if isinstance(statement, ast.Assign) and any(isinstance(part, ast.Name) and part.id == name for part in statement.targets):
                return self.read(statement.value, {})
        raise Unreadable(f"{name} is not a constant of the module")

    def _read_call(self, node: ast.Call, names: Mapping[str, object]) -> object:
        name = self._index.resolve_name(node.func)
        if name in ("triton.Config", "triton.runtime.autotuner.Config"):
            return self._read_config(node, names)
        if name in ("range", "list", "tuple") and node.args:
            values = [self.read(argument, names) for argument in node.args]
            if name != "range":
                return values[0]
            numbers = [value for value in values if isinstance(value, int)]
            return list(range(*numbers))[:_MOST]
        if name == "itertools.product":
            lists = [part for argument in node.args if isinstance(part := self.read(argument, names), list)]
            return [list(choice) for choice in itertools.islice(itertools.product(*lists), _MOST)]
        function = self._index.functions.get(name)
        returns = [part for part in ast.walk(function) if isinstance(part, ast.Return) and part.value] if function is not None else []
        if not node.args and not node.keywords and len(returns) == 1 and returns[0].value is not None:
            return self.read(returns[0].value, {})
        raise Unreadable(f"line {node.lineno} calls {name or 'something'}, which is not followed")

    def _read_config(self, node: ast.Call, names: Mapping[str, object]) -> Settings:
        found: Settings = {}
        constants = self.read(node.args[0], names) if node.args else {}
        for word in node.keywords:
            if word.arg == "kwargs":
                constants = self.read(word.value, names)
            elif word.arg in OPTIONS and isinstance(value := self.read(word.value, names), int):
                found[word.arg] = value
            elif word.arg in ("pre_hook", "ir_override", "num_ctas") and not (isinstance(word.value, ast.Constant)):
                raise Unreadable(f"line {node.lineno} uses {word.arg}")
        for option, value in zip(("num_warps", "num_stages"), node.args[1:3], strict=False):
            number = self.read(value, names)
            found |= {option: number} if isinstance(number, int) else {}
        if not isinstance(constants, dict):
            raise Unreadable(f"line {node.lineno}: its constants are no dictionary")
        return {name: value for name, value in constants.items() if isinstance(value, int | float | bool | str)} | found

    def _read_comprehension(
        self, element: ast.expr, generators: list[ast.comprehension], names: Mapping[str, object]
    ) -> Iterator[object]:
        if not generators:
            yield self.read(element, names)
            return
        first, *others = generators
        values = self.read(first.iter, names)
        if not isinstance(values, list):
            raise Unreadable(f"line {element.lineno} goes through something that is no list")
        for value in values:
            inner = {**names, **_bind(first.target, value)}
            if all(self.read(test, inner) for test in first.ifs):
                yield from self._read_comprehension(element, others, inner)


def _bind(target: ast.expr, value: object) -> dict[str, object]:
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, ast.Tuple) and isinstance(value, list) and len(value) == len(target.elts):
        return {name: part for inner, entry in zip(target.elts, value, strict=True) for name, part in _bind(inner, entry).items()}
    raise Unreadable("a loop over configurations unpacks something unknown")
