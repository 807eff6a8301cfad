"""Lines of a task that look at values only to refuse them: forward gives the same without them."""

from __future__ import annotations

import ast


def find_guards(source: str) -> set[int]:
    """Lines of assertions, and of conditions under which a task does nothing but raise."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.If) and not node.orelse and all(isinstance(one, ast.Raise) for one in node.body):
            found.update(range(node.lineno, (node.test.end_lineno or node.lineno) + 1))
    return found
