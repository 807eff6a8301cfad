"""What the text itself states about its tunables, in comments.

    # tunable: BLOCK_M = 32, 64, 128 [block]
    # tunable: GROUP = 1, 4, 8

A name is that of a constant or of an option of a launch. The stage in brackets is `grid`, `block` or `memory`; without it the reader
chooses.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass

from tritonsmith.evaluator.schema import Stage

_STATED = re.compile(r"#+\s*tunable:\s*(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<values>[^\[\]]+?)\s*(?:\[(?P<stage>\w+)\])?\s*$")
_ANY = re.compile(r"#+\s*tunable\b")
STAGES = {"grid": Stage.TUNE_GRID, "block": Stage.TUNE_BLOCK, "memory": Stage.TUNE_MEMORY}
"""The stages by the word that states them."""
_MOST_VALUES = 32
"""Values of one tunable that are read."""


@dataclass(frozen=True)
class Statement:
    """One tunable that a comment states."""

    name: str
    values: tuple[int | float | bool | str | None, ...]
    stage: Stage | None
    line: int


def read_statements(text: str) -> tuple[list[Statement], list[str]]:
    """What comments state, and a sentence for each that cannot be read."""
    found: list[Statement] = []
    unread: list[str] = []
    for token in _comments(text):
        if not _ANY.match(token.string):
            continue
        line, match = token.start[0], _STATED.match(token.string)
        try:
            if match is None:
                raise ValueError
            values = ast.literal_eval(f"({match['values'].rstrip(',')},)")
            word = match["stage"]
            if not all(isinstance(value, int | float | bool | str | None) for value in values) or (word and word not in STAGES):
                raise ValueError
        except (ValueError, SyntaxError):
            unread.append(f"line {line}: write `# tunable: NAME = 32, 64, 128 [block]`, with grid, block or memory in the brackets")
            continue
        found.append(Statement(match["name"], tuple(dict.fromkeys(values))[:_MOST_VALUES], STAGES[word] if word else None, line))
    return found, unread


def _comments(text: str) -> list[tokenize.TokenInfo]:
    try:
        return [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT]
    except (tokenize.TokenError, SyntaxError):
        return []
