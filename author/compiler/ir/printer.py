"""The text of records: the only place that makes text of code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.code import Call, Expression, Node, Statement
from tritonsmith.author.compiler.ir.precedence import needs
from tritonsmith.author.compiler.ir.tokens import split_arguments, split_tokens

LINE = 130
"""Characters of a line of a kernel, or of a method's body without its indentation."""
STEP = "    "
"""Indentation of a block."""
BODY = 2 * len(STEP)
"""Characters ahead of a method's statements."""


def print_expression(node: Expression) -> str:
    """The text of an expression, on one line: `print_expression(number(3))` is `3`."""
    return _PRINTERS[type(node)](node)


def print_function(function: code.Function) -> str:
    """The text of a function at the top of a file, without a line break at its end."""
    return print_statements([function])


def print_module(module: code.Module) -> str:
    """The text of a file."""
    return print_statements(module.body) + "\n"


def print_statements(statements: Iterable[Statement], indent: str = "", method: bool = False) -> str:
    """The text of statements, one or more lines each.

    Args:
        statements: what to print.
        indent: spaces ahead of each line.
        method: whether they stand in a method, whose indentation does not count where long lines are broken.
    """
    return "\n".join(line for node in statements for line in _list_lines(node, indent, method))


def list_header(node: Statement, indent: str, method: bool) -> list[str]:
    """The lines of a statement without its body."""
    text, comment = print_header(node), f"  {node.comment}" if node.comment else ""
    if node.layout is not None:
        return (indent + _lay_out(text, node.layout) + comment).split("\n")
    start = None if comment else _find_arguments(node, text, len(indent) - BODY * method, bool(indent))
    return _wrap(text, start, indent, LINE + BODY * method) if start else (indent + text + comment).split("\n")


def print_header(node: Statement) -> str:
    """The text of a statement without its body, on one line."""
    return _HEADERS[type(node)](node)


def _list_lines(node: Statement, indent: str, method: bool) -> list[str]:
    if isinstance(node, code.Blank):
        return [node.layout[0][1] if node.layout else ""]
    lines: list[str] = []
    if isinstance(node, code.If):
        return [line for branch in node.branches for line in _list_branch(branch, branch is node.branches[0], indent, method)]
    if isinstance(node, code.Function):
        lines += [line for mark in node.decorators for line in list_header(mark, indent, method)]
        method = method or bool(indent)
    lines += list_header(node, indent, method and not isinstance(node, code.Function))
    for child in getattr(node, "body", ()):
        lines += _list_lines(child, indent + STEP, method)
    for handler in node.handlers if isinstance(node, code.Try) else ():
        lines += _list_lines(handler, indent, method)
    return lines


def _list_branch(branch: code.Branch, first: bool, indent: str, method: bool) -> list[str]:
    head, *more = list_header(branch, indent, method)
    head = head if first or branch.condition is None else f"{indent}el{head[len(indent) :]}"
    return [head, *more, *(line for child in branch.body for line in _list_lines(child, indent + STEP, method))]


# Long lines


def _find_arguments(node: Statement, text: str, indent: int, inner: bool) -> int | None:
    """Where the arguments begin of the call, or of the signature, that a long line is broken at."""
    if indent + len(text) <= LINE:
        return None
    if isinstance(node, code.Function):
        return None if inner else len(f"def {node.name}(")
    access = min((place for name in ("tl.load(", "tl.store(") if (place := text.find(name)) >= 0), default=None)
    if access is not None:
        return text.index("(", access) + 1
    value = node.value if isinstance(node, code.Assign | code.Evaluate) else None
    if not isinstance(value, Call) or not (value.arguments or value.keywords):
        return None
    match value.function:
        case code.Subscript() | code.Attribute(value=code.Name("self"), name="keep"):
            pass
        case code.Name() if not isinstance(node, code.Assign) or isinstance(node.targets[0], code.Name):
            pass
        case _:
            return None
    return len(text) - len(print_expression(value)) + len(print_expression(value.function)) + 1


def _wrap(text: str, start: int, indent: str, most: int) -> list[str]:
    """A line broken behind the bracket that opens arguments, with as many of them on a line as it takes."""
    head, inner = text[:start], text[start:]
    tail = ":" if inner.endswith(":") else ""
    inner = inner.removesuffix(":")
    while inner.endswith(")") and inner.count("(") < inner.count(")"):
        inner, tail = inner[:-1], f"){tail}"
    deeper = indent + STEP
    lines, current = [indent + head], deeper
    for part in split_arguments(inner):
        if current.strip() and len(current) + len(part) + 2 > most:
            lines.append(current.rstrip())
            current = deeper
        current += f"{part}, "
    return [*lines, current.rstrip(), indent + tail]


