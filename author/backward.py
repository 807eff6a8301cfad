"""A kernel's text with a backward: the task's own operations run again for the gradients."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tritonsmith.author.reference import TEMPLATES, write_reference
from tritonsmith.evaluator.schema import Task, TaskFacts
from tritonsmith.evaluator.texts.source.parse import find_bound_names, parse

_FORWARD = "ForwardByKernels"
"""What the kernels' own ModelNew is called in a text that has a backward."""


def refuse_backward(task: Task) -> str:
    """Why no text can run the task's operations again; empty where one can, and where no gradients are asked for."""
    if not task.backward:
        return ""
    reference, why_not = write_reference(task.source, task.overrides)
    return why_not or next((f"its file imports {name}, which lies beside it" for name in _list_beside(reference, task.folder)), "")


def _list_beside(reference: str, folder: str) -> list[str]:
    """Modules that a text imports from a task's folder: a candidate's process does not have them."""
    imports = [node for node in ast.walk(parse(reference)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [node.module or "" if isinstance(node, ast.ImportFrom) else alias.name for node in imports for alias in node.names]
    first = dict.fromkeys(name.partition(".")[0] for name in names)
    return [name for name in first if folder and any((Path(folder) / place).exists() for place in (f"{name}.py", name))]


def add_backward(text: str, task: Task, facts: TaskFacts) -> str:
    """The text with gradients by the original's operations; as it is for a task that asks for none.

    Args:
        text: a whole module with a ModelNew whose forward runs kernels.
        task: what it is for; its file must be one that a function can hold (`refuse_backward`).
        facts: of the task.
    """
    if not task.backward:
        return text
    reference, why_not = write_reference(task.source, task.overrides)
    assert not why_not, "the author refuses such a task"
    held = {"updates": facts.updates, "buffers": facts.buffers}
    part = _load().get_template("_backward.py.j2").render(reference=reference, forward=_FORWARD, **held)
    taken = {*find_bound_names(parse(text))}
    for name in sorted({*find_bound_names(parse(part))} & taken - {"ModelNew", "torch", "nn", "dataclasses"}):
        part = re.sub(rf"(?<![.\w]){name}\b", f"{name}_again", part)
    return re.sub(r"\bclass ModelNew\b", f"class {_FORWARD}", text).rstrip("\n") + "\n" + part


@cache
def _load() -> Environment:
    return Environment(  # noqa: S701 - Python text, no HTML
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )

