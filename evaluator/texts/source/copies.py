"""A task's own text as a candidate, which does what the reference does."""

from __future__ import annotations

import ast

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.texts.source.parse import parse


def copy_reference(text: str, path: str) -> str:
    """A task's own text as a candidate: its class `Model` and every use of that name become `ModelNew`; strings and comments stay.

    Raises UsageError for a text that Python cannot read or that has no class Model.
    """
    try:
        tree = parse(text)
    except SyntaxError as error:
        raise UsageError(f"{path}, line {error.lineno}: Python cannot read it ({error.msg}); name a folder of task files") from None
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    places = {(node.lineno, node.col_offset) for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "Model"}
    places |= {(node.lineno, _name_offset(lines[node.lineno - 1], node)) for node in tree.body if _is_model(node)}
    if not any(_is_model(node) for node in tree.body):
        raise UsageError(f"{path}: has no class Model at module level; name a folder of KernelBench-style task files")
    for line, column in sorted(places, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[: column + len(b"Model")] + b"New" + old[column + len(b"Model") :]
    return b"".join(lines).decode()


def _is_model(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == "Model"


def _name_offset(line: bytes, node: ast.stmt) -> int:
    return line.index(b"Model", node.col_offset)
