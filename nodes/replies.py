"""Reading a model's reply: kernels from fenced blocks, an analysis from JSON."""

import ast
import re

from pydantic import ValidationError

from tritonsmith.prompts.analysis import Analysis

_THINKING = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_FENCE = re.compile(r"^```(?:python|py)?[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def modules_in(reply: str) -> list[str]:
    """Every complete fenced block that defines class ModelNew, in order; a block that is cut off or does not parse is none."""
    return [block for block in _FENCE.findall(_THINKING.sub("", reply)) if _defines_model(block)]


def reason_in(reply: str) -> str:
    """The first line of prose of a reply, at most 300 characters."""
    prose = _FENCE.sub("", _THINKING.sub("", reply)).strip()
    return prose.splitlines()[0][:300] if prose else ""


def analysis_in(reply: str) -> Analysis:
    """The analysis in a reply's JSON object. Raises ValueError that says what is wrong with it."""
    text = _THINKING.sub("", reply)
    first, last = text.find("{"), text.rfind("}")
    if first < 0 or last < first:
        raise ValueError("there is no JSON object in the reply")
    try:
        return Analysis.model_validate_json(text[first : last + 1])
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc'])) or 'JSON'}: {fault['msg']}" for fault in error.errors()]
        raise ValueError("; ".join(faults)) from error


def _defines_model(block: str) -> bool:
    try:
        return any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in ast.parse(block).body)
    except (SyntaxError, ValueError):
        return False
