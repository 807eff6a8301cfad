"""Inductor's own Triton functions, as text that stands in the candidate's file. Imports torch and Triton."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable
from typing import Any

import triton
from torch._inductor.runtime import triton_helpers

from tritonsmith.evaluator.inductor.records import NoSeedError

_RENAMED = {"any": "any_along", "exp": "exp_of", "prod": "product_along", "max2": "max_along", "min2": "min_along"}
"""Names that would hide a builtin of Python, or say little."""
_LOG2 = '''@triton.constexpr_function
def log2_of(number):
    return number.bit_length() - 1'''
"""Instead of a private function of Triton."""
_WRITTEN = {"_log2": ("log2_of", _LOG2)}
_REFERENCE = re.compile(r"\btriton_helpers\.(\w+)")


def rename_helpers(text: str) -> tuple[str, frozenset[str]]:
    """A kernel's text that calls functions of the same file, and Inductor's names of these functions."""
    found = frozenset(_REFERENCE.findall(text))
    return _REFERENCE.sub(lambda match: name_helper(match.group(1)), text), found


def name_helper(name: str) -> str:
    """The name of one of Inductor's functions in the candidate's file."""
    return _WRITTEN[name][0] if name in _WRITTEN else _RENAMED.get(name, name.lstrip("_"))


def write_helpers(names: Iterable[str]) -> list[str]:
    """Texts of these functions and of all that they call, callees first. Raises NoSeedError for one that is no Triton."""
    texts: dict[str, str] = {}
    for name in sorted(names):
        _add(name, texts)
    return list(texts.values())


def _add(name: str, texts: dict[str, str]) -> None:
    if name in texts:
        return
    if name in _WRITTEN:
        texts[name] = _WRITTEN[name][1]
        return
    function: Any = getattr(triton_helpers, name, None)
    if not isinstance(function, triton.runtime.JITFunction):
        raise NoSeedError(f"Inductor's text calls triton_helpers.{name}, which is no Triton function that could be written out")
    source = inspect.getsource(function.fn)
    tree = ast.parse(source)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    _drop_docstring(definition)
    # Triton unwraps constants itself by now, and candidates do without its private functions
    definition.body = [statement for statement in definition.body if "_unwrap_if_constexpr" not in ast.unparse(statement)]
    called = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)} - {argument.arg for argument in definition.args.args}
    own = {one for one in called if _is_helper(one)}
    for one in sorted(own - {name}):
        _add(one, texts)
    for node in ast.walk(definition):
        if isinstance(node, ast.Name) and node.id in own:
            node.id = name_helper(node.id)
    definition.name = name_helper(name)
    for argument in definition.args.args:  # only constexpr means something to Triton
        if argument.annotation is not None and "constexpr" not in ast.unparse(argument.annotation):
            argument.annotation = None
    text = re.sub(r"(?<![\w.])math\.", "tl.math.", ast.unparse(definition))
    texts[name] = re.sub(r"(?<!tl\.)\bcore\.", "tl.core.", text)


def _is_helper(name: str) -> bool:
    return name in _WRITTEN or isinstance(getattr(triton_helpers, name, None), triton.runtime.JITFunction)


def _drop_docstring(definition: ast.FunctionDef) -> None:
    first = definition.body[0]
    if ast.get_docstring(definition) is not None and len(definition.body) > 1 and isinstance(first, ast.Expr):
        del definition.body[0]
