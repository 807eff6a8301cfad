"""Reads a model's reply: its text after the thoughts, the module in its fenced blocks, and the next question without one."""

import ast
import re
import textwrap
from dataclasses import dataclass

from tritonsmith.evaluator.texts.source.parse import parse
from tritonsmith.evaluator.texts.source.refuse import find_fault

_THINKING = re.compile(r"<(think|thinking|thought)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"\A.*</(?:think|thinking|thought)>", re.DOTALL | re.IGNORECASE)
"""Some servers send the end of the thoughts without their beginning."""
_MEANT = re.compile(r"^class\s+ModelNew\b", re.MULTILINE)
"""The line that a block has which is meant to be the module, also where Python cannot read the block."""
_CODE = re.compile(r"(import|from|class|def|@|#|\"\"\"|''')")
"""How a text begins that is a file, and no sentence about one."""
_MARK = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([^`\n]*)\Z")

CUT = "Your answer was cut off before its end"
"""What is wrong with an answer that stops at the limit."""
NO_MODULE = "There is no complete fenced block that defines class ModelNew"
"""What is wrong with an answer without a kernel."""


def strip_thoughts(reply: str) -> str:
    """The reply without thoughts and without a server's marks around them, with plain line ends."""
    return _THOUGHT_END.sub("", _THINKING.sub("", reply.replace("\r\n", "\n"))).strip()


@dataclass(frozen=True)
class _Block:
    """A fenced block: its text, and the lines it covers (marks included)."""

    text: str
    first: int
    last: int
    closed: bool


def modules_in(reply: str) -> list[str]:
    """Every complete module that defines class ModelNew, in order: fenced blocks first, else an unfenced or unclosed one that parses."""
    text = strip_thoughts(reply)
    for nested in (True, False):
        blocks = _blocks(text, nested)
        modules = [block.text for block in blocks if block.closed and _defines_model(block.text)]
        if modules:
            return modules
    rest = blocks[-1].text if blocks and not blocks[-1].closed else "" if blocks else f"{text}\n"
    return [rest] if _defines_model(rest) else []


def broken_modules_in(reply: str, cut: bool = False) -> list[str]:
    """Every text that is meant to be the module and that Python cannot read, in order; of a cut reply only what has an end."""
    text = strip_thoughts(reply)
    for nested in (True, False):
        blocks = _blocks(text, nested)
        broken = [block.text for block in blocks if block.closed and _is_broken_model(block.text)]
        if broken or cut:
            return broken
    rest = blocks[-1].text if blocks and not blocks[-1].closed else "" if blocks else f"{text}\n"
    return [rest] if _CODE.match(rest.lstrip()) and _is_broken_model(rest) else []


def module_in(reply: str, cut: bool = False) -> str | None:
    """The last complete module of a reply, else the last one that Python cannot read, so that its fault can be named and mended.

    None where neither is there, or where a reply that was cut off had begun another block.
    """
    modules = modules_in(reply) or broken_modules_in(reply, cut)
    if not modules:
        return None
    blocks = _blocks(strip_thoughts(reply), nested=True)
    if cut and not (blocks and blocks[-1].closed):
        return None  # what was cut off may be the better version, or the end of this one
    return modules[-1]


def reason_in(reply: str) -> str:
    """The first line of prose of a reply, at most 300 characters."""
    text = strip_thoughts(reply)
    covered = {number for block in _blocks(text, nested=True) for number in range(block.first, block.last + 1)}
    prose = (line.strip() for number, line in enumerate(text.split("\n")) if number not in covered)
    first = next((line for line in prose if line), "")
    return "" if first.startswith(("import ", "from ")) else first[:300]


def ask_again(reply: str, cut: bool) -> str:
    """What to say after an answer without a usable module: that it was cut off, the line that is no Python, or what is missing."""
    if cut:
        return f"{CUT}. Answer again and shorter: the whole file in one ```python block, without comments, explanation or other text."
    broken = broken_modules_in(reply)
    fault = f"The module is no Python: {find_fault(broken[-1])}" if broken else NO_MODULE
    return f"{fault}. Answer again, with the whole file in one ```python block and no other text."


def ask_analysis_again(error: str, cut: bool) -> str:
    """What to say after an analysis that cannot be used."""
    fault = CUT if cut else f"That cannot be used: {error}"
    return f"{fault}. Answer again with the one JSON object alone{', in fewer words' if cut else ''}."


def _blocks(text: str, nested: bool) -> list[_Block]:
    """Fenced blocks in one pass (models that loop repeat a fence a hundred thousand times).

    With `nested`, a mark with a name inside of a block is part of it, as in a docstring; else it begins a new block, as where a
    model forgot to end the last one. The last block may be open.
    """
    found: list[_Block] = []
    mark, first, block = "", 0, list[str]()
    lines = text.split("\n")
    for number, line in enumerate(lines):
        fence = _MARK.match(line)
        if not mark:
            if fence:
                mark, first, block = fence[1], number, []
        elif fence and not fence[2].strip() and fence[1][0] == mark[0] and len(fence[1]) >= len(mark):
            found.append(_Block(_dedent(block), first, number, True))
            mark = ""
        elif fence and not nested:
            mark, first, block = fence[1], number, []
        else:
            block.append(line)
    if mark:
        found.append(_Block(_dedent(block), first, len(lines) - 1, False))
    return found


def _dedent(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines) + "\n")


def _defines_model(block: str) -> bool:
    try:
        return any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in parse(block).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_broken_model(block: str) -> bool:
    """Whether a block has the line of the class, and a fault for which the line can be named."""
    return _MEANT.search(block) is not None and not _defines_model(block) and find_fault(block) != ""
