"""Lines that make a network's parameters and buffers, with the count of classes as the constructor's argument where it is one."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from tritonsmith.author.constructor import bind, read_constructor
from tritonsmith.author.families.convnet.plan import NetworkLayer
from tritonsmith.author.members import Block, Line, Member, attribute, list_parameter, list_parents, settle_members
from tritonsmith.evaluator.schema import TaskFacts

_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
_MOST_LINES = 6
"""Parameters and buffers that are made one by one; more are made from tables."""


@dataclass(frozen=True)
class ClassCount:
    """The argument of the constructor that says how many values the last linear layer gives."""

    parameter: str
    layer: str
    """Path of that layer."""


def find_class_count(source: str, facts: TaskFacts, layers: Sequence[NetworkLayer]) -> ClassCount | None:
    """The argument that nothing but the last linear layer depends on; None where there is none."""
    init = read_constructor(source)
    last = layers[-1] if layers else None
    if init is None or last is None or not last.linear or facts.init_inputs is None:
        return None
    used = [part.id for part in ast.walk(init) if isinstance(part, ast.Name)]
    calls = [part for part in ast.walk(init) if isinstance(part, ast.Call) and ast.unparse(part.func).rpartition(".")[2] == "Linear"]
    bound = bind(init, facts.init_inputs)
    for call in calls:
        places = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "out_features")]
        if len(places) != 1 or not isinstance(places[0], ast.Name) or used.count(places[0].id) != 1:
            continue
        name = places[0].id
        alike = sum(layer.linear and layer.columns == last.columns for layer in layers)
        if bound.get(name) == str(last.columns) and alike == 1:
            return ClassCount(name, last.name)
    return None


def make_tables(facts: TaskFacts, classes: ClassCount | None) -> dict[str, dict[str, str]]:
    """Shapes by dotted path, for each kind of member: parameters, then buffers by type. Empty for few members, or parameters of two types.

    The shape of the layer that gives the classes is no constant; `write_members` makes its parameters.
    """
    kinds: dict[str, dict[str, str]] = {}
    for name, spec in facts.parameters.items():
        holder, _, last = name.rpartition(".")
        kind = f"BUFFERS_{spec.dtype.upper()}" if holder and last in _BUFFERS else f"PARAMETERS_{spec.dtype.upper()}"
        if not (classes and holder == classes.layer):
            kinds.setdefault(kind, {})[name] = repr(tuple(spec.shape))
    parameters = [kind for kind in kinds if kind.startswith("PARAMETERS")]
    return kinds if len(facts.parameters) > _MOST_LINES and len(parameters) == 1 else {}


def write_members(facts: TaskFacts, classes: ClassCount | None) -> tuple[str, ...]:
    """Lines that make every parameter, and every buffer of a batch norm as a buffer."""
    lines: list[Line | Block] = []
    tables = make_tables(facts, classes)
    for kind in tables:
        made = f"torch.empty(shape, dtype=torch.{kind.partition('_')[2].lower()})"
        value = f"nn.Parameter({made})" if kind.startswith("PARAMETERS") else made
        lines.append(Block(f"for path, shape in {kind}.items():", (f"place(self, path, {value})",)))
    for name, spec in facts.parameters.items():
        holder, _, last = name.rpartition(".")
        if any(name in shapes for shapes in tables.values()):
            continue
        if holder and last in _BUFFERS:
            made = f"torch.empty({tuple(spec.shape)!r}, dtype=torch.{spec.dtype})"
            lines += [*list_parents(name), f'{attribute(holder)}.register_buffer("{last}", {made})']
        elif classes and holder == classes.layer:
            shape = ", ".join([classes.parameter, *map(str, spec.shape[1:])])
            made = f"nn.Parameter(torch.empty(({shape},), dtype=torch.{spec.dtype}))"
            lines += [f'place(self, "{name}", {made})'] if tables else [*list_parents(name), Member(name, made)]
        else:
            lines += list_parameter(name, facts)
    return settle_members(lines)
