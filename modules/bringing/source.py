"""A module by the source files of its class, where torch.export cannot take it. Imports torch."""

from __future__ import annotations

import ast
import inspect
import itertools
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.tasks.declarations import assigned_names
from tritonsmith.modules.bringing.call_text import CallText
from tritonsmith.modules.bringing.draws import write_draw
from tritonsmith.modules.bringing.sizes import Sizes
from tritonsmith.modules.bringing.structure import Signature, mark_constants, split_call
from tritonsmith.modules.bringing.writer import INPUTS, WEIGHTS, WrittenTask

SCRIPT = "brought_script"
"""Name of the file that holds the classes of a script or a notebook."""
_MOST_FILES = 200
"""Files of a user's project that are taken along."""


def write_from_source(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, init: Any, reason: str
) -> tuple[WrittenTask, dict[str, str]]:
    """The task that calls the module's own class, and the source files that go beside it, by their place.

    Args:
        module: the original.
        args: of the call, with `kwargs`.
        kwargs: of the call.
        result: what the call gives.
        init: arguments of the class's constructor: a tuple, a dict, a pair of both, or None.
        reason: why the module is not exported.
    Raises:
        UsageError: the source or the arguments of the constructor cannot be had.
    """
    kind = type(module)
    given, named = _choose_init(module, init, reason)
    leaves, spec = split_call(args, kwargs)
    numbers = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    names = _name_leaves(module, leaves, args, kwargs)
    call = CallText(names)
    said = ", ".join(
        [*map(call.write, args), *(f"{name}={call.write(value)}" for name, value in kwargs.items())]
    )
    files, place = collect_sources(kind, reason, [record for record in call.records if record.__module__ == kind.__module__])
    imports = [f"from {place} import {kind.__name__} as Original"]
    for record in call.records:
        if record.__module__ != kind.__module__:
            more, where = collect_sources(record, reason)
            files |= more
        imports.append(f"from {place if record.__module__ == kind.__module__ else where} import {record.__name__}")
    built = ", ".join([*map(repr, given), *(f"{name}={value!r}" for name, value in named.items())])
    draws = [write_draw(leaves[number], list(map(str, leaves[number].shape))) for number in numbers]
    out_leaves, out_spec = pytree.tree_flatten(result)
    mode = "train" if module.training else "eval"
    text = _join(kind, imports, reason, built, [names[n] for n in numbers], said, draws, mode)
    places, count = list[int | None](), 0
    for leaf in out_leaves:
        places.append(count if isinstance(leaf, torch.Tensor) else None)
        count += isinstance(leaf, torch.Tensor)
    plain = {number: leaf for number, leaf in enumerate(out_leaves) if not isinstance(leaf, torch.Tensor)}
    state = {
        name: value
        for name, value in module.state_dict(keep_vars=True).items()
        if isinstance(value, torch.Tensor)
    }
    signature = Signature(
        spec,
        tuple(numbers),
        mark_constants(leaves, numbers),
        out_spec,
        tuple(places),
        plain,
        {name: name for name in state},
        mode,
    )
    return WrittenTask(
        text, signature, state, [leaves[n] for n in numbers], {}, {}, Sizes(), list(leaves)
    ), files


