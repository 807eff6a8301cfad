"""What a function of kernel text does, whatever its whole numbers are, and where these stand."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from tritonsmith.author.compiler.module.equal_kernels import rename_own
from tritonsmith.author.compiler.module.uses import NumberUse, Parents, find_pointers, find_use


@dataclass(frozen=True)
class Number:
    """A whole number of a function's text that may become an argument."""

    start: int
    """Its first byte."""
    end: int
    value: int
    use: NumberUse


@dataclass(frozen=True)
class HelperCall:
    """A call of another function of the module."""

    name: str
    start: int
    """The first byte of the name."""
    end: int
    """The byte of the closing bracket."""


@dataclass(frozen=True)
class Skeleton:
    """A function with its numbers apart."""

    name: str
    key: str
    """Equal for functions that differ in names and numbers alone."""
    numbers: tuple[Number, ...]
    calls: tuple[HelperCall, ...]
    names: frozenset[str]
    """All words of its code."""
    doc: str
    """The text between its triple quotes."""
    arguments: tuple[str, ...]
    constants: tuple[str, ...]
    """Its constexpr arguments."""


@lru_cache(maxsize=4096)
def list_mentions(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Functions that a text calls by their names, and what else it mentions."""
    nodes = list(ast.walk(_parse(text)))
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    direct = frozenset(one.id for one in called if isinstance(one, ast.Name))
    own = {id(one) for one in called}
    return direct, frozenset(one.id for one in nodes if isinstance(one, ast.Name) and id(one) not in own)


def read_skeleton(text: str, helpers: Mapping[str, tuple[str, ...]]) -> Skeleton:
    """A function's skeleton.

    helpers: by function of the module that may take numbers: its arguments.
    """
    words = set(re.findall(r"\w+", text))
    return _read(text, tuple((name, given) for name, given in helpers.items() if name in words))


@lru_cache(maxsize=4096)
def _read(text: str, helpers: tuple[tuple[str, tuple[str, ...]], ...]) -> Skeleton:
    function = _parse(text)
    known = dict(helpers)
    starts, data = _find_lines(text), text.encode()
    parents: Parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    pointers = find_pointers(function)
    made = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    calls = [node for node in made if isinstance(node.func, ast.Name) and node.func.id in known]
    found: list[tuple[ast.Constant, Number]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            start, end = _find_span(node, starts)
            use = find_use(node, parents, pointers, known)
            if use is not None and data[start:end].removesuffix(b".0").isdigit():
                found.append((node, Number(start, end, int(node.value), use)))
    doc = ast.get_docstring(function, clean=False) or ""
    arguments = function.args.args
    return Skeleton(
        name=function.name, key=_write_key(text, function, {id(node) for node, _ in found}),
        numbers=tuple(sorted((number for _, number in found), key=lambda one: one.start)),
        calls=tuple(_find_call(node, starts) for node in calls), doc=doc,
        names=frozenset(word for word in re.findall(r"[^\W\d]\w*", text.replace(doc, "") if doc else text)),
        arguments=tuple(one.arg for one in arguments), constants=tuple(one.arg for one in arguments if one.annotation is not None),
    )  # fmt: skip


def _parse(text: str) -> ast.FunctionDef:
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef), "a kernel's text is a function"
    return function


def _find_lines(text: str) -> list[int]:
    """The first byte of each line."""
    starts = [0]
    for line in text.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts


def _find_span(node: ast.expr, starts: list[int]) -> tuple[int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def _find_call(node: ast.Call, starts: list[int]) -> HelperCall:
    assert isinstance(node.func, ast.Name)
    start, end = _find_span(node, starts)
    return HelperCall(node.func.id, start, end - 1)


def _write_key(text: str, function: ast.FunctionDef, apart: set[int]) -> str:
    """The code with numbered names and without the numbers that are apart, and its comments. Changes the tree."""
    for node in ast.walk(function):
        if id(node) in apart and isinstance(node, ast.Constant):
            node.value = ...
    function.name = "kernel"
    function.body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    rename_own(function)
    return "\n".join((ast.unparse(function), *_list_comments(text)))


def _list_comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
