"""Records from text with named holes: `expression("{a} + 1", a=count)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.code import Expression, Hole, Name, Node, Statement, list_fields, number
from tritonsmith.author.compiler.ir.parser import parse_expression, parse_statements
from tritonsmith.author.compiler.ir.precedence import tidy

N = TypeVar("N", bound=Node)
Value = Node | int | float | str | None | Iterable[Any] | Mapping[str, Any]
"""What fills a hole: a record, a number, an identifier, None; where several may stand, a sequence or a mapping of them."""


class TemplateError(ValueError):
    """A template and its values do not fit; the message names the hole."""


def expression(template: str, /, **values: Value) -> Expression:
    """The record of an expression with its holes filled.

    Args:
        template: Python's syntax. `{x}` takes an expression, or a name where only a name can stand (`tl.{dtype}`,
            `f({key}=1)`); `{*x}` takes any number of arguments, keywords, items or parameters.
        values: what fills the holes. A str is one plain identifier and never code.

    Raises TemplateError where a hole or a value has no partner or does not fit.
    Example: `expression("tl.load({p} + {i}, {*options})", p="x_ptr", i=3, options={"mask": "inside"})`.
    """
    tree, names = _read_expression(template)
    _check(template, names, values)
    filled = _fill_one(tree, template, values)
    assert isinstance(filled, Expression)
    return tidy(code.Evaluate(filled)).value


def statements(template: str, /, **values: Value) -> tuple[Statement, ...]:
    """The records of statements with their holes filled; a line that is only `{body}` takes statements.

    The lines may be indented together, and may start with an empty one. Raises TemplateError as `expression` does.
    """
    tree, names = _read_statements(template)
    _check(template, names, values)
    filled = _fill(tree, template, values)
    assert isinstance(filled, code.Module)
    return filled.body


def statement(template: str, /, **values: Value) -> Statement:
    """The record of one statement with its holes filled."""
    (single,) = statements(template, **values)
    return single


def list_holes(template: str) -> frozenset[str]:
    """The names of the holes of a template of statements."""
    return _read_statements(template)[1]


_Template = tuple[Node, frozenset[str]]
_holding: dict[int, Node] = {}
"""Records of templates with holes within, by their id; templates are kept for ever, so that no other record gets it."""


@cache
def _read_expression(template: str) -> _Template:
    return _index(parse_expression(template))


@cache
def _read_statements(template: str) -> _Template:
    return _index(code.Module(parse_statements(template.strip("\n").rstrip())))


def _index(tree: Node) -> _Template:
    names: set[str] = set()

    def visit(node: Node) -> bool:
        own = [node.name] if isinstance(node, Hole) else [_hole_of(text) for text in _list_names(node)]
        names.update(name for name in own if name)
        held = [visit(child) for child in node.children()]
        if any(own) or any(held):
            _holding[id(node)] = node
            return True
        return False

    visit(tree)
    _holding[id(tree)] = tree
    return tree, frozenset(names)


def _list_names(node: Node) -> list[str]:
    name = getattr(node, "name", "")
    return [name] if isinstance(name, str) and name else []


def _hole_of(text: str) -> str:
    return text.strip("{*}") if text.startswith("{") else ""


def _check(template: str, names: frozenset[str], values: Mapping[str, Value]) -> None:
    if names != values.keys():
        missing, unused = sorted(names - values.keys()), sorted(values.keys() - names)
        said = [f"no value for {{{name}}}" for name in missing] + [f"no hole for {name}" for name in unused]
        raise TemplateError(f"{', '.join(said)} in the template {template!r}")


def _fill(node: Node, template: str, values: Mapping[str, Value]) -> Node:
    fields: dict[str, object] = {}
    name = getattr(node, "name", "")
    if isinstance(name, str) and (hole := _hole_of(name)):
        fields["name"] = _read_identifier(hole, values[hole], template)
    for place in list_fields(type(node)):
        value = getattr(node, place)
        if isinstance(value, Node):
            if id(value) in _holding:
                fields[place] = _fill_one(value, template, values)
        elif value and any(id(child) in _holding for child in value):
            fields[place] = tuple(filled for child in value for filled in _fill_several(child, template, values))
    if "arguments" in fields:  # keywords among what a hole gave
        given: Any = fields["arguments"]
        fields["arguments"] = tuple(child for child in given if not isinstance(child, code.Keyword))
        keywords: Any = fields.get("keywords", getattr(node, "keywords", ()))
        fields["keywords"] = (*(child for child in given if isinstance(child, code.Keyword)), *keywords)
    return tidy(replace(node, **fields)) if fields else node


def _fill_one(node: Node, template: str, values: Mapping[str, Value]) -> Node:
    if not isinstance(node, Hole):
        return _fill(node, template, values)
    return _to_expression(node.name, values[node.name], template)


def _fill_several(node: Node, template: str, values: Mapping[str, Value]) -> Iterable[Node]:
    if isinstance(node, code.Evaluate) and isinstance(node.value, Hole):
        return _to_statements(node.value.name, values[node.value.name], template)
    hole = node.name if isinstance(node, Hole) and node.star else ""
    if isinstance(node, code.Parameter) and node.name.startswith("{*"):
        hole = _hole_of(node.name)
    if not hole:
        return (_fill_one(node, template, values),)
    value = values[hole]
    if isinstance(value, Mapping):
        return [code.Keyword(key, _to_expression(hole, given, template)) for key, given in value.items()]
    if isinstance(value, str | Node) or not isinstance(value, Iterable):
        raise TemplateError(f"{{*{hole}}} takes a sequence or a mapping, not {value!r}, in the template {template!r}")
    if isinstance(node, code.Parameter):
        return [each if isinstance(each, code.Parameter) else code.Parameter(_read_identifier(hole, each, template)) for each in value]
    return [_to_expression(hole, each, template) for each in value]


def _to_expression(hole: str, value: Value, template: str) -> Expression:
    match value:
        case Expression():
            return value
        case None:
            return code.Word("None")
        case int() | float():
            return number(value)
        case str():
            return Name(_read_identifier(hole, value, template))
        case _:
            raise TemplateError(f"{{{hole}}} takes an expression, not {value!r}, in the template {template!r}")


def _to_statements(hole: str, value: Value, template: str) -> Iterable[Statement]:
    if isinstance(value, Statement):
        return (value,)
    if isinstance(value, Iterable) and not isinstance(value, str):
        found = tuple(value)
        if all(isinstance(each, Statement) for each in found):
            return found
        raise TemplateError(f"{{{hole}}} takes statements, not {found!r}, in the template {template!r}")
    return (code.Evaluate(_to_expression(hole, value, template)),)


def _read_identifier(hole: str, value: Value, template: str) -> str:
    if isinstance(value, Name):
        return value.name
    if not isinstance(value, str) or not value.isidentifier():
        raise TemplateError(f"{{{hole}}} takes one identifier, not {value!r}, in the template {template!r}")
    return value
