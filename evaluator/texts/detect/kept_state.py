"""What iterations of a host loop leave to the next ones outside of its own names: attributes, and names of functions around."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tritonsmith.evaluator.texts.source.host_things import Frame, Routine
from tritonsmith.evaluator.texts.source.host_values import HostValues

_DEPTH = 4
"""Steps from an argument to the state that it names."""


class LastingState:
    """State that functions entered by a loop read before they set it anew.

    Args:
        values: follows names.
        body: statements of the loop.
        functions: what its iterations enter.
    """

    def __init__(self, values: HostValues, body: list[ast.stmt], functions: Iterable[Routine]) -> None:
        self._values = values
        blocks = [body, *(function.body for function in functions if isinstance(function.body, list))]
        self._kept = {place for block in blocks for place in _find_kept(block)}

    def is_read_by(self, node: ast.AST, frame: Frame, depth: int = _DEPTH) -> bool:
        """Whether an argument rests on such state, also by way of a name."""
        for part in ast.walk(node) if self._kept else ():
            if _write(part) in self._kept:
                return True
            if isinstance(part, ast.Name) and depth > 0 and part.id != "self":
                values = self._values.find_nodes(part.id, frame)
                if any(value is not node and self.is_read_by(value, where, depth - 1) for value, where in values):
                    return True
        return False


def _find_kept(block: list[ast.stmt]) -> Iterator[str]:
    """Places that outlive a block, are set in it, and are read before that."""
    parts = [part for statement in block for part in ast.walk(statement)]
    lasting = {name for part in parts if isinstance(part, ast.Nonlocal | ast.Global) for name in part.names}
    lazy = {_write(part) for part in parts if isinstance(part, ast.If) for part in _find_set_if_missing(part)}
    before: set[str] = set()
    done: set[str] = set()
    for statement in block:
        named = [part for part in ast.walk(statement) if isinstance(part, ast.Name | ast.Attribute | ast.Subscript)]
        places = [(text, part.ctx) for part in named if (text := _write(part))]
        before |= {text for text, context in places if isinstance(context, ast.Load)} - done
        before |= {_write(part.target) for part in ast.walk(statement) if isinstance(part, ast.AugAssign)} - done
        done |= {text for text, context in places if isinstance(context, ast.Store)}
    yield from (text for text in (before & done) - lazy if "." in text or "[" in text or text in lasting)


def _find_set_if_missing(branch: ast.If) -> Iterator[ast.expr]:
    """What a branch sets that its own condition asks for, as in `if self.table is None: self.table = ...`."""
    asked = ast.unparse(branch.test)
    for part in (part for statement in branch.body for part in ast.walk(statement)):
        if isinstance(part, ast.Attribute | ast.Name) and isinstance(part.ctx, ast.Store):
            if (part.attr if isinstance(part, ast.Attribute) else part.id) in asked:
                yield part


def _write(node: ast.AST) -> str:
    """A name, an attribute of one, or an entry of one by a constant key; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
        return f"{node.value.id}[{node.slice.value!r}]"
    return f"{node.value.id}.{node.attr}" if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
