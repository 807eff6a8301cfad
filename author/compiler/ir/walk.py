"""Ways through records: find, change, compare."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from dataclasses import replace as with_fields
from typing import TypeVar

from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.code import Expression, Function, Name, Node, Statement, list_fields
from tritonsmith.author.compiler.ir.precedence import tidy

N = TypeVar("N", bound=Node)
Path = tuple[int, ...]
"""The way from a record to one within: numbers of children."""
Difference = tuple[Path, Expression, Expression]
"""A place, and the leaves that two records have there."""


def iterate(node: Node) -> Iterator[Node]:
    """A record and all within it, in the order of the text."""
    todo = [node]
    while todo:
        yield (part := todo.pop())
        todo += [*part.children()][::-1]


def replace(node: N, change: Callable[[Node], Node]) -> N:
    """The record with each record within it changed, those within first. A changed statement loses its layout."""
    changed = _replace(node, change)
    assert isinstance(changed, Node)
    return changed  # type: ignore[return-value]  # a change keeps what a record is


def _replace(node: Node, change: Callable[[Node], Node]) -> Node:
    changed: dict[str, object] = {}
    for name in list_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, Node):
            if (single := _replace(value, change)) is not value:
                changed[name] = single
        elif value:
            several = tuple(_replace(child, change) for child in value)
            if any(new is not old for new, old in zip(several, value, strict=True)):
                changed[name] = several
    return change(_with(node, changed) if changed else node)


def _with(node: N, changed: Mapping[str, object]) -> N:
    """The record with other fields; its layout stays only where no expression of its own changed."""
    if isinstance(node, Statement) and node.layout is not None and not changed.keys() <= _BLOCKS:
        changed = {**changed, "layout": None}
    return tidy(with_fields(node, **changed))


_BLOCKS = frozenset({"body", "branches", "handlers", "decorators"})


def names_in(node: Node) -> set[str]:
    """The variables that a record reads or sets; not the names of attributes and keywords."""
    return {part.name for part in iterate(node) if isinstance(part, Name)}


def names_set(node: Node) -> list[str]:
    """The variables that a record sets, parameters first, each once in the order of the text."""
    found: dict[str, None] = {}
    for part in iterate(node):
        match part:
            case code.Parameter(name=name) if name:
                found[name] = None
            case code.Assign(targets=targets):
                found |= {name.name: None for target in targets for name in _list_targets(target)}
            case code.For(target=target) | code.Augment(target=target) | code.Clause(target=target):
                found |= {name.name: None for name in _list_targets(target)}
            case code.Alias(target=Name(name=name)) | code.Handler(target=Name(name=name)):
                found[name] = None
    return list(found)


def _list_targets(target: Expression) -> Iterator[Name]:
    match target:
        case Name():
            yield target
        case code.Tuple(items=items) | code.List(items=items):
            for item in items:
                yield from _list_targets(item)
        case code.Star(value=inner) | code.Group(inner=inner):
            yield from _list_targets(inner)


def rename(node: N, names: Mapping[str, str]) -> N:
    """The record with other names for variables and parameters; keywords of calls keep theirs."""

    def change(part: Node) -> Node:
        if isinstance(part, Name | code.Parameter) and part.name in names:
            return with_fields(part, name=names[part.name])
        return part

    return replace(node, change)


def canonical(function: Function, kept: Collection[str] = ()) -> Function:
    """The function as all that compute the same way have it: local names numbered, no name, docstring, comment or empty line.

    Two of them are equal where the functions differ in nothing else. Parameters are numbered first, in their order.
    kept: local names that stay, such as those of parameters that callers name.
    """
    body = function.body[1:] if function.docstring else function.body
    bare = with_fields(function, name="f", body=body, comment="", layout=None)
    locals_ = [name for name in names_set(bare) if name not in kept]
    taken = (names_in(bare) | {*kept}) - set(locals_)
    fresh = (name for count in range(len(locals_) + len(taken)) if (name := f"v{count}") not in taken)
    return rename(replace(bare, _strip), dict(zip(locals_, fresh, strict=False)))


def _strip(node: Node) -> Node:
    """A record without comments, empty lines and layouts right within."""
    if isinstance(node, Statement) and (node.comment or node.layout is not None):
        node = with_fields(node, comment="", layout=None)
    body: Collection[Statement] = getattr(node, "body", ())
    if isinstance(body, tuple) and any(isinstance(child, code.Comment | code.Blank) for child in body):
        kept = tuple(child for child in body if not isinstance(child, code.Comment | code.Blank))
        return with_fields(node, body=kept)  # type: ignore[call-arg]
    return node


# Two records


def find_differences(left: Node, right: Node, leaves: bool = True) -> list[Difference] | None:
    """The leaves, numbers (with their sign) and variables, in which records of one form differ; None where the form does.

    Layouts do not matter. `a + 2` and `a + 3` differ at path (1,), in the numbers 2 and 3.

    Args:
        left: a record.
        right: one to compare it with.
        leaves: whether a leaf of `right` has to stand in the place of one; if not, any expression may.
    """
    found: list[Difference] = []
    return found if _compare(left, right, (), found, leaves) else None


def _compare(left: Node, right: Node, path: Path, found: list[Difference], leaves: bool) -> bool:
    if left == right:
        return True
    if _is_leaf(left) and (_is_leaf(right) or not leaves and isinstance(right, Expression)):
        assert isinstance(left, Expression) and isinstance(right, Expression)
        found.append((path, left, right))
        return True
    if type(left) is not type(right) or any(getattr(left, name) != getattr(right, name) for name in _list_plain(type(left))):
        return False
    for name in list_fields(type(left)):
        ours, theirs = getattr(left, name), getattr(right, name)
        if (ours is None) is not (theirs is None) or isinstance(ours, tuple) and len(ours) != len(theirs):
            return False
    pairs = zip(left.children(), right.children(), strict=True)
    return all(_compare(*pair, (*path, place), found, leaves) for place, pair in enumerate(pairs))


def _is_leaf(node: Node) -> bool:
    negative = isinstance(node, code.Unary) and node.operator == "-" and isinstance(node.operand, code.Number)
    return negative or isinstance(node, code.Number | Name)


def _list_plain(kind: type[Node]) -> tuple[str, ...]:
    """The fields of a class that hold no records."""
    names = _PLAIN.get(kind)
    if names is None:
        names = _PLAIN[kind] = tuple(entry.name for entry in fields(kind) if entry.compare and entry.name not in list_fields(kind))
    return names


_PLAIN: dict[type[Node], tuple[str, ...]] = {}


def find(node: Node, path: Path) -> Node:
    """The record at the end of a path."""
    for place in path:
        node = list(node.children())[place]
    return node


def put(node: N, values: Mapping[Path, Expression]) -> N:
    """The record with others at the ends of paths, as merging needs it: differences become parameters."""
    changed = _put(node, values)
    return changed  # type: ignore[return-value]  # only records within are others


def _put(node: Node, values: Mapping[Path, Expression]) -> Node:
    if () in values:
        return values[()]
    below: dict[int, dict[Path, Expression]] = {}
    for (first, *rest), value in values.items():
        below.setdefault(first, {})[tuple(rest)] = value
    changed: dict[str, object] = {}
    place = 0
    for name in list_fields(type(node)):
        value = getattr(node, name)
        children = value if isinstance(value, tuple) else () if value is None else (value,)
        several = tuple(_put(child, below[place + at]) if place + at in below else child for at, child in enumerate(children))
        if any(place + at in below for at in range(len(children))):
            changed[name] = several if isinstance(value, tuple) else several[0]
        place += len(children)
    return _with(node, changed)
