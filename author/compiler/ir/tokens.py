"""Tokens and lines of a text of code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_STRING = r"""[rbfuRBFU]{0,2}(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
_OPERATOR = r"(?:\*\*|//|>>|<<)=|\.{3}|\*\*|//|>>|<<|->|[-+*/%&|^@<>=!]=|[-+*/%&|^~@<>()\[\]{},:.=!;]"
_TOKEN = re.compile(
    rf"""(?P<comment>\#[^\n]*)|(?P<newline>\n)|(?P<string>{_STRING})|(?P<hole>\{{\*{{0,2}}[^\W\d]\w*\}})
    |(?P<number>0[xX][\da-fA-F_]+|0[bB][01_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?)
    |(?P<name>[^\W\d]\w*)|(?P<operator>{_OPERATOR})|(?P<space>[ \t]+|\\\n)""",
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A token and where it stands in its text."""

    kind: str
    text: str
    start: int
    end: int


@dataclass
class Line:
    """A logical line: a statement without its body, a comment, or nothing."""

    indent: int
    tokens: list[Token]
    comment: str = ""


def split_tokens(text: str) -> list[Token]:
    """The tokens of a text, without comments and space. Raises SyntaxError where it has none."""
    return [token for token in _scan(text) if token.kind not in ("comment", "newline", "space")]


def split_lines(text: str) -> list[Line]:
    """The logical lines of a text."""
    lines, depth, start = [Line(0, [])], 0, 0
    for token in _scan(text):
        line = lines[-1]
        if token.kind == "newline" and not depth:
            line.indent = line.indent if line.tokens or line.comment else token.start - start
            start = token.end
            lines.append(Line(0, []))
        elif token.kind == "comment" and not depth:
            line.comment, line.indent = token.text, line.indent if line.tokens else token.start - start
        elif token.kind not in ("comment", "newline", "space"):
            line.indent = line.indent if line.tokens else token.start - start
            line.tokens.append(token)
            depth += (token.text in "([{") - (token.text in ")]}")
    return lines if lines[-1].tokens or lines[-1].comment else lines[:-1]


def _scan(text: str) -> list[Token]:
    tokens, place = [], 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise SyntaxError(f"no token: {text[place : place + 40]!r}")
        tokens.append(Token(match.lastgroup, match[0], place, match.end()))
        place = match.end()
    return tokens


def split_arguments(text: str) -> list[str]:
    """The parts of a text between commas that stand in no bracket."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
