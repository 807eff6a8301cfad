"""Launches with the numbers that merged kernels take."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from tritonsmith.author.compiler.kernels.kernel import join_lines, wrap


def pass_numbers(lines: Sequence[str], merged: Mapping[str, tuple[str, Mapping[str, int]]]) -> list[str]:
    """Forward's lines with other kernels.

    merged: by kernel: the one that does its work, and the numbers which that takes.
    """
    statements: list[list[str]] = []
    for line in lines:
        if line.startswith((" ", ")")) and statements:
            statements[-1].append(line)
        else:
            statements.append([line])
    return [part for one in statements for part in _rewrite(one, merged)]


def _rewrite(lines: list[str], merged: Mapping[str, tuple[str, Mapping[str, int]]]) -> list[str]:
    """One statement."""
    start = re.match(r"(\w+)\[|.*self\.keep\(", lines[0])
    if start is None or start[1] and start[1] not in merged:
        return lines
    (statement,) = join_lines(lines)
    node = ast.parse(statement).body[0]
    assert isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Call), "a launch, or parts that are kept"
    call = node.value
    given = [_read(statement, one) for one in call.args]
    named = [f"{one.arg}={_read(statement, one.value)}" for one in call.keywords]
    head = f"{statement[: (call.args[0] if call.args else call.keywords[0].value).col_offset]}"
    if start[1]:
        name, numbers = merged[start[1]]
        head = f"{name}{head[len(start[1]) :]}"
    elif given[1] not in merged:
        return lines
    else:
        given[1], numbers = merged[given[1]]
    return wrap(head, [*given, *(f"{key}={value}" for key, value in numbers.items()), *named], ")", "")


def _read(text: str, node: ast.expr) -> str:
    found = ast.get_source_segment(text, node)
    assert found is not None, "it was parsed from the text"
    return found
