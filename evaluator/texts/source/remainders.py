"""What is left of a sequence once a step is taken off it, in loops and in functions that call themselves for the rest."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tritonsmith.evaluator.texts.source.host_things import Routine

_ONE = ("1", "-1")
_JOINING = ("cat", "concat", "concatenate", "hstack", "vstack")
"""Functions that put parts of a sequence together."""
RESULT = "result of "
"""How the name begins that stands for what a function gives back to itself, in the loop that it amounts to."""


def read_shortened(node: ast.expr) -> ast.expr | None:
    """The sequence that an expression gives without its first or last step, or turned by one: `x[:, 1:]`, `x[:-1]`, `x.roll(-1, 0)`."""
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        cut = [part for part in parts if ast.unparse(part) not in (":", "...", "None")]
        ends = {"1:", ":-1"}
        return node.value if len(cut) == 1 and ast.unparse(cut[0]) in ends else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    of_torch = ast.unparse(node.func.value) == "torch"
    whole, given = (node.args[0], node.args[1:]) if of_torch and node.args else (node.func.value, node.args)
    place = {"roll": 0, "narrow": 1}.get(node.func.attr)
    if node.func.attr == "contiguous":
        return read_shortened(whole)
    return whole if place is not None and len(given) > place and ast.unparse(given[place]) in _ONE else None


def find_shortened(body: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names that statements set to a sequence without one step, with that sequence; also by `head, *x = x` and `del x[0]`."""
    for part in ast.walk(body):
        if isinstance(part, ast.Delete):
            for target in part.targets:
                if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and ast.unparse(target.slice) in ("0", "-1"):
                    yield target.value.id, target.value
        for target in part.targets if isinstance(part, ast.Assign) else [part.target] if isinstance(part, ast.NamedExpr) else []:
            value = part.value if isinstance(part, ast.Assign | ast.NamedExpr) else None
            if value is not None:
                yield from _pair_shortened(target, value)


def find_windows(body: ast.AST) -> Iterator[str]:
    """Names of sequences that lose a step at one end and get another one at the other: `x = torch.cat([x[1:], new])`."""
    for part in ast.walk(body):
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.Call) and getattr(part.value.func, "attr", "") in _JOINING:
            pieces = [piece for argument in part.value.args[:1] for piece in getattr(argument, "elts", ())]
            wholes = {ast.unparse(whole) for piece in pieces if (whole := read_shortened(piece)) is not None}
            yield from (target.id for target in part.targets if isinstance(target, ast.Name) and target.id in wholes)


def _pair_shortened(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    names = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    if isinstance(target, ast.Name) and (whole := read_shortened(value)) is not None:
        yield target.id, whole
    elif isinstance(value, ast.Tuple) and len(value.elts) == len(names):
        for one, other in zip(names, value.elts, strict=True):
            yield from _pair_shortened(one, other)
    elif len(names) == 2:
        starred = [name.value for name in names if isinstance(name, ast.Starred)]
        if len(starred) == 1 and isinstance(starred[0], ast.Name):
            yield starred[0].id, value
        elif isinstance(names[1], ast.Name) and (whole := _read_first_cut(value)) is not None:
            yield names[1].id, whole


def _read_first_cut(node: ast.expr) -> ast.expr | None:
    """The sequence that is cut behind its first step: `x.split([1, n - 1])`, `x.tensor_split([1])`."""
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in ("split", "tensor_split") or not node.args:
        return None
    assert isinstance(node.func, ast.Attribute)
    whole, given = (node.args[0], node.args[1:]) if ast.unparse(node.func.value) == "torch" else (node.func.value, node.args)
    sizes = given[0].elts if given and isinstance(given[0], ast.List | ast.Tuple) else []
    return whole if sizes and ast.unparse(sizes[0]) == "1" else None


def find_recursion(function: Routine) -> ast.For | ast.While | None:
    """A function that calls itself with a parameter one further, or with the rest of a sequence, as the loop that this amounts to."""
    if isinstance(function, ast.Lambda):
        return None
    names = [argument.arg for argument in function.args.args if argument.arg != "self"]
    rests = {name: whole.id for name, whole in find_shortened(function) if isinstance(whole, ast.Name)}
    for part in ast.walk(function):
        if not isinstance(part, ast.Call) or getattr(part.func, "id", getattr(part.func, "attr", "")) != function.name:
            continue
        given = dict(zip(names, part.args, strict=False)) | {word.arg or "": word.value for word in part.keywords}
        changed = {name: value for name, value in given.items() if name in names and ast.unparse(value) != name}
        rest = f"*{function.args.vararg.arg}" if function.args.vararg is not None else ""
        for name, value in changed.items():
            handed: list[ast.stmt] = [ast.Assign([ast.Name(other, ast.Store())], left) for other, left in changed.items() if other != name]
            whole = read_shortened(value)
            shortened = whole is not None and ast.unparse(whole) == name or isinstance(value, ast.Name) and rests.get(value.id) == name
            loop: ast.For | ast.While | None = None
            results = [*_find_results(function, part), f"{RESULT}{function.name}"]
            before: list[ast.stmt] = [ast.Expr(ast.Name(result, ast.Load())) for result in results]
            handed.append(ast.Assign([ast.Name(results[-1], ast.Store())], ast.Constant(None)))
            if shortened:
                body = [*before, *function.body, *handed]
                loop = ast.For(ast.Name(f"{name}[0]", ast.Store()), ast.Name(name, ast.Load()), body, [])
            elif rest and ast.unparse(value) == rest:  # the first of the others takes this parameter's place
                loop = ast.For(ast.Name(name, ast.Store()), ast.Name(rest[1:], ast.Load()), [*function.body, *handed], [])
            elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
                if ast.unparse(value.left) == name and isinstance(value.right, ast.Constant):
                    step = ast.AugAssign(ast.Name(name, ast.Store()), value.op, value.right)
                    loop = ast.While(ast.Constant(True), [*before, *function.body, *handed, step], [])
            if loop is not None:
                return ast.fix_missing_locations(ast.copy_location(loop, function))
    return None


def _find_results(function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> list[str]:
    """Names for what a call gives back, which is the state of the step before where a function calls itself first."""
    given = [part for part in ast.walk(function) if isinstance(part, ast.Assign) and part.value is call]
    names = [name for part in given for target in part.targets for name in ast.walk(target)]
    return [name.id for name in names if isinstance(name, ast.Name)]
