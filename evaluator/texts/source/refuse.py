"""Texts that no process need see: what is no Python, and what has no ModelNew."""

from __future__ import annotations

import ast

from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Status, Verdict
from tritonsmith.evaluator.texts.source.parse import find_bound_names, parse, require_compilable

_MOST_CHARACTERS = 200_000
"""A longer text is not read here; the process that imports it has limits."""
_QUOTED_CHARACTERS = 120
"""How much of a faulty line a message holds."""


def refuse_text(kernel: KernelText, profile: str) -> Verdict | None:
    """The verdict about a text that is no Python or defines no ModelNew; None for every other. Nothing is imported or run."""
    fault = find_fault(kernel.text)
    return Verdict(status=Status.INVALID_FILE, sha=kernel.sha, message=fault, profile=profile) if fault else None


def find_fault(text: str) -> str:
    """What keeps a text from being a candidate, with the line where there is one; empty where nothing does."""
    if len(text) > _MOST_CHARACTERS:
        return ""
    try:
        require_compilable(text)
        bound = find_bound_names(parse(text))
    except SyntaxError as error:
        return _describe(error)
    except ValueError:
        return "the file holds null bytes; write plain Python"
    except (RecursionError, MemoryError):  # deeper than the parser goes here
        return ""
    if "ModelNew" not in bound and "*" not in bound:
        return "the file defines no class ModelNew at its top level"
    node = bound.get("ModelNew")
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return f"line {node.lineno}: ModelNew is a function, so the file defines no class ModelNew"
    return ""


def _describe(error: SyntaxError) -> str:
    """`line 12: SyntaxError: invalid syntax, in: x = = 3`."""
    quoted = (error.text or "").strip()
    code = f", in: {quoted[:_QUOTED_CHARACTERS]}" if quoted else ""
    return f"line {error.lineno or 1}: {type(error).__name__}: {error.msg}{code}"