def _choose_init(module: nn.Module, init: Any, reason: str) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of the constructor: as given, else attributes of the same names. Raises UsageError where some are not known."""
    if init is not None:
        if isinstance(init, Mapping):
            return [], dict(init)
        if (
            isinstance(init, tuple)
            and len(init) == 2
            and isinstance(init[0], list | tuple)
            and isinstance(init[1], dict)
        ):  # noqa: PLR2004
            return list(init[0]), dict(init[1])
        return list(init), {}
    found: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(type(module).__init__).parameters.items())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = getattr(module, name, None)
        plain = isinstance(value, int | float | str | bool) and name in vars(module)
        if plain:
            found[name] = value
        elif parameter.default is parameter.empty:
            raise UsageError(
                f"{type(module).__name__} cannot be exported: {reason}; its class can be taken instead, if init= gives "
                f"the arguments of its constructor ({name} is not known)"
            )
    return [], found


def collect_sources(kind: type, reason: str, records: Sequence[type] = ()) -> tuple[dict[str, str], str]:
    """The source files of a class and of what they import in the user's project, by their place, and the name to import the class from.

    A script is taken with its `records` too, classes beside that one.
    """
    space = sys.modules.get(kind.__module__)
    if "<locals>" in kind.__qualname__:
        raise UsageError(
            f"{kind.__name__} cannot be exported: {reason}; its class is made inside a function, so move it to a file of its own"
        )
    if (
        space is None or kind.__module__ == "__main__"
    ):  # a script, or a module that somebody has taken out again
        return {f"{SCRIPT}.py": _read_script(kind, reason, [record.__name__ for record in records])}, SCRIPT
    if _is_installed(space):
        return {}, kind.__module__
    files: dict[str, str] = {}
    for name, part in _list_imported(space):
        path = Path(str(part.__file__))
        place = Path(*name.split("."))
        files[str(place / "__init__.py" if path.name == "__init__.py" else place.with_suffix(".py"))] = (
            path.read_text(encoding="utf-8")
        )
    return files, kind.__module__


def _read_script(kind: type, reason: str, records: Sequence[str]) -> str:
    """Imports, classes, functions and plain values of a script, without what it does."""
    try:
        place = Path(inspect.unwrap(kind.forward).__code__.co_filename)  # type: ignore[attr-defined]
        source = (
            place.read_text(encoding="utf-8") if place.is_file() else inspect.getsource(kind)
        )  # a cell of a notebook has none
    except (OSError, TypeError, AttributeError):
        raise UsageError(
            f"{kind.__name__} cannot be exported: {reason}; its source is not known, so write its class into a file"
        ) from None
    body = _keep_needed(ast.parse(source).body, {kind.__name__, *records})
    if not any(isinstance(one, ast.Import | ast.ImportFrom) for one in body):
        body = [
            *ast.parse(
                "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn, Tensor"
            ).body,
            *body,
        ]
    return ast.unparse(ast.Module(body, [])) + "\n"


def _keep_needed(body: list[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """The statements of a script that some classes need, directly or not; imports by `*` and of the future are among them."""
    needed, kept = names, set[int]()
    while True:
        more = [one for one in body if id(one) not in kept and needed & set(_list_defined(one))]
        if not more:
            return [one for one in body if id(one) in kept]
        for one in more:
            kept.add(id(one))
            needed |= {part.id for part in ast.walk(one) if isinstance(part, ast.Name)} | {"*"}


def _list_defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return [statement.name]
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return ["*"]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
    return [*assigned_names(statement)]


def _is_installed(space: ModuleType) -> bool:
    place = getattr(space, "__file__", None)
    if not place:
        return True
    file = str(Path(place).resolve())
    folders = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib")]
    return any(file.startswith(str(Path(folder).resolve())) for folder in folders)


def _list_imported(space: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    """The module and those of the user's project that it imports, directly or not, with the packages around them."""
    waiting, seen = [space.__name__], set[str]()
    while waiting and len(seen) < _MOST_FILES:
        name = waiting.pop()
        part = sys.modules.get(name)
        if (
            name in seen
            or part is None
            or _is_installed(part)
            or name == "__main__"
            or not str(part.__file__).endswith(".py")
        ):
            continue
        seen.add(name)
        yield name, part
        waiting += [name.rpartition(".")[0]] * ("." in name)
        for value in list(vars(part).values()):
            waiting.append(
                value.__name__
                if isinstance(value, ModuleType)
                else str(getattr(value, "__module__", "") or "")
            )


def _name_leaves(
    module: nn.Module, leaves: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[int, str]:
    """Names for the tensors of a call, by their leaves: the parameter of forward, with a number where it holds several."""
    leaf = itertools.count()
    parts = [[next(leaf) for _ in pytree.tree_leaves(value)] for value in (*args, *kwargs.values())]
    given, named = parts[: len(args)], dict(zip(kwargs, parts[len(args) :], strict=True))
    try:
        bound = inspect.signature(module.forward).bind(*given, **named).arguments
    except (TypeError, ValueError):
        bound = {"x": (given, named)}
    names: dict[int, str] = {}
    for word, value in bound.items():
        inside = [number for number in pytree.tree_leaves(value) if isinstance(leaves[number], torch.Tensor)]
        for count, number in enumerate(inside):
            name = word if len(inside) == 1 else f"{word}_{count}"
            names[number] = name if name not in ("self", "torch", "Model", "Original") else f"{name}_"
    return names


def _join(
    kind: type, imports: list[str], reason: str, built: str, names: list[str], said: str, draws: list[str], mode: str
) -> str:
    heads = [f'MODE = "{mode}"'] * (mode == "train") + [f'WEIGHTS = "{WEIGHTS}"', f'INPUTS = "{INPUTS}"']
    told = " ".join(reason.replace("\\", "/").replace('"', "'").split())
    return "\n".join([
        f'"""{kind.__name__} by its source file, as torch.export cannot take it: {told}."""', "",
        *(["import collections"] if "collections." in said else []), "import torch",
        "from torch.utils import _pytree as pytree", "",
        *imports, "", *heads, "", "",
        "class Model(Original):", "    def __init__(self):", f"        super().__init__({built})", "",
        f"    def forward(self, {', '.join(names)}):",
        f"        result = super().forward({said})",
        "        tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]",
        "        return tensors[0] if len(tensors) == 1 else tuple(tensors)", "", "",
        "def get_inputs():", "    return [", *(f"        {draw}," for draw in draws), "    ]", "", "",
        "def get_init_inputs():", "    return []", "",
    ])  # fmt: skip
