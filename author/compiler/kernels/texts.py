"""The border to writers of kernels that still make text; it goes when products and attention make records."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tritonsmith.author.compiler.ir.code import Expression, For, If, Statement
from tritonsmith.author.compiler.ir.parser import parse_expression, parse_statements
from tritonsmith.author.compiler.ir.printer import print_expression, print_header


def show(node: Expression | None) -> str:
    """The text of an expression; empty for none."""
    return "" if node is None else print_expression(node)


@lru_cache(maxsize=4096)
def read_text(text: str) -> Expression | None:
    """The record of an expression that is text; None where it is empty."""
    return parse_expression(text) if text else None


def as_expression(given: Expression | str) -> Expression:
    """An expression that may be text."""
    if isinstance(given, Expression):
        return given
    node = read_text(given)
    assert node is not None, "an expression is not empty"
    return node


@lru_cache(maxsize=4096)
def read_lines(text: str) -> tuple[Statement, ...]:
    """The records of lines that are text."""
    return parse_statements(text)


def list_texts(statements: Iterable[Statement], indent: str = "") -> list[str]:
    """The text of statements, one line for each and none broken."""
    lines: list[str] = []
    for node in statements:
        comment = f"  {node.comment}" if node.comment else ""
        assert not isinstance(node, If), "no writer that makes text has branches among records"
        lines.append(f"{indent}{print_header(node)}{comment}")
        lines += list_texts(node.body, f"{indent}    ") if isinstance(node, For) else []
    return lines
