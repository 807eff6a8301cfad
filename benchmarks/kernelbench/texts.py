"""Candidates that are made from texts: a reference's own text, the wrong twin of a right kernel, and variants of constants."""

from __future__ import annotations

import ast
import re

from tritonsmith.evaluator.errors import UsageError

STORE = "tl.store(out + place, value, mask=inside)"
"""How each kernel below `kernels/` stores its results; it stands there once."""
WRONG_EVERY = 1_000_003
"""One result in so many is wrong in a twin; a prime, so that no row length hides it behind one column."""
WRONG_PLACE = 17
"""The first wrong place, so that a small size has one too."""
WRONG_STORE = f"tl.store(out + place, tl.where(place % {WRONG_EVERY} == {WRONG_PLACE}, value * 1.01, value), mask=inside)"
"""What a twin stores: about one value in a million is 1 % too large, at the same places in every call."""

SUMS = "ACCUMULATED = tl.constexpr(tl.float32)"
"""How each kernel below `half_kernels/` sets the type of its sums; it stands there once."""


def copy_reference(text: str, path: str) -> str:
    """A task's own text as a candidate: its class `Model` and every use of that name become `ModelNew`; strings and comments stay.

    Raises UsageError for a text that Python cannot read or that has no class Model.
    """
    try:
        tree = ast.parse(text)
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


def make_wrong(text: str, path: str) -> str:
    """The wrong twin of a right kernel. Raises UsageError for a kernel that does not store as `STORE` says, once."""
    if text.count(STORE) != 1:
        raise UsageError(f"{path}: holds `{STORE}` {text.count(STORE)} times; a kernel with a wrong twin holds it once")
    return text.replace(STORE, WRONG_STORE)


def narrow_sums(text: str, path: str) -> str:
    """The twin of a kernel for a 16-bit task that adds up in the type of its file's name. Raises UsageError for a kernel without `SUMS`."""
    if text.count(SUMS) != 1:
        raise UsageError(f"{path}: holds `{SUMS}` {text.count(SUMS)} times; a kernel with a twin holds it once")
    return text.replace(SUMS, SUMS.replace("float32", "bfloat16" if path.startswith("bf16") else "float16"))


def set_constants(text: str, values: dict[str, int], path: str) -> str:
    """The text with other values of whole-number constants at module level. Raises UsageError for one that it does not have."""
    for name, value in values.items():
        text, count = re.subn(rf"^{name} = [\d_]+$", f"{name} = {value}", text, flags=re.MULTILINE)
        if count != 1:
            raise UsageError(f"{path}: sets {name} to a whole number {count} times; it must do so once")
    return text
