"""Reading a model's reply: what it says after its thoughts, the module among its fenced blocks, and what to say when there is none."""

import ast
import re
import textwrap

_THINKING = re.compile(r"<(think|thinking|thought)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"\A.*</(?:think|thinking|thought)>", re.DOTALL | re.IGNORECASE)
"""Some servers send the end of the thoughts without their beginning."""
_FENCE = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})[^\n`]*\n(?P<block>.*?)^[ \t]*(?P=mark)[ \t]*$", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[^\n`]*\n", re.MULTILINE)

CUT = "Your answer was cut off before its end"
NO_MODULE = "There is no complete fenced block that defines class ModelNew"


def spoken(reply: str) -> str:
    """The reply without thoughts, whatever the marks that a server leaves around them, and with plain line ends."""
    return _THOUGHT_END.sub("", _THINKING.sub("", reply.replace("\r\n", "\n"))).strip()


def modules_in(reply: str) -> list[str]:
    """Every complete module that defines class ModelNew, in order: fenced blocks first, else an unfenced or unclosed one that parses."""
    text = spoken(reply)
    blocks = [textwrap.dedent(found["block"]) for found in _FENCE.finditer(text)]
    modules = [block for block in blocks if _defines_model(block)]
    if modules or blocks:
        return modules
    opening = _OPENING.search(text)
    rest = text[opening.end() :] if opening else text
    return [f"{rest}\n"] if _defines_model(rest) else []


def module_in(reply: str, cut: bool = False) -> str | None:
    """The module that a reply offers: the last complete one; none where a reply that was cut off had begun another block after it."""
    modules = modules_in(reply)
    if not modules:
        return None
    if not cut:
        return modules[-1]
    text = spoken(reply)
    fences = list(_FENCE.finditer(text))
    if not fences or _OPENING.search(text, fences[-1].end()):
        return None  # what was cut off may be the better version, or the end of this one
    return modules[-1]


def reason_in(reply: str) -> str:
    """The first line of prose of a reply, at most 300 characters."""
    prose = _FENCE.sub("", spoken(reply)).strip()
    first = prose.splitlines()[0] if prose else ""
    return "" if first.startswith(("```", "~~~", "import ", "from ")) else first[:300]


def ask_again(cut: bool) -> str:
    """What to say after an answer without a usable module."""
    if cut:
        return f"{CUT}. Answer again and shorter: the whole file in one ```python block, without comments, explanation or other text."
    return f"{NO_MODULE}. Answer again, with the whole file in one ```python block and no other text."


def ask_analysis_again(error: str, cut: bool) -> str:
    """What to say after an analysis that cannot be used."""
    fault = CUT if cut else f"That cannot be used: {error}"
    return f"{fault}. Answer again with the one JSON object alone{', in fewer words' if cut else ''}."


def _defines_model(block: str) -> bool:
    try:
        return any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in ast.parse(block).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
