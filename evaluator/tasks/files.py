"""Task files in KernelBench form: read once, checked and sized without running them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from tritonsmith.evaluator.errors import TaskError, UsageError
from tritonsmith.evaluator.schema import FIT, ChosenSize, PrecisionClass, SizeValue, Task, TaskFacts
from tritonsmith.evaluator.tasks.declarations import (
    Shape,
    check_override,
    choose_mode,
    declarations_of,
    is_size_value,
    list_sizes,
    parse_task,
    read_declarations,
)
from tritonsmith.evaluator.texts.source.parse import find_bound_names, parse_expression

_PARTS = {
    "Model": "a class Model(torch.nn.Module) with the reference's forward",
    "get_inputs": "a function get_inputs() that returns the list of forward's arguments",
    "get_init_inputs": "a function get_init_inputs() that returns the list of Model's arguments",
}
"""What every task file defines, with the words for it in a message."""

def load_task(
    path: str | Path,
    size: str = "full",
    overrides: Mapping[str, SizeValue] | None = None,
    precision: PrecisionClass | str | None = None,
    mode: str | None = None,
    backward: bool | None = None,
) -> Task:
    """The task in a file.

    Args:
        path: a file that defines Model, get_inputs and get_init_inputs.
        size: `full` (the file as it stands), `small` (its `SMALL` dict applied; a file without one needs `overrides`), or `fit` (as
            `small`, but where there is neither an evaluator chooses; `at_chosen_size` then gives the task).
        overrides: values for module-level names, applied after those of the size.
        precision: the arithmetic that the reference stands for; None or `auto`: what follows from its types (`settle_task`).
        mode: `eval` or `train`; None: what the file's MODE says, else `eval`.
        backward: whether gradients are judged and timed too; None: what the file's BACKWARD says.
    Raises:
        TaskError: one sentence that names file, line where known, and the cure.
    """
    path = Path(path)
    source = _read(path)
    tree = parse_task(path, source)
    _require_parts(path, tree)
    declares = read_declarations(path, source, tree)
    task = Task(
        name=path.stem,
        path=str(path),
        folder=os.path.dirname(os.path.abspath(path)),
        source=source,
        precision=_precision(precision),
        asked=precision not in (None, "auto"),
        mode=choose_mode(mode, declares.mode),
        backward=declares.backward if backward is None else backward,
        declares=declares,
    )
    return at_size(task, size, overrides)


def at_size(task: Task, size: str, overrides: Mapping[str, SizeValue] | None = None) -> Task:
    """The task at a size, by what it declares; `size` and `overrides` as for `load_task`. Its file is not read. Raises TaskError."""
    declares, chosen, meant = declarations_of(task), dict[str, SizeValue](), None
    has_small = bool(declares.small_fault) or declares.small is not None
    if size == FIT and (overrides or has_small):
        size = "small"
    if size == "small" and has_small:
        if declares.small is None:
            raise TaskError(f"{task.path}{declares.small_fault}")
        chosen, meant = dict(declares.small), dict(overrides or {})
    elif size == "small" and not overrides:
        raise _lack_of_small(task)
    elif size not in ("full", "small", FIT):
        raise TaskError(f"{task.path}: size {size!r} does not exist; choose full or small")
    for name, value in (overrides or {}).items():
        check_override(Path(task.path), {name: declares.get(name) for name in declares.names}, name, value)
        chosen[name] = value
    size = "custom" if overrides else size
    return task.model_copy(update={"size": size, "overrides": chosen, "sized": "", "meant": meant})


def at_small_size(task: Task) -> Task | None:
    """The task at the size of its SMALL, in the class that it has; None where it declares none."""
    if declarations_of(task).small is None:
        return None
    return at_size(task, "small").model_copy(update={"asked": True})


def _lack_of_small(task: Task) -> TaskError:
    return TaskError(
        f"{task.path}: declares no small size; give one with --set NAME=VALUE (module-level names: "
        f"{list_sizes(declarations_of(task).names)}), use --size full, or add SMALL = {{'NAME': VALUE}} to the file"
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
        raise _lack_of_small(task)
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
    return declarations_of(task).shapes


def find_value(task: Task, name: str) -> object:
    """What a module-level name is set to at the task's size; Ellipsis where the file computes it."""
    return task.overrides[name] if name in task.overrides else declarations_of(task).get(name)


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


def _precision(precision: PrecisionClass | str | None) -> PrecisionClass:
    try:
        return PrecisionClass.IEEE if precision in (None, "auto") else PrecisionClass(str(precision))
    except ValueError:
        choices = ", ".join(["auto", *(choice.value for choice in PrecisionClass)])
        raise TaskError(f"precision {precision!r} does not exist; choose one of {choices}") from None


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


def _require_parts(path: Path, tree: ast.Module) -> None:
    bound = find_bound_names(tree)
    for name, description in _PARTS.items():
        node = bound.get(name)
        if node is None:
            raise TaskError(f"{path}: lacks {name}; add {description}")
        is_class = isinstance(node, ast.ClassDef)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and is_class != (name == "Model"):
            raise TaskError(f"{path}, line {node.lineno}: {name} is a {'class' if is_class else 'function'}; make it {description}")


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
