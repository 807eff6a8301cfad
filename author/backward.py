"""A kernel's text with a backward: the task's own operations run again for the gradients."""

from __future__ import annotations

import re
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tritonsmith.author.reference import TEMPLATES, write_reference
from tritonsmith.evaluator.schema import Task, TaskFacts
from tritonsmith.evaluator.texts.source.parse import find_bound_names, parse

_FORWARD = "ForwardByKernels"
"""What the kernels' own ModelNew is called in a text that has a backward."""


def refuse_backward(task: Task) -> str:
    """Why no text can run the task's operations again; empty where one can, and where no gradients are asked for."""
    return write_reference(task.source, task.overrides)[1] if task.backward else ""


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
    part = _load().get_template("_backward.py.j2").render(updates=facts.updates, buffers=facts.buffers, reference=reference, forward=_FORWARD)
    taken = {*find_bound_names(parse(text))}
    for name in sorted({*find_bound_names(parse(part))} & taken - {"ModelNew", "torch", "nn", "dataclasses"}):
        part = re.sub(rf"(?<![.\w]){name}\b", f"{name}_again", part)
    return re.sub(r"\bclass ModelNew\b", f"class {_FORWARD}", text).rstrip("\n") + "\n" + part


@cache
def _load() -> Environment:
    return Environment(  # noqa: S701 - Python text, no HTML
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )

