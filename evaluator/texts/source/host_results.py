"""What functions from outside a file give back that hold, wrap or find things of the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from tritonsmith.evaluator.texts.source.host_names import write_pattern
from tritonsmith.evaluator.texts.source.host_things import Frame, Given, Thing, ThingKind

if TYPE_CHECKING:
    from tritonsmith.evaluator.texts.source.host_values import HostValues

_GIVERS = {
    "list", "tuple", "set", "dict", "zip", "enumerate", "reversed", "iter", "sorted", "next", "itertools.chain", "itertools.islice",
    "itertools.cycle", "itertools.product", "collections.deque", "types.SimpleNamespace", "collections.OrderedDict",
    "itertools.chain.from_iterable", "collections.defaultdict",
}  # fmt: skip
"""Functions that give back what they are given, or its elements."""
LOOKING = {
    "isinstance", "hasattr", "len", "print", "id", "type", "repr", "str", "hash", "callable", "issubclass", "bool", "setattr", "range",
    "int", "float", "min", "max", "getattr", "functools.partial",
}  # fmt: skip
"""Functions that look at what they are given and do not call it."""


def find_outside_result(values: HostValues, name: str, node: ast.Call, frame: Frame, depth: int) -> Iterator[Thing]:
    """What a call of something outside gives back.

    Args:
        values: follows expressions.
        name: full name of what is called.
        node: the call.
        frame: where it stands.
        depth: steps that are left.
    """
    arguments = [*node.args, *(word.value for word in node.keywords)]
    if name == "super":
        yield Thing(ThingKind.PARENT, frame.owner)
    elif name == "getattr" and len(node.args) > 1:
        words = _read_text(values, node.args[1], frame, depth)
        for base in values.find(node.args[0], frame, depth):
            pattern = [write_pattern(node.args[1])] if base.kind is ThingKind.OBJECT and not words else []
            yield from (thing for word in words + pattern for thing in values.members.find_attribute(base, word, depth))
        if not values.find(node.args[0], frame, depth):  # of a tensor
            yield from (Thing(ThingKind.METHOD, word, node.args[0], frame) for word in words)
    elif name in ("importlib.import_module", "__import__") and node.args:
        yield from (Thing(ThingKind.OUTSIDE, word) for word in _read_text(values, node.args[0], frame, depth))
    elif name == "functools.partial" and node.args:
        before = tuple(Given(argument, frame) for argument in node.args[1:])
        yield from (replace(thing, before=(*thing.before, *before)) for thing in values.find(node.args[0], frame, depth))
    elif name == "operator.methodcaller" and node.args:
        yield from (Thing(ThingKind.METHOD, word, node.args[0], frame) for word in _read_text(values, node.args[0], frame, depth))
    elif name in _GIVERS:
        parts = values.open(arguments, frame, depth)
        yield from parts if name == "next" else [Thing(ThingKind.TABLE, parts=parts)] if parts else []
    elif name not in LOOKING:
        parts = tuple(part for part in values.open(arguments, frame, depth) if part.may_be_called)
        yield from (part for part in parts if part.kind in (ThingKind.FUNCTION, ThingKind.KERNEL))  # a wrapper, such as torch.vmap
        yield from (part for part in values.open(node.args, frame, depth) if part.kind is ThingKind.OUTSIDE)
        yield Thing(ThingKind.MADE, name, node, frame, parts)


def read_elements(table: ast.expr, key: ast.expr) -> list[ast.expr]:
    """What a key picks of a table that is written out: one element for a constant key, else all."""
    if isinstance(table, ast.Dict):
        same = [value for name, value in zip(table.keys, table.values, strict=True) if name and ast.dump(name) == ast.dump(key)]
        return same or table.values
    return table.elts if isinstance(table, ast.List | ast.Tuple) else []


def _read_text(values: HostValues, node: ast.expr, frame: Frame, depth: int) -> list[str]:
    """What a text may be that is a constant, a name for one, or put together from such."""
    if depth <= 0:
        return []
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        pairs = (_read_text(values, side, frame, depth - 1) for side in (node.left, node.right))
        return [first + second for first, second in product(*pairs)]
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.FormattedValue) else part for part in node.values)
        return ["".join(words) for words in product(*(_read_text(values, part, frame, depth - 1) for part in parts))]
    if isinstance(node, ast.Subscript):
        tables = [value for value, _ in values.find_definitions(node.value, frame)]
        inner = [part for table in tables for part in read_elements(table, node.slice)]
        return [text for part in inner for text in _read_text(values, part, frame, depth - 1)]
    if isinstance(node, ast.IfExp):
        return [text for side in (node.body, node.orelse) for text in _read_text(values, side, frame, depth - 1)]
    definitions = [(value, where) for value, where in values.find_definitions(node, frame) if value is not node]
    return [text for value, where in definitions for text in _read_text(values, value, where, depth - 1)]