def _lay_out(text: str, layout: Sequence[tuple[int, str]]) -> str:
    """A text on one line with what stands ahead of its tokens where it was read."""
    gaps, parts, end = dict(layout), [], 0
    for count, token in enumerate(split_tokens(text)):
        parts += [gaps.get(count, text[end : token.start]), token.text]
        end = token.end
    return "".join(parts)


# Expressions


def _show(parent: Node, place: str, child: Expression) -> str:
    text = _PRINTERS[type(child)](child)
    return f"({text})" if needs(parent, place, child) else text


def _join(parent: Node, place: str, items: Sequence[Expression], between: str = ", ") -> str:
    return between.join([_show(parent, place, child) for child in items])


def _print_binary(node: code.Binary) -> str:
    if node.operator == "**" and _is_plain(node.left) and _is_plain(node.right):
        return f"{_show(node, 'left', node.left)}**{_show(node, 'right', node.right)}"
    return f"{_show(node, 'left', node.left)} {node.operator} {_show(node, 'right', node.right)}"


def _print_unary(node: code.Unary) -> str:
    space = " " if node.operator == "not" else ""
    return f"{node.operator}{space}{_show(node, 'operand', node.operand)}"


def _print_compare(node: code.Compare) -> str:
    first, *rest = (_show(node, "operands", child) for child in node.operands)
    return " ".join([first, *(f"{operator} {text}" for operator, text in zip(node.operators, rest, strict=True))])


def _print_call(node: Call) -> str:
    match node.arguments:
        case (code.Comprehension(bracket="(") as only,) if not node.keywords:
            inner = print_expression(only)[1:-1]
        case (code.Group(inner=only),) if not node.keywords and code.is_generator(only):
            inner = print_expression(only)
        case _:
            inner = ", ".join([_show(node, "arguments", child) for child in (*node.arguments, *node.keywords)])
    return f"{_show(node, 'function', node.function)}({inner})"


def _print_slice(node: code.Slice) -> str:
    bounds = [node.lower, node.upper, *([] if node.step is None else [node.step])]
    between = ":" if all(child is None or _is_plain(child) for child in bounds) else " : "
    return between.join(["" if child is None else _show(node, "lower", child) for child in bounds]).strip(" ")


def _is_plain(node: Expression) -> bool:
    """Whether a bound, or an operand of a power, stands without space around."""
    match node:
        case code.Attribute(value=value) | code.Unary(operand=value):
            return _is_plain(value)
        case _:
            return isinstance(node, code.Name | code.Number)


def _print_tuple(node: code.Tuple) -> str:
    if not node.items:
        return "()"
    return _join(node, "items", node.items) + ("," if len(node.items) == 1 else "")


def _print_formatted(node: code.FormattedString) -> str:
    closing = node.opening.lstrip("rRfFbB")
    return node.opening + "".join(
        part.spelling if isinstance(part, code.String) else f"{{{_show(part, 'value', part.value)}{part.suffix}}}" for part in node.parts
    ) + closing


def _print_parameter(node: code.Parameter) -> str:
    text = f"{node.star}{node.name}"
    if node.annotation is not None:
        text += f": {_show(node, 'annotation', node.annotation)}"
    if node.default is None:
        return text
    equal = " = " if node.annotation is not None else "="
    return f"{text}{equal}{_show(node, 'default', node.default)}"


def _print_lambda(node: code.Lambda) -> str:
    space = " " if node.parameters else ""
    return f"lambda{space}{_join(node, 'parameters', node.parameters)}: {_show(node, 'body', node.body)}"


def _print_clause(node: code.Clause) -> str:
    tests = "".join(f" if {_show(node, 'conditions', child)}" for child in node.conditions)
    return f"for {_show(node, 'target', node.target)} in {_show(node, 'source', node.source)}{tests}"


def _print_comprehension(node: code.Comprehension) -> str:
    closing = {"[": "]", "(": ")", "{": "}"}[node.bracket]
    return f"{node.bracket}{_show(node, 'element', node.element)} {_join(node, 'clauses', node.clauses, ' ')}{closing}"


def _print_alias(node: code.Alias) -> str:
    return _show(node, "value", node.value) + ("" if node.target is None else f" as {_show(node, 'target', node.target)}")


def _refuse(node: code.Hole) -> str:
    raise ValueError(f"the hole {{{node.name}}} is not filled")


