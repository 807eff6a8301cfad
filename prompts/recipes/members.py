"""Lines of a candidate's `__init__`: members that carry the reference's parameter names, and the signature it shares with the task."""

from __future__ import annotations

import ast

from tritonsmith.evaluator.schema import OpNode, TaskFacts
from tritonsmith.evaluator.source.parse import parse


def attribute(path: str) -> str:
    """Expression of a dotted path below self; parts such as the `0` of an nn.Sequential are no identifiers."""
    text = "self"
    for part in filter(None, path.split(".")):
        text = f"{text}.{part}" if part.isidentifier() else f'getattr({text}, "{part}")'
    return text


def assign(path: str, value: str) -> str:
    """Statement that sets a dotted path below self."""
    holder, _, last = path.rpartition(".")
    return f"{attribute(path)} = {value}" if last.isidentifier() else f'setattr({attribute(holder)}, "{last}", {value})'


def nested(path: str) -> list[str]:
    """Lines that make the bare modules above a dotted path, unless they exist."""
    parents = path.split(".")[:-1]
    paths = [".".join(parents[:depth]) for depth in range(1, len(parents) + 1)]
    return [assign(one, f'getattr({attribute(one.rpartition(".")[0])}, "{one.rpartition(".")[2]}", None) or nn.Module()') for one in paths]


def parameter(name: str, facts: TaskFacts) -> list[str]:
    """Lines that make one parameter under its dotted name."""
    spec = facts.parameters[name]
    frozen = "" if spec.dtype.startswith(("float", "bfloat")) else ", requires_grad=False"
    return [*nested(name), assign(name, f"nn.Parameter(torch.empty({tuple(spec.shape)!r}, dtype=torch.{spec.dtype}){frozen})")]


def without(made: list[str], names: list[str], facts: TaskFacts) -> list[str]:
    """Lines for parameters that no line makes yet: weights are transferred by name, so every name must exist."""
    return [line for name in names if parameter(name, facts)[-1] not in made for line in parameter(name, facts)]


def gru_maker(source: str, node: OpNode) -> tuple[str, str]:
    """The holder's call and `__init__`'s parameters, as the task writes them where that is self-contained, else with sizes as constants."""
    fields = ("input_size", "hidden_size", "num_layers", "bias", "batch_first")
    fixed = ", ".join(f"{key}={node.attributes[key]!r}" for key in fields if key in node.attributes)
    try:
        found = _written_call(parse(source), node.target)
    except SyntaxError:
        found = None
    return (f"GRUWeights({found[0]})", found[1]) if found else (f"GRUWeights({fixed})", "*init_inputs")


def _written_call(tree: ast.Module, target: str) -> tuple[str, str] | None:
    classes = [item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == "Model"]
    inits = [item for cls in classes for item in cls.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
    if not inits:
        return None
    (arguments,) = [inits[0].args]
    known = {argument.arg for argument in (*arguments.args[1:], *arguments.kwonlyargs)}
    defaults = [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]
    if arguments.vararg or arguments.kwarg or any(not isinstance(default, ast.Constant) for default in defaults):
        return None
    for item in ast.walk(inits[0]):
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == f"self.{target}" and isinstance(item.value, ast.Call):
            call = item.value
            used = {part.id for argument in (*call.args, *(k.value for k in call.keywords)) for part in ast.walk(argument)
                    if isinstance(part, ast.Name)}  # fmt: skip
            if used <= known and all(keyword_.arg for keyword_ in call.keywords):
                inner = ", ".join([ast.unparse(a) for a in call.args] + [f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords])
                return inner, ast.unparse(arguments).removeprefix("self").removeprefix(", ")
    return None
