"""Reading Python text as a syntax tree, from any thread."""

from __future__ import annotations

import ast
import threading
import warnings

_TURN = threading.Lock()
"""Held while a tree is made."""


def parse(source: str) -> ast.Module:
    """`ast.parse`, one thread at a time. Raises SyntaxError, ValueError, RecursionError or MemoryError as it does.

    Python 3.11 counts the depth of all threads' trees in one place, and a tree that is made while another one is fails with
    "SystemError: AST constructor recursion depth mismatch" (python/cpython issue 106905). Branches of a run are judged in threads.
    """
    if "\0" in source:  # newer Pythons raise a SyntaxError without a line
        raise ValueError("source code string cannot contain null bytes")
    with _TURN:
        return ast.parse(source)


def parse_expression(source: str) -> ast.expr:
    """`parse` for one expression."""
    with _TURN:
        return ast.parse(source, mode="eval").body


def require_compilable(source: str) -> None:
    """Compile a module's text and run nothing; finds what a tree does not show, such as a `return` outside of a function.

    Raises what `parse` raises. What Python would only warn of is no fault.
    """
    with _TURN, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(source, "<text>", "exec", dont_inherit=True)


def find_bound_names(tree: ast.Module) -> dict[str, ast.AST]:
    """What the module binds at its top level: definitions, assignments, imports (also inside `if` and `try`)."""
    bound: dict[str, ast.AST] = {}
    pending: list[ast.AST] = list(reversed(tree.body))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name.split(".")[0]: node for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = node
        else:
            pending.extend(reversed(list(ast.iter_child_nodes(node))))
    return bound
