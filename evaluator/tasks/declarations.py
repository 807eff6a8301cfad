"""What a task file says of itself at module level: its names, SMALL, SHAPES, MODE, BACKWARD and DOMAINS, read from its syntax tree."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias, TypeGuard

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.records.declarations import Literals
from tritonsmith.evaluator.schema import Declarations, SizeValue, Task
from tritonsmith.evaluator.texts.source.parse import parse

Mode: TypeAlias = Literal["eval", "train"]
"""What a module is put into before it runs: evaluation, or training."""
Span: TypeAlias = tuple[int, int]
"""Every whole number from the first to the last."""
Shape: TypeAlias = dict[str, SizeValue]
"""One entry of a file's SHAPES: module-level names with a value, or with a span as a pair of whole numbers."""

_DECLARATIONS = frozenset({"SMALL", "SHAPES", "MODE", "BACKWARD", "DOMAINS", "WEIGHTS", "INPUTS"})
"""Names that say how the task is judged, and are no sizes themselves."""
_MODES: tuple[Mode, ...] = ("eval", "train")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
"""Statements and expressions whose assignments bind no name of the module."""
_MOST_READ = 64
"""Texts whose declarations are kept, of tasks that do not carry theirs."""


def declarations_of(task: Task) -> Declarations:
    """What the task's file declares: as the task carries it, else read from its source, once. Raises TaskError."""
    known = task.declares
    if known is not None and known.source_sha == text_sha(task.source):
        return known
    return _read_source(task.path, task.source)


@lru_cache(_MOST_READ)
def _read_source(path: str, source: str) -> Declarations:
    return read_declarations(Path(path), source, parse_task(Path(path), source))


def parse_task(path: Path, source: str) -> ast.Module:
    """The syntax tree of a task file. Raises TaskError."""
    try:
        return parse(source)
    except SyntaxError as error:
        raise TaskError(f"{path}, line {error.lineno}: Python cannot read it ({error.msg}); fix the syntax") from None
    except ValueError:
        raise TaskError(f"{path}: holds null bytes; name a Python source file") from None


def read_declarations(path: Path, source: str, tree: ast.Module) -> Declarations:
    """What a file declares. Raises TaskError for a malformed SHAPES, DOMAINS, MODE or BACKWARD; SMALL is one where it is needed."""
    names = _read_literals(tree)
    shapes = _read_shapes(path, tree, names)  # a malformed declaration is said at once, not when a candidate is to be promoted
    _check_domains(path, tree)
    mode, backward = _read_mode(path, tree), _read_backward(path, tree)
    small, fault = None, ""
    if (node := find_assigned(tree, "SMALL")) is not None:
        try:
            small = _read_small(path, node, names)
        except TaskError as error:
            fault = str(error).removeprefix(str(path))
    values = {name: value for name, value in names.items() if _fits_in_json(value)}
    return Declarations(
        source_sha=text_sha(source), values=values, computed=tuple(name for name in names if name not in values), small=small,
        small_fault=fault, shapes=shapes, mode=mode, backward=backward,
    )  # fmt: skip


def _fits_in_json(value: object) -> TypeGuard[Literals]:
    """Whether a literal comes back from JSON as it was: no bytes, no complex number, no half of a surrogate pair, no infinity."""
    if isinstance(value, str):
        return not any("\ud800" <= sign <= "\udfff" for sign in value)
    return value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def list_sizes(names: Iterable[str]) -> str:
    """The names that a size may set, for a message."""
    return ", ".join(sorted({*names} - _DECLARATIONS)) or "none"


def check_override(path: Path, names: Mapping[str, object], name: str, value: SizeValue, where: str = "") -> None:
    """Raise TaskError where a name cannot be set to a value: `names` has what the file sets, Ellipsis for what it computes."""
    where = where or f"{path}: --set {name}={value}"
    given = f"{where} gives {name} the value {value!r}, but the file sets it to"
    if name not in names or name in _DECLARATIONS:
        raise TaskError(f"{where} names {name}, which the file does not set at module level; choose among: {list_sizes(names)}")
    current = names[name]
    numeric = (int, float)
    if isinstance(current, numeric) and not isinstance(current, bool) and (isinstance(value, bool) or not isinstance(value, numeric)):
        raise TaskError(f"{given} the number {current}; give a number")
    if isinstance(current, int) and not isinstance(current, bool) and isinstance(value, float):
        raise TaskError(f"{given} the whole number {current}; give a whole number")
    if isinstance(value, tuple) and current is not ...:
        raise TaskError(f"{given} {current!r}; give a value of that kind")


def is_size_value(value: object) -> bool:
    """Whether a module-level name may be set to it: a number, a word, or a list of whole numbers."""
    return isinstance(value, int | float | str) or (isinstance(value, list | tuple) and all(type(one) is int for one in value))


