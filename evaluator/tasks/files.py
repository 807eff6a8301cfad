"""Task files in KernelBench form: read, checked and sized without running them."""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from tritonsmith.evaluator.errors import TaskError, UsageError
from tritonsmith.evaluator.schema import FIT, ChosenSize, PrecisionClass, SizeValue, Task, TaskFacts
from tritonsmith.evaluator.texts.source.parse import find_bound_names, parse, parse_expression

Mode: TypeAlias = Literal["eval", "train"]
"""What a module is put into before it runs: evaluation, or training."""
Span: TypeAlias = tuple[int, int]
"""Every whole number from the first to the last."""
Shape: TypeAlias = dict[str, SizeValue | Span]
"""One entry of a file's SHAPES: module-level names with a value or a span."""

_PARTS = {
    "Model": "a class Model(torch.nn.Module) with the reference's forward",
    "get_inputs": "a function get_inputs() that returns the list of forward's arguments",
    "get_init_inputs": "a function get_init_inputs() that returns the list of Model's arguments",
}
"""What every task file defines, with the words for it in a message."""
_DECLARATIONS = frozenset({"SMALL", "SHAPES", "MODE", "DOMAINS"})
"""Names that say how the task is judged, and are no sizes themselves."""
_MODES: tuple[Mode, ...] = ("eval", "train")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
"""Statements and expressions whose assignments bind no name of the module."""


def load_task(
    path: str | Path,
    size: str = "full",
    overrides: Mapping[str, SizeValue] | None = None,
    precision: PrecisionClass | str | None = None,
    mode: str | None = None,
) -> Task:
    """The task in a file.

    Args:
        path: a file that defines Model, get_inputs and get_init_inputs.
        size: `full` (the file as it stands), `small` (its `SMALL` dict applied; a file without one needs `overrides`), or `fit` (as
            `small`, but where there is neither an evaluator chooses; `at_chosen_size` then gives the task).
        overrides: values for module-level names, applied after those of the size.
        precision: the arithmetic that the reference stands for; None or `auto`: what follows from its types (`settle_task`).
        mode: `eval` or `train`; None: what the file's MODE says, else `eval`.
    Raises:
        TaskError: one sentence that names file, line where known, and the cure.
    """
    path = Path(path)
    source = _read(path)
    tree = _parse(path, source)
    _require_parts(path, tree)
    names = _literals(tree)
    _shapes(path, tree, names)  # a malformed declaration is said at once, not when a candidate is to be promoted
    _check_domains(path, tree)
    put_into = _mode(path, tree, mode)
    chosen: dict[str, SizeValue] = {}
    if size == FIT and (overrides or _find_value(tree, "SMALL")):
        size = "small"
    meant = dict(overrides or {}) if size == "small" and _find_value(tree, "SMALL") else None
    if size == "small":
        chosen |= _small(path, tree, names, needed=not overrides)
    elif size not in ("full", FIT):
        raise TaskError(f"{path}: size {size!r} does not exist; choose full or small")
    for name, value in (overrides or {}).items():
        _check_override(path, names, name, value)
        chosen[name] = value
    return Task(
        name=path.stem,
        path=str(path),
        folder=os.path.dirname(os.path.abspath(path)),
        source=source,
        size="custom" if overrides else size,
        overrides=chosen,
        precision=_precision(precision),
        asked=precision not in (None, "auto"),
        mode=put_into,
        meant=meant,
    )


def choose_load_size(asked: str | None, present: bool) -> str:
    """The size for `load_task`: what was asked for; `auto` or None is full with a card. Without one small sizes are had for every task."""
    size = ("full" if present else "small") if asked in (None, "auto") else str(asked)
    return FIT if size == "small" and not present else size


def at_chosen_size(task: Task, chosen: ChosenSize | None) -> Task:
    """The task at the size that an evaluator chose; any other task as it is. Raises TaskError where it was to choose and did not."""
    if task.size != FIT:
        return task
    if chosen is None:
        path = Path(task.path)
        raise _lack_of_small(path, _literals(_parse(path, task.source)))
    size, meant = ("small", dict(task.overrides)) if chosen.overrides else ("full", None)
    overrides = {**task.overrides, **chosen.overrides}
    return task.model_copy(update={"size": size, "overrides": overrides, "sized": chosen.note, "meant": meant})


