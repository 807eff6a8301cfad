"""The constructor of a task's Model: the parameters that a kernel takes over, and the arguments that it is made for."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection

from tritonsmith.evaluator.texts.source.parse import parse

ANY = "*init_inputs"
"""Parameters of a kernel whose task does not write its own as plain names."""


def read_constructor(source: str) -> ast.FunctionDef | None:
    """`Model.__init__` where its parameters are plain names with constants as defaults; None for any other."""
    try:
        tree = parse(source)
    except SyntaxError:
        return None
    classes = [item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == "Model"]
    found = next((item for cls in classes for item in cls.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if found is None:
        return None
    arguments = found.args
    defaults = [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]
    plain = not (arguments.vararg or arguments.kwarg or arguments.posonlyargs) and all(isinstance(one, ast.Constant) for one in defaults)
    return found if plain else None


def write_signature(init: ast.FunctionDef) -> str:
    """Its parameters without `self` and without annotations, whose names a kernel's file does not know."""
    bare = copy.deepcopy(init.args)
    for argument in (*bare.args, *bare.kwonlyargs):
        argument.annotation = None
    return ast.unparse(bare).removeprefix("self").removeprefix(", ")


def names_of(init: ast.FunctionDef) -> tuple[str, ...]:
    """Its parameters without `self`, those in front that are given by position."""
    return tuple(argument.arg for argument in (*init.args.args[1:], *init.args.kwonlyargs))


def bind(init: ast.FunctionDef, values: Collection[str]) -> dict[str, str]:
    """What each parameter is set to by these positional arguments and by the defaults; nothing for what is no literal."""
    arguments = init.args
    positional = [argument.arg for argument in arguments.args]
    bound = dict(zip(positional[len(positional) - len(arguments.defaults) :], map(ast.unparse, arguments.defaults), strict=True))
    bound |= {one.arg: ast.unparse(value) for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value}
    bound |= dict(zip(positional[1:], values, strict=False))
    return {name: bound[name] for name in names_of(init) if bound.get(name)}


def made_for(source: str, values: tuple[str, ...] | None) -> tuple[str, dict[str, str]]:
    """Parameters of a kernel's constructor, and by name every argument that it is made for; none where nobody looked."""
    if values is None:
        return ANY, {}
    init = read_constructor(source)
    if init is not None and len(values) < len(init.args.args):
        return write_signature(init), bind(init, values)
    return ANY, ({"init_inputs": f"({''.join(f'{value}, ' for value in values).strip()})"} if all(values) else {})
