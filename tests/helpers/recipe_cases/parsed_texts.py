"""Records of whole texts, which keep how their lines are laid out: what tests compare."""

from __future__ import annotations

from dataclasses import replace

from tritonsmith.author.compiler.ir.code import Branch, Function, Module, Statement
from tritonsmith.author.compiler.ir.parser import parse_statements
from tritonsmith.author.compiler.ir.printer import list_header, print_header
from tritonsmith.author.compiler.ir.tokens import Line, split_tokens


def parse_module(text: str) -> Module:
    """The record of a file. `print_module` gives the text back. Raises SyntaxError."""

    def keep(node: Statement, line: Line, method: bool) -> Statement:
        source = text[line.tokens[0].start - line.indent : line.tokens[-1].end] if line.tokens else " " * line.indent + line.comment
        return _keep_layout(node, source, " " * line.indent, method)

    return Module(parse_statements(text, keep))


def parse_function(text: str) -> Function:
    """The record of a text that is one function. Raises SyntaxError."""
    body = parse_module(text.strip("\n")).body
    if len(body) != 1 or not isinstance(body[0], Function):
        raise SyntaxError("the text is not one function")
    return body[0]


def _keep_layout(node: Statement, source: str, indent: str, method: bool) -> Statement:
    """The statement, with its layout where the printer would not lay it out so."""
    comment = f"  {node.comment}" if node.comment else ""
    if isinstance(node, Branch):
        source = indent + source[len(indent) :].removeprefix("el" if node.condition is not None else "")
    method = method and not isinstance(node, Function)
    if "\n".join(list_header(node, indent, method)) == source + comment:
        return node
    printed, written = split_tokens(text := print_header(node)), split_tokens(source)
    gaps, at, end = [], 0, len(indent)
    for number, token in enumerate(printed):
        if written[at].text != token.text and written[at].text == ",":  # ahead of a bracket that closes
            at += 1
        if written[at].text != token.text:
            raise SyntaxError(f"the record says {token.text!r}, the text {written[at].text!r}: {source}")
        gap = source[end : written[at].start]
        if gap != text[printed[number - 1].end if number else 0 : token.start]:
            gaps.append((number, gap))
        end, at = written[at].end, at + 1
    return replace(node, layout=tuple(gaps))
