"""Texts fit to leave this machine in a trace: without keys, kernels beyond their heads, or paths of the disk."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from tritonsmith.evaluator.kernel_text import text_sha

KERNEL_SHOWN = 160
"""Characters of a kernel's text that a trace shows: its head."""
TEXT_SHOWN = 4000
"""Characters of the head of any other text."""
END_SHOWN = 2000
"""Characters of the end of any other text: a prompt says there what it asks."""
_SHORTEST_KEY = 8
"""Shorter values of variables that only look like keys are words that also occur elsewhere."""
_KEY_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTHORIZATION|DSN)S?$|_HEADERS$", re.IGNORECASE)
_KEY_SHAPE = re.compile(
    r"\b(?:sk|pk|rk|lsv2|ls_|hf|gsk|xai|ghp|gho|github_pat|glpat|AKIA|AIza)[-_]?[A-Za-z0-9_-]{16,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=Bearer )[A-Za-z0-9._~+/=-]{8,}"
    r"|(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"
)
_FENCED = re.compile(r"(^[ \t>]*(`{3,}+|~{3,}+)[^\n]*\n)(.*?)(^[ \t>]*\2[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(
    r"(?:import [\w., ]+|from [\w.]+ import .*|def \w+\(.*|class \w+[(:].*|(?:for|while|with|if|elif|else|try|except)\b.*:\s*(?:#.*)?"
    r"|(?:return|raise|assert|yield)\b.*|@\w.*|tl\..*|[\w.\[\](), :]+ ?[-+*/@|&]?= ?\S.*|[\w.]+(?:\[[^\]]*\])?\(.*)$"
)
_CODE_LINES = 4
"""So many lines that look like Python, close together, are a piece of a kernel, wherever they are quoted."""
_LOOKED_AT = 200
"""Characters of a line that decide; an expression on longer ones could take long."""
_GAP = 3
"""So many other lines in a row end such a piece."""
_QUOTES = ('"""', "'''")
_PATH = re.compile(r"(?<![\w./~-])~?/(?:[\w.+@%~-]+/)+(?=[\w.+@%-])")
_DEEPEST = 60
"""Levels of nested records and lists that a trace shows."""


class Redactor:
    """Makes texts fit to leave; the keys are those in use when it is made."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets` are values that never leave, together with those of all variables of the environment that are named like keys."""
        known = {*(secret for secret in secrets if len(secret) >= _SHORTEST_KEY // 2), *key_values(os.environ)}
        written = {form for secret in known for form in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe=""))}
        self._secrets = sorted(written, key=len, reverse=True)  # a key that is part of another one goes last

    def __call__(self, value: Any) -> Any:
        """The same records and lists with every text in them, names of fields too, fit to leave."""
        return self._clean(value, _DEEPEST)

    def text(self, text: str) -> str:
        """One text: keys replaced, kernels cut to their heads, paths to their last part."""
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        text = _cut_kernels(_KEY_SHAPE.sub("[key]", text))
        return _cut_middle(_PATH.sub(".../", text))

    def _clean(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            named = {self.text(name) if isinstance(name, str) else name: item for name, item in value.items()}
            return {name: self._clean(item, depth - 1) for name, item in named.items()} if depth else "..."
        if isinstance(value, list | tuple | set | frozenset):
            return [self._clean(item, depth - 1) for item in value] if depth else "..."
        return value


def key_values(environment: Mapping[str, str]) -> list[str]:
    """Values of the variables with names of keys, and each part of a list of headers."""
    values = [value for name, value in environment.items() if _KEY_NAME.search(name)]
    values += [part.partition("=")[2] for value in values for part in value.split(",") if "=" in part]
    return [value for value in values if len(value) >= _SHORTEST_KEY]


def secrets_in(*things: object) -> list[str]:
    """Keys that objects such as LangChain models were given directly, where they hold them as secrets."""
    values = [value for thing in things for value in getattr(thing, "__dict__", {}).values()]
    return [value.get_secret_value() for value in values if isinstance(value, SecretStr)]


def cut(text: str, shown: int) -> str:
    """The head of a longer text, with its length and the sha that names the whole."""
    return text if len(text) <= shown else f"{text[:shown]} ... [{len(text)} characters, sha {text_sha(text)}]"


def _cut_middle(text: str) -> str:
    return text if len(text) <= TEXT_SHOWN + END_SHOWN else f"{cut(text, TEXT_SHOWN)} ... {text[-END_SHOWN:]}"


def _cut_kernels(text: str) -> str:
    """The text with fenced blocks and bare pieces of code cut; the words around them stay."""
    if len(text) <= KERNEL_SHOWN:
        return text
    text = "\n".join(_cut_escaped(line) for line in text.split("\n"))
    parts, at = [], 0
    for match in _FENCED.finditer(text):
        parts += [_cut_bare(text[at : match.start()]), match[1], cut(match[3], KERNEL_SHOWN), "\n" if match[4] else "", match[4]]
        at = match.end()
    return "".join([*parts, _cut_bare(text[at:])])


def _cut_escaped(line: str) -> str:
    """Code within JSON stands in one line."""
    inner = line.split("\\n")
    return cut(line, KERNEL_SHOWN) if len(inner) > _CODE_LINES and _is_code(inner) else line


def _cut_bare(text: str) -> str:
    """The text with pieces of code outside of fences cut, from first to last line, with comments and texts in them."""
    lines: list[str] = []
    piece: list[str] = []
    last = other = 0
    quoted = False
    for line in text.split("\n"):
        opens = sum(line.count(mark) for mark in _QUOTES) % 2 == 1
        code = quoted or opens or _looks_like_code(line) or bool(piece and line.strip() and line[0] in " \t")
        quoted ^= opens
        if not code and not piece:
            lines.append(line)
            continue
        piece.append(line)
        if code:
            last, other = len(piece), 0
        elif line.strip() and not line.startswith("#"):
            other += 1
        if other == _GAP:
            lines += [*_cut_code(piece[:last]), *piece[last:]]
            piece, other = [], 0
    return "\n".join([*lines, *_cut_code(piece[:last]), *piece[last:]])


def _cut_code(lines: list[str]) -> list[str]:
    return [cut("\n".join(lines), KERNEL_SHOWN)] if _is_code(lines) else lines


def _is_code(lines: list[str]) -> bool:
    return sum(map(_looks_like_code, lines)) >= _CODE_LINES


def _looks_like_code(line: str) -> bool:
    return _CODE.match(line.lstrip()[:_LOOKED_AT]) is not None