def settle_task(task: Task, facts: TaskFacts) -> Task:
    """The task at the size that an evaluator chose, in the class that its types mean where nobody asked for another, with what it reads.

    Raises TaskError.
    """
    task = at_chosen_size(task, facts.chosen)
    task = task if facts.reads is None else task.model_copy(update={"reads": facts.reads})
    return in_found_class(task, facts.precision)


def in_found_class(task: Task, found: PrecisionClass) -> Task:
    """The task in the class that its types mean; as it is where a class was asked for."""
    return task if task.asked or task.precision is not PrecisionClass.IEEE else task.model_copy(update={"precision": found})


def settled_size(task: Task) -> str:
    """The task's size in words; empty while the evaluator has still to choose it."""
    return "" if task.size == FIT else task.size


def declared_shapes(task: Task) -> tuple[Shape, ...]:
    """Sizes that the task allows besides its own, as its module-level SHAPES declares them. Raises TaskError."""
    path = Path(task.path)
    tree = _parse(path, task.source)
    return _shapes(path, tree, _literals(tree))


def find_value(task: Task, name: str) -> object:
    """What a module-level name is set to at the task's size; Ellipsis where the file computes it."""
    return task.overrides.get(name, _literals(_parse(Path(task.path), task.source)).get(name, ...))


def parse_overrides(settings: Iterable[str]) -> dict[str, SizeValue]:
    """`["seq_len=16", "activation=relu"]` as a dict; numbers and booleans are read as such. Raises UsageError."""
    result: dict[str, SizeValue] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not name.isidentifier() or not text:
            raise UsageError(f"--set {setting}: write NAME=VALUE, such as --set seq_len=16")
        try:
            value = ast.literal_eval(parse_expression(text))
        except (ValueError, SyntaxError):
            value = {"true": True, "false": False}.get(text.lower(), text)
        if not is_size_value(value):
            raise UsageError(f"--set {setting}: the value must be a number, True, False, a word or a list of whole numbers")
        result[name] = tuple(value) if isinstance(value, list) else value
    return result


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


def _precision(precision: PrecisionClass | str | None) -> PrecisionClass:
    try:
        return PrecisionClass.IEEE if precision in (None, "auto") else PrecisionClass(str(precision))
    except ValueError:
        choices = ", ".join(["auto", *(choice.value for choice in PrecisionClass)])
        raise TaskError(f"precision {precision!r} does not exist; choose one of {choices}") from None


def _mode(path: Path, tree: ast.Module, asked: str | None) -> Mode:
    node = _find_value(tree, "MODE")
    declared = node.value if isinstance(node, ast.Constant) else None
    if node is not None and declared not in _MODES:
        raise TaskError(f'{path}, line {node.lineno}: MODE is {ast.unparse(node)}; write MODE = "eval" or MODE = "train"')
    chosen = asked or declared or "eval"
    for mode in _MODES:
        if mode == chosen:
            return mode
    raise TaskError(f"mode {asked!r} does not exist; choose eval or train")


def _read(path: Path) -> str:
    if path.is_dir():
        raise TaskError(f"{path}: is a directory; name one task file in it, such as {path / '39_gru.py'}")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TaskError(f"{path}: no such task file; check the path, or give the number of a task that comes along, such as 39") from None
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise TaskError(f"{path}, line {line}: is not UTF-8 text; save the file as UTF-8") from None


def _parse(path: Path, source: str) -> ast.Module:
    try:
        return parse(source)
    except SyntaxError as error:
        raise TaskError(f"{path}, line {error.lineno}: Python cannot read it ({error.msg}); fix the syntax") from None
    except ValueError:
        raise TaskError(f"{path}: holds null bytes; name a Python source file") from None


