"""A task's whole Model as a function of another file, which computes its gradients there."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from pathlib import Path

from tritonsmith.author.builder import keep_needed, strip
from tritonsmith.evaluator.tasks.declarations import assigned_names
from tritonsmith.evaluator.texts.source.parse import parse

TEMPLATES = Path(__file__).parent
"""Where the pieces of text lie that run it again for gradients."""
BUILD_WHOLE = "build_whole_reference"
"""Name of the function."""


def write_reference(source: str, overrides: Mapping[str, object]) -> tuple[str, str]:
    """The function, and why there is none: one of the two is empty.

    Args:
        source: the task's.
        overrides: values that its names have at the size of the task.
    """
    tree = parse(source)
    kept = keep_needed(tree.body, forwards=True)
    if why_not := _refuse(kept):
        return "", why_not
    later = any(isinstance(one, ast.ImportFrom) and one.module == "__future__" for one in tree.body)
    lines: list[str] = []
    for statement in kept:
        bare = strip(statement, forwards=True)
        lines.append(ast.unparse(_drop_annotations(bare) if later else bare))
        lines += [f"{name} = {overrides[name]!r}" for name in assigned_names(statement) if name in overrides]
    body = "\n".join([*lines, "return Model(*given, **named)"])
    head = f'def {BUILD_WHOLE}(*given, **named):\n    """The task\'s own Model, whose forward is run again for gradients."""\n'
    return head + textwrap.indent(body, "    "), ""


def _refuse(kept: list[ast.stmt]) -> str:
    """Why a function cannot hold these statements; empty where it can."""
    for one in (node for statement in kept for node in ast.walk(statement)):
        if isinstance(one, ast.ImportFrom) and any(alias.name == "*" for alias in one.names):
            return f"its file imports everything of {one.module}"
        if isinstance(one, ast.Global):
            return f"its file sets the global name {one.names[0]}"
        if isinstance(one, ast.Name) and one.id == "__file__":
            return "its file reads other files next to it"
    return ""


def _drop_annotations(statement: ast.stmt) -> ast.stmt:
    """The statement with functions without annotations, which its file does not evaluate."""
    bare = ast.parse(ast.unparse(statement)).body[0]
    for node in ast.walk(bare):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return bare