def assigned_names(statement: ast.stmt) -> Iterator[str]:
    """Names that a module-level statement binds by assignment, also inside `if`, `for`, `with` and `try`."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, _SCOPES):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        pending.extend(ast.iter_child_nodes(node))


def list_assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment sets, each with its expression; `a, b = 1, 2` sets two."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return
    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
        pairs = [(target, statement.value)]
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            pairs = [*zip(target.elts, statement.value.elts, strict=False)]
        yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))


def _read_literals(tree: ast.Module) -> dict[str, object]:
    """Module-level names with the literal they are set to; Ellipsis where the value is computed."""
    found: dict[str, object] = {}
    for statement in tree.body:
        for name in assigned_names(statement):
            found[name] = ...
        found |= {name: value.value for name, value in list_assigned(statement) if isinstance(value, ast.Constant)}
    return found


def find_assigned(tree: ast.Module, name: str) -> ast.expr | None:
    """The value that a plain module-level statement gives to a name."""
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return statement.value
    return None


def _read_mode(path: Path, tree: ast.Module) -> Mode | None:
    node = find_assigned(tree, "MODE")
    if node is None:
        return None
    declared = node.value if isinstance(node, ast.Constant) else None
    for mode in _MODES:
        if mode == declared:
            return mode
    raise TaskError(f'{path}, line {node.lineno}: MODE is {ast.unparse(node)}; write MODE = "eval" or MODE = "train"')


def _read_backward(path: Path, tree: ast.Module) -> bool:
    node = find_assigned(tree, "BACKWARD")
    if node is None:
        return False
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return node.value
    raise TaskError(f"{path}, line {node.lineno}: BACKWARD is {ast.unparse(node)}; write BACKWARD = True or BACKWARD = False")


def choose_mode(asked: str | None, declared: Mode | None) -> Mode:
    """The mode that is asked for, else the declared one, else `eval`. Raises TaskError for one that does not exist."""
    chosen = asked or declared or "eval"
    for mode in _MODES:
        if mode == chosen:
            return mode
    raise TaskError(f"mode {asked!r} does not exist; choose eval or train")


def _read_shapes(path: Path, tree: ast.Module, names: Mapping[str, object]) -> tuple[Shape, ...]:
    node = find_assigned(tree, "SHAPES")
    if node is None:
        return ()
    form = "SHAPES must be a literal list of dicts from module-level names to values or (lowest, highest) pairs of whole numbers"
    if not isinstance(node, ast.List | ast.Tuple):
        raise TaskError(f"{path}, line {node.lineno}: {form}")
    return tuple(_read_shape(path, entry, names, form) for entry in node.elts)


def _read_shape(path: Path, node: ast.expr, names: Mapping[str, object], form: str) -> Shape:
    where = f"{path}, line {node.lineno}"
    try:
        shape = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        shape = None
    if not isinstance(shape, dict) or not shape or not all(isinstance(name, str) for name in shape):
        raise TaskError(f"{where}: {form}")
    for name, value in shape.items():
        if isinstance(value, tuple):
            if len(value) != 2 or any(type(end) is not int for end in value):
                raise TaskError(f"{where}: {form}")
            if value[0] > value[1]:
                raise TaskError(f"{where}: SHAPES gives {name} the span {value}; write the lowest value first")
        elif not isinstance(value, int | float | str):
            raise TaskError(f"{where}: {form}")
        for end in value if isinstance(value, tuple) else (value,):
            check_override(path, names, name, end, f"{where}: SHAPES")
    return shape


def _check_domains(path: Path, tree: ast.Module) -> None:
    """Raises TaskError for a malformed DOMAINS; one that is computed of other names is checked when the file runs."""
    node = find_assigned(tree, "DOMAINS")
    if node is None or any(isinstance(part, ast.Name | ast.Call | ast.Attribute) for part in ast.walk(node)):
        return
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        value = None
    read_domains(f"{path}, line {node.lineno}", value)


def read_domains(where: str, value: object) -> dict[str | int, tuple[float, float]]:
    """The ends of what inputs may be, by name or place among forward's arguments, as DOMAINS of a file has them.

    Whole numbers lie below the second end, as with torch.randint. Raises TaskError; `where` begins its sentence.
    """
    if not isinstance(value, dict) or not all(_is_domain(name, ends) for name, ends in value.items()):
        form = "a dict from names or places of forward's arguments to (lowest, highest) pairs of numbers"
        raise TaskError(f"{where}: DOMAINS must be {form}, such as {{'ids': (0, 50000)}}; whole numbers lie below the second one")
    for name, (low, high) in value.items():
        if not low < high:
            raise TaskError(f"{where}: DOMAINS gives {name!r} the ends {low} and {high}; write the lower one first")
    return {name: (low, high) for name, (low, high) in value.items()}


def _is_domain(name: object, ends: object) -> bool:
    if not isinstance(ends, tuple | list) or len(ends) != 2:  # noqa: PLR2004 - two ends
        return False
    numbers = all(type(end) in (int, float) and math.isfinite(end) for end in ends)
    return numbers and (isinstance(name, str) or (type(name) is int and name >= 0))


def _read_small(path: Path, node: ast.expr, names: Mapping[str, object]) -> dict[str, SizeValue]:
    try:
        small = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        small = None
    pairs = small.items() if isinstance(small, dict) else ((None, None),)
    if not isinstance(small, dict) or not all(isinstance(key, str) and is_size_value(value) for key, value in pairs):
        form = "a literal dict from module-level names to numbers, words or lists of whole numbers"
        raise TaskError(f"{path}, line {node.lineno}: SMALL must be {form}")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in small.items()}
    for name, value in values.items():
        check_override(path, names, name, value, f"{path}, line {node.lineno}: SMALL")
    return values