def _require_parts(path: Path, tree: ast.Module) -> None:
    bound = find_bound_names(tree)
    for name, description in _PARTS.items():
        node = bound.get(name)
        if node is None:
            raise TaskError(f"{path}: lacks {name}; add {description}")
        is_class = isinstance(node, ast.ClassDef)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and is_class != (name == "Model"):
            raise TaskError(f"{path}, line {node.lineno}: {name} is a {'class' if is_class else 'function'}; make it {description}")


def _literals(tree: ast.Module) -> dict[str, object]:
    """Module-level names with the literal they are set to; Ellipsis where the value is computed."""
    found: dict[str, object] = {}
    for statement in tree.body:
        for name in assigned_names(statement):
            found[name] = ...
        found |= {name: value.value for name, value in list_assigned(statement) if isinstance(value, ast.Constant)}
    return found


def list_assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment sets, each with its expression; `a, b = 1, 2` sets two."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return
    for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
        pairs = [(target, statement.value)]
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            pairs = [*zip(target.elts, statement.value.elts, strict=False)]
        yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))


def _find_value(tree: ast.Module, name: str) -> ast.expr | None:
    """The value that a plain module-level statement gives to a name."""
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return statement.value
    return None


def _small(path: Path, tree: ast.Module, names: Mapping[str, object], *, needed: bool) -> dict[str, SizeValue]:
    node = _find_value(tree, "SMALL")
    if node is not None:
        return _read_small(path, node, names)
    if not needed:
        return {}
    raise _lack_of_small(path, names)


def _lack_of_small(path: Path, names: Mapping[str, object]) -> TaskError:
    known = ", ".join(sorted(set(names) - _DECLARATIONS)) or "none"
    return TaskError(
        f"{path}: declares no small size; give one with --set NAME=VALUE (module-level names: {known}), "
        "use --size full, or add SMALL = {'NAME': VALUE} to the file"
    )


def _shapes(path: Path, tree: ast.Module, names: Mapping[str, object]) -> tuple[Shape, ...]:
    node = _find_value(tree, "SHAPES")
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
            _check_override(path, names, name, end, f"{where}: SHAPES")
    return shape


def _check_domains(path: Path, tree: ast.Module) -> None:
    """Raises TaskError for a malformed DOMAINS; one that is computed of other names is checked when the file runs."""
    node = _find_value(tree, "DOMAINS")
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
        _check_override(path, names, name, value, f"{path}, line {node.lineno}: SMALL")
    return values


def _check_override(path: Path, names: Mapping[str, object], name: str, value: SizeValue, where: str = "") -> None:
    where = where or f"{path}: --set {name}={value}"
    given = f"{where} gives {name} the value {value!r}, but the file sets it to"
    if name not in names or name in _DECLARATIONS:
        known = ", ".join(sorted(set(names) - _DECLARATIONS)) or "none"
        raise TaskError(f"{where} names {name}, which the file does not set at module level; choose among: {known}")
    current = names[name]
    numeric = (int, float)
    if isinstance(current, numeric) and not isinstance(current, bool) and (isinstance(value, bool) or not isinstance(value, numeric)):
        raise TaskError(f"{given} the number {current}; give a number")
    if isinstance(current, int) and not isinstance(current, bool) and isinstance(value, float):
        raise TaskError(f"{given} the whole number {current}; give a whole number")
    if isinstance(value, tuple) and current is not ...:
        raise TaskError(f"{given} {current!r}; give a value of that kind")


def ends_of(shape: Shape) -> list[dict[str, SizeValue]]:
    """The lowest and the highest size of an entry; one where it holds no span."""
    low: dict[str, SizeValue] = {name: value[0] if isinstance(value, tuple) else value for name, value in shape.items()}
    high: dict[str, SizeValue] = {name: value[1] if isinstance(value, tuple) else value for name, value in shape.items()}
    return [low] if low == high else [low, high]


def at_shape(task: Task, changes: dict[str, SizeValue]) -> Task:
    """The task with these names changed on top of its own size."""
    return task.model_copy(update={"overrides": {**task.overrides, **changes}, "size": "custom", "meant": None})


def at_meant_size(task: Task) -> Task:
    """The task at the size that kernels are for; as it is where that is its own."""
    return task if task.meant is None else task.model_copy(update={"overrides": dict(task.meant), "size": "full", "meant": None})
