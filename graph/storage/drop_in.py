"""The last part of `best.py`, behind the winner's text: what lets its ModelNew stand in a larger program."""

import ast
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tritonsmith.author.reference import TEMPLATES, write_reference
from tritonsmith.evaluator.schema import Task
from tritonsmith.evaluator.texts.source.parse import parse

_TEMPLATES = Environment(  # noqa: S701 - Python text, no HTML
    loader=FileSystemLoader([Path(__file__).parent, TEMPLATES]),
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False,
)  # fmt: skip
_KEEPS = "_version"
"""What a text reads that keeps something made of weights, and makes it again when they were written."""


def write_drop_in(task: Task, facts: dict[str, Any], text: str) -> str:
    """The part that follows a kernel's text; empty for a text that is no Python or has no ModelNew.

    Args:
        task: what the kernel was judged for.
        facts: inputs, buffers and modules of the task, as a summary holds them.
        text: the kernel's.
    """
    try:
        tree = parse(text)
    except SyntaxError:
        return ""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | _list_defined(tree)
    if "ModelNew" not in names:
        return ""
    reference, why_not = ("", "its own backward is judged") if task.backward else write_reference(task.source, task.overrides)
    part = _TEMPLATES.get_template("drop_in.py.j2").render(
        in_training=task.mode == "train",
        by_mode=tuple(facts.get("by_mode") or ()),
        takes_tensors=tuple(spec is not None for spec in facts.get("inputs") or ()),
        updates=tuple(facts.get("updates") or ()),
        buffers=tuple(facts.get("buffers") or ()),
        tied=dict(facts.get("tied") or {}),
        frozen=tuple(facts.get("frozen") or ()),
        reference=reference,
        own_backward=task.backward,
        why_not=why_not,
        keeps=_KEEPS in text,
        modules="".join(f"{name}, " for name in _list_modules(tree)),
    )
    return _rename(part, names)


def _list_modules(tree: ast.Module) -> list[str]:
    """The classes of a text that are modules, ModelNew last: those with the bases of one, or of another of these."""
    found: list[str] = []
    for item in tree.body:
        if isinstance(item, ast.ClassDef) and item.name != "ModelNew":
            bases = {ast.unparse(base).rpartition(".")[2] for base in item.bases}
            if bases & {"Module", *found}:
                found.append(item.name)
    return [*found, "ModelNew"]


def _list_defined(tree: ast.Module) -> set[str]:
    """The names that the functions and classes of a text have at its top."""
    return {item.name for item in tree.body if isinstance(item, ast.FunctionDef | ast.ClassDef)}


def _rename(part: str, taken: set[str]) -> str:
    """The part with other names where the kernel's text has its own."""
    tree = parse(part)
    targets = [target for item in tree.body if isinstance(item, ast.Assign) for target in item.targets]
    own = _list_defined(tree) | {target.id for target in targets if isinstance(target, ast.Name)}
    for name in sorted(own & taken - {"ModelNew"}):
        part = re.sub(rf"(?<![.\w]){name}\b", f"{name}_in_use", part)
    return part
