"""Where a further argument goes into a call."""

from __future__ import annotations

import ast
import io
import tokenize

from tritonsmith.evaluator.texts.spaces.space import Offsets

_SKIPPED = {tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class CallEnds:
    """Where a further argument goes into a call, and the text around it.

    Args:
        text: the file.
        offsets: its places.
    """

    def __init__(self, text: str, offsets: Offsets) -> None:
        self._before: dict[int, tuple[int, tuple[str, str]]] = {}
        last, last_end = "", 0
        lines = text.splitlines(keepends=True)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in _SKIPPED:
                continue
            row, column = token.start
            place = offsets.at(row, len(lines[row - 1][:column].encode()))
            if token.string == ")":
                around = (" ", ",") if last == "," else ("", ", ") if last == "(" else (", ", "")
                self._before[place + 1] = last_end, around
            row, column = token.end
            last, last_end = token.string, offsets.at(row, len(lines[row - 1][:column].encode()))
        self._offsets = offsets

    def of(self, call: ast.Call) -> tuple[int, tuple[str, str]]:
        """The place ahead of the closing bracket, and what stands before and after an argument there."""
        return self._before[self._offsets.span(call)[1]]
