"""The constructor of a task's Model as a function of a kernel's file: it makes tensors that no weights' file holds."""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Iterable, Mapping

from tritonsmith.author.constructor import ANY
from tritonsmith.author.members import Line, attribute, list_parents
from tritonsmith.evaluator.tasks.declarations import assigned_names
from tritonsmith.evaluator.texts.source.parse import parse

BUILD = "build_reference"
"""Name of the function."""


def write_builder(source: str, overrides: Mapping[str, object], signature: str) -> str:
    """The function: what the constructor needs of the task's file, and a call of it. Empty where a function cannot hold that."""
    kept = keep_needed(parse(source).body)
    if any(isinstance(one, ast.ImportFrom) and any(alias.name == "*" for alias in one.names) for one in kept):
        return ""
    lines: list[str] = []
    for statement in kept:
        lines.append(ast.unparse(strip(statement)))
        lines += [f"{name} = {overrides[name]!r}" for name in assigned_names(statement) if name in overrides]
    body = "\n".join(lines)
    text = f'def {BUILD}({signature}):\n    """The reference without its forward: its constructor makes tensors that no state holds."""\n'
    call = f"with torch.random.fork_rng(devices=[]):\n    return Model({_pass_on(signature)})"
    return text + textwrap.indent(f"{body}\n{call}", "    ")


def table_lines(names: Iterable[str], signature: str) -> list[Line]:
    """Lines of the kernel's constructor that keep such tensors as buffers."""
    lines: list[Line] = [f"built = {BUILD}({_pass_on(signature)})"]
    for name in names:
        holder, _, last = name.rpartition(".")
        value = _reach("built", name)
        lines += [*list_parents(name), f'{attribute(holder)}.register_buffer("{last}", {value}.detach().clone(), persistent=False)']
    return lines


def _reach(text: str, path: str) -> str:
    """Expression of what lies at a dotted path below another, such as the `0` of an nn.Sequential or a list's `tables[0]`."""
    for part in path.split("."):
        text = f"{text}.{part}" if part.partition("[")[0].isidentifier() else f'getattr({text}, "{part}")'
    return text


def _pass_on(signature: str) -> str:
    """The arguments of a call with the parameters of a signature."""
    if signature == ANY or not signature:
        return signature
    function = parse(f"def f({signature}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    plain = [one.arg for one in function.args.args]
    return ", ".join([*plain, *(f"{one.arg}={one.arg}" for one in function.args.kwonlyargs)])


def keep_needed(body: list[ast.stmt], *, forwards: bool = False) -> list[ast.stmt]:
    """The statements that the class Model needs; its forward counts only with `forwards`."""
    needed, kept = {"Model"}, set[int]()
    while True:
        more = [one for one in body if id(one) not in kept and needed & {*_list_defined(one)}]
        if not more:
            return [one for one in body if id(one) in kept]
        for one in more:
            kept.add(id(one))
            needed |= {name.id for name in ast.walk(strip(one, forwards=forwards)) if isinstance(name, ast.Name)}


def _list_defined(statement: ast.stmt) -> list[str]:
    """The names that a statement of a file defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return []
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
    return [*assigned_names(statement)]


def strip(statement: ast.stmt, *, forwards: bool = False) -> ast.stmt:
    """The statement without docstrings of classes, and without the forward of a module unless asked for."""
    if isinstance(statement, ast.ClassDef):
        body = [
            strip(one, forwards=forwards)
            for one in statement.body
            if forwards or not (isinstance(one, ast.FunctionDef) and one.name == "forward")
        ]
        body = [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
        bare = copy.copy(statement)
        bare.body = body or [ast.Pass()]
        return bare
    return statement
