"""Reading Python text as a syntax tree, from any thread."""

from __future__ import annotations

import ast
import threading

_TURN = threading.Lock()
"""Held while a tree is made."""


def parse(source: str) -> ast.Module:
    """`ast.parse`, one thread at a time. Raises SyntaxError, ValueError, RecursionError or MemoryError as it does.

    Python 3.11 counts the depth of all threads' trees in one place, and a tree that is made while another one is fails with
    "SystemError: AST constructor recursion depth mismatch" (python/cpython issue 106905). Branches of a run are judged in threads.
    """
    with _TURN:
        return ast.parse(source)


def parse_expression(source: str) -> ast.expr:
    """`parse` for one expression."""
    with _TURN:
        return ast.parse(source, mode="eval").body
