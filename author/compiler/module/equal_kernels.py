"""Kernels that several regions share: texts that differ in names alone are written once."""

from __future__ import annotations

import ast
from functools import lru_cache


class SharedTexts:
    """The texts of kernels that a module has already, by what they do."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def find(self, text: str, name: str) -> str:
        """The name of the first kernel with this text, whatever its own variables are called; `name` for a text that is new."""
        return self._names.setdefault(normalize(text, name), name)


@lru_cache(maxsize=4096)
def normalize(text: str, name: str) -> str:
    """The text with numbered names in place of its own, without comments and docstrings.

    Constexpr arguments keep their names, because launches name them. Functions beside the kernel begin with its name.
    """
    tree = ast.parse(text)
    for function in tree.body:
        assert isinstance(function, ast.FunctionDef), "a kernel's text is functions"
        function.name = f"kernel{function.name.removeprefix(name)}"
        function.body = function.body[1:] if ast.get_docstring(function) is not None else function.body
        _Renamer(function, name).visit(function)
    return ast.unparse(tree)


def rename_own(function: ast.FunctionDef) -> None:
    """Put numbered names in place of a function's own variables and of its arguments that are not constexpr."""
    _Renamer(function, "").visit(function)


class _Renamer(ast.NodeTransformer):
    """Numbers the arguments and variables of one function in the order in which they come."""

    def __init__(self, function: ast.FunctionDef, kernel: str) -> None:
        self._kernel = kernel
        stored = [one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
        taken = [one.arg for one in function.args.args if one.annotation is None]
        self._own = dict.fromkeys((*taken, *stored), "")
        self._numbers = 0

    def _rename(self, name: str) -> str:
        if name not in self._own:
            own = bool(self._kernel) and name.startswith(f"{self._kernel}_")
            return f"kernel{name.removeprefix(self._kernel)}" if own else name
        if not self._own[name]:
            self._own[name] = f"v{self._numbers}"
            self._numbers += 1
        return self._own[name]

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """An argument of the function."""
        node.arg = self._rename(node.arg)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """A variable, or something of the module."""
        node.id = self._rename(node.id)
        return node
