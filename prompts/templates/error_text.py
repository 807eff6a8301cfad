"""Error messages cut to the part that matters: head and tail, and the line of the candidate with its neighbours."""

import re

from tritonsmith.evaluator.schema import Record

MOST_CHARACTERS = 1600
"""Of a message that is shown whole."""
_HEAD = 500
"""Characters that are kept of the start of a longer one."""
_TAIL = 1000
"""Characters that are kept of its end, where the reason usually stands."""
_NEIGHBOURS = 3
"""Lines shown before and after the one at fault."""
_LINE = re.compile(r"\bline (\d+)")
_IN_KERNEL = re.compile(r"\bat (\d+):\d+:\n\s*def (\w+)\(")
"""Triton counts lines from the kernel's `def`."""
_ECHO = re.compile(r"(at \d+:\d+:\n)(?:.*\n)*?(?=[ \t]*\^\s*$)", re.MULTILINE)
"""The kernel's text up to the fault, which Triton repeats before the caret; the excerpt shows it better."""


class ErrorText(Record):
    """What an author is shown of an error."""

    text: str
    excerpt: str = ""
    """The lines around the fault, numbered; the fault is marked with >."""


def trim_error(message: str, source: str) -> ErrorText:
    """A long message without its middle, and the candidate's lines around the first line that the message names."""
    text = _ECHO.sub(r"\1", message.strip())
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:_HEAD].rstrip()}\n[... {len(text) - _HEAD - _TAIL} characters left out ...]\n{text[-_TAIL:].lstrip()}"
    return ErrorText(text=text, excerpt=_cut_excerpt(message, source))


def _find_fault(message: str, lines: list[str]) -> int:
    """The number of the line that the message is about; 0 where it names none."""
    inside = _IN_KERNEL.search(message)
    if inside:
        start = re.compile(rf"\s*def {inside[2]}\(")
        return next((at + int(inside[1]) for at, line in enumerate(lines) if start.match(line)), 0)
    found = _LINE.search(message)
    return int(found[1]) if found else 0


def _cut_excerpt(message: str, source: str) -> str:
    lines = source.splitlines()
    number = _find_fault(message, lines)
    if not 1 <= number <= len(lines):
        return ""
    first, last = max(1, number - _NEIGHBOURS), min(len(lines), number + _NEIGHBOURS)
    return "\n".join(f"{'>' if at == number else ' '} {at:4d} | {lines[at - 1]}" for at in range(first, last + 1))