_PRINTERS: dict[type, Callable[[Any], str]] = {
    code.Name: lambda node: node.name,
    code.Number: lambda node: node.spelling,
    code.Word: lambda node: node.word,
    code.String: lambda node: node.spelling,
    code.FormattedString: _print_formatted,
    code.Attribute: lambda node: f"{_show(node, 'value', node.value)}.{node.name}",
    code.Keyword: lambda node: (f"{node.name}=" if node.name else "**") + _show(node, "value", node.value),
    code.Call: _print_call,
    code.Subscript: lambda node: f"{_show(node, 'value', node.value)}[{_show(node, 'index', node.index)}]",
    code.Slice: _print_slice,
    code.Binary: _print_binary,
    code.Unary: _print_unary,
    code.Compare: _print_compare,
    code.Logical: lambda node: _join(node, "operands", node.operands, f" {node.operator} "),
    code.Conditional: lambda node: (
        f"{_show(node, 'value', node.value)} if {_show(node, 'condition', node.condition)} else {_show(node, 'otherwise', node.otherwise)}"
    ),
    code.Tuple: _print_tuple,
    code.List: lambda node: f"[{_join(node, 'items', node.items)}]",
    code.Entry: lambda node: ("**" if node.key is None else f"{_show(node, 'key', node.key)}: ") + _show(node, "value", node.value),
    code.Dict: lambda node: f"{{{_join(node, 'entries', node.entries)}}}",
    code.Star: lambda node: f"*{_show(node, 'value', node.value)}",
    code.Group: lambda node: f"({_show(node, 'inner', node.inner)})",
    code.Parameter: _print_parameter,
    code.Lambda: _print_lambda,
    code.Clause: _print_clause,
    code.Comprehension: _print_comprehension,
    code.Alias: _print_alias,
    code.Hole: _refuse,
}

# Statements


def _head(word: str, place: str = "value") -> Callable[[Any], str]:
    """A printer of a word and one expression, which may be missing."""

    def show(node: Any) -> str:
        value = getattr(node, place)
        return word if value is None else f"{word} {_show(node, place, value)}"

    return show


def _print_assign(node: code.Assign) -> str:
    if node.annotation is not None:
        text = f"{_show(node, 'targets', node.targets[0])}: {_show(node, 'annotation', node.annotation)}"
        return text if node.value is None else f"{text} = {_show(node, 'value', node.value)}"
    assert node.value is not None, "only what is annotated has no value"
    return " = ".join([*(_show(node, "targets", target) for target in node.targets), _show(node, "value", node.value)])


def _print_raise(node: code.Raise) -> str:
    return _head("raise")(node) + ("" if node.cause is None else f" from {_show(node, 'cause', node.cause)}")


def _print_assert(node: code.Assert) -> str:
    return _head("assert", "condition")(node) + ("" if node.message is None else f", {_show(node, 'message', node.message)}")


def _print_handler(node: code.Handler) -> str:
    return _head("except", "kind")(node) + ("" if node.target is None else f" as {_show(node, 'target', node.target)}") + ":"


def _print_import(node: code.Import) -> str:
    source = "" if node.source is None else f"from {_show(node, 'source', node.source)} "
    return f"{source}import {_join(node, 'items', node.items)}"


def _print_signature(node: code.Function) -> str:
    returns = "" if node.returns is None else f" -> {_show(node, 'returns', node.returns)}"
    return f"def {node.name}({_join(node, 'parameters', node.parameters)}){returns}:"


def _print_class(node: code.Class) -> str:
    bases = f"({_join(node, 'bases', node.bases)})" if node.bases else ""
    return f"class {node.name}{bases}:"


_HEADERS: dict[type, Callable[[Any], str]] = {
    code.Assign: _print_assign,
    code.Augment: lambda node: f"{_show(node, 'target', node.target)} {node.operator}= {_show(node, 'value', node.value)}",
    code.Evaluate: lambda node: _show(node, "value", node.value),
    code.For: lambda node: f"for {_show(node, 'target', node.target)} in {_show(node, 'source', node.source)}:",
    code.While: lambda node: f"while {_show(node, 'condition', node.condition)}:",
    code.Branch: lambda node: "else:" if node.condition is None else f"if {_show(node, 'condition', node.condition)}:",
    code.Return: _head("return"),
    code.Raise: _print_raise,
    code.Assert: _print_assert,
    code.With: lambda node: f"with {_join(node, 'items', node.items)}:",
    code.Handler: _print_handler,
    code.Try: lambda node: "try:",
    code.Simple: lambda node: node.word,
    code.Import: _print_import,
    code.Comment: lambda node: node.text,
    code.Decorator: lambda node: f"@{_show(node, 'value', node.value)}",
    code.Function: _print_signature,
    code.Class: _print_class,
}
