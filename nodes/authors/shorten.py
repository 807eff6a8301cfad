"""A kernel's text as short as a worked example has to be: without comments, docstrings, and functions that nobody calls."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from tritonsmith.evaluator.texts.source.parse import parse

MOST_LINES = 120
"""Of a kernel that is shown."""
_VALUE = r"(?:\d[\d.]*|True|False)"
_TUNABLE = re.compile(rf"tunable: \w+ = {_VALUE}(?:, {_VALUE})* \[(?:grid|block|memory)\]")
"""What a comment may say to a tuning search; words of any other kind are left out."""
_ODD_LINE_ENDS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
"""What ends a line for some readers and not for Python."""


def shorten_kernel(source: str, most: int = MOST_LINES) -> tuple[str, str] | None:
    """The text in at most so many lines, and a sentence on what is left out.

    Comments and docstrings never stay: a stored text is nobody's, and they would speak to the model that reads it.

    Args:
        source: a kernel file.
        most: lines that may be shown.

    Returns:
        None where not even its kernels are short enough, or where the text cannot be read.

    Example:
        >>> shorten_kernel("x = 1  # one\\n")
        ('x = 1', 'Comments and functions that nothing calls are left out.')
    """
    if _ODD_LINE_ENDS.search(source):
        return None
    try:
        whole = _drop_uncalled(_drop_strings(source.replace("\r\n", "\n").replace("\r", "\n")))
        bare = _drop_blank_lines(_drop_comments(whole))
        if ast.dump(parse(bare)) != ast.dump(parse(whole)):
            return None  # what is shown must be the program that was judged
        kernels = _take_kernels(bare)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return None
    if _count_lines(bare) <= most:
        return bare, "Comments and functions that nothing calls are left out."
    if kernels and _count_lines(kernels) <= most:
        return kernels, "Only its kernels are shown; constants, launches and the module are left out."
    return None


def _count_lines(text: str) -> int:
    return len(text.splitlines())


def _drop_strings(source: str) -> str:
    """The text without statements that are a string alone: docstrings, and strings in place of comments."""
    data = source.encode().splitlines(keepends=True)
    for body in _list_bodies(parse(source)):
        alone = all(_is_string(statement) for statement in body)
        for number, statement in enumerate(body):
            if not _is_string(statement):
                continue
            first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
            before, after = data[first][: statement.col_offset], data[last][statement.end_col_offset :]
            whole = not before.strip() and not after.split(b"#")[0].strip()
            kept = b"" if whole and not (alone and number == 0) else before + b"..." + after
            data[first : last + 1] = [kept] + [b""] * (last - first)  # so that other statements keep their lines
    return b"".join(data).decode()


def _list_bodies(tree: ast.AST) -> list[list[ast.stmt]]:
    bodies = [getattr(node, name, None) for node in ast.walk(tree) for name in ("body", "orelse", "finalbody")]
    return [body for body in bodies if isinstance(body, list) and body]


def _is_string(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str | bytes))


def _drop_uncalled(source: str) -> str:
    """The text without functions at its top that nothing else names, until there are none."""
    while True:
        tree = parse(source)
        functions = [item for item in tree.body if isinstance(item, ast.FunctionDef)]
        unused = [item for item in functions if not any(_names(other, item.name) for other in tree.body if other is not item)]
        if not unused:
            return source
        lines = source.splitlines(keepends=True)
        for item in reversed(unused):
            first, last = _span(item)
            del lines[first:last]
        source = "".join(lines)


def _names(statement: ast.stmt, name: str) -> bool:
    return any(name in (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "value", "")) for node in ast.walk(statement))


def _span(item: ast.FunctionDef) -> tuple[int, int]:
    """Index of a function's first line, decorators included, and of the line behind it."""
    first = min([item.lineno, *(decorator.lineno for decorator in item.decorator_list)])
    return first - 1, item.end_lineno or item.lineno


def _drop_comments(source: str) -> str:
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            tunable = _TUNABLE.search(token.string)
            lines[row - 1] = f"{lines[row - 1][:column]}{f'# {tunable[0]}' if tunable else ''}".rstrip() + "\n"
    return "".join(lines)


def _drop_blank_lines(source: str) -> str:
    """The text with one blank line ahead of what stands at its top behind something indented, and no others outside of strings."""
    inside = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.start[0] < token.end[0] and token.string.strip():
            inside |= set(range(token.start[0], token.end[0] + 1))
    lines: list[str] = []
    for number, line in enumerate(source.splitlines(), start=1):
        if number in inside:
            lines.append(line)
        elif line.strip():
            top = line[0] not in " \t)]}"
            if top and lines and (lines[-1][:1] in (" ", "\t") or line.startswith(("@", "def ", "class "))) and lines[-1][:1] != "@":
                lines.append("")
            lines.append(line.rstrip())
    return "\n".join(lines)


def _take_kernels(source: str) -> str:
    """Only the functions that Triton compiles."""
    lines, parts = source.splitlines(), []
    for item in parse(source).body:
        if isinstance(item, ast.FunctionDef) and any("jit" in ast.dump(decorator) for decorator in item.decorator_list):
            first, last = _span(item)
            parts.append("\n".join(lines[first:last]))
    return "\n\n".join(parts)
