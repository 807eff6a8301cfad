"""What the constructor of one module makes for every size that a task declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tritonsmith.author.compiler.ir.bridge import parse_module
from tritonsmith.author.compiler.ir.code import Expression, Number
from tritonsmith.author.compiler.ir.parser import parse_expression
from tritonsmith.author.compiler.ir.printer import print_expression, print_statements
from tritonsmith.author.compiler.ir.torch_calls import TorchCall, write_call
from tritonsmith.author.compiler.ir.walk import Path
from tritonsmith.author.compiler.module.numbers import Fitter, list_columns, put_in, read_whole
from tritonsmith.author.members import assign, complete_members, parent_lines, settle_members
from tritonsmith.author.plan import NoSize
from tritonsmith.evaluator.schema import TaskFacts


@dataclass(frozen=True)
class SizeMembers:
    """What a module for one size holds."""

    facts: TaskFacts
    fixed: Mapping[str, str]
    """Arguments of the constructor."""
    modules: Mapping[str, TorchCall]
    """By path: what makes a module that PyTorch calls need."""
    constants: Mapping[str, str]
    """Tensors of numbers: by the call that makes one its name."""
    tables: tuple[str, ...]
    """Lines that keep tensors which no state holds."""


def list_constructors(sizes: Sequence[SizeMembers]) -> list[Mapping[str, str]]:
    """The sets of arguments that the module may be made with."""
    found: list[Mapping[str, str]] = []
    for one in sizes:
        if one.fixed not in found:
            found.append(one.fixed)
    return found


def rename_constants(sizes: Sequence[SizeMembers]) -> list[dict[str, str]]:
    """For each size: by the name of a tensor of numbers the one that it has in a module for all sizes."""
    names: dict[str, str] = {}
    taken = {name.partition(".")[0] for one in sizes for name in (*one.facts.parameters, *one.facts.tables)}
    found = []
    for one in sizes:
        for text, name in one.constants.items():
            stem, _, count = name.rpartition("_")
            stem = stem if count.isdigit() else name
            used = {*taken, *names.values()}
            free = name if name not in used else next(new for number in range(len(used) + 1) if (new := f"{stem}_{number}") not in used)
            names.setdefault(text, free)
        found.append({name: names[text] for text, name in one.constants.items()})
    return found


def write_members(sizes: Sequence[SizeMembers]) -> tuple[str, ...]:
    """Lines of the constructor. Raises NoSize where its arguments do not say what to make."""
    constructors = list_constructors(sizes)
    groups = [[one for one in sizes if one.fixed == fixed] for fixed in constructors]
    lines = _merge([_write_group(group) for group in groups], constructors)
    constants = {text: name for one, names in zip(sizes, rename_constants(sizes), strict=True)
                 for text, old in one.constants.items() for name in (names[old],)}  # fmt: skip
    tables = {one.tables for one in sizes if one.tables}
    if len(tables) > 1:
        raise NoSize(("sizes that SHAPES declares whose tensors besides the state differ", None))
    buffers = [f'self.register_buffer("{name}", {text}, persistent=False)' for text, name in constants.items()]
    return settle_members((*lines, *buffers, *(line for one in tables for line in one)))


def _write_group(group: Sequence[SizeMembers]) -> tuple[str, ...]:
    """Lines for one set of arguments. Raises NoSize where sizes with the same ones need other members."""
    facts = group[0].facts
    made = {path: call for one in group for path, call in one.modules.items()}
    if any(one.facts.parameters != facts.parameters or not one.modules.items() <= made.items() for one in group):
        raise NoSize(("sizes that SHAPES declares whose weights differ, while the constructor gets the same arguments", None))
    calls = {path: print_expression(write_call(call)) for path, call in made.items()}
    lines = [part for path, text in calls.items() for part in (*parent_lines(path, of_module=True), assign(path, text))]
    names = [name for name in facts.parameters if not any(name.startswith(f"{path}.") for path in made)]
    return complete_members(lines, names, facts)


def _merge(groups: Sequence[tuple[str, ...]], constructors: Sequence[Mapping[str, str]]) -> list[str]:
    """The lines for all sets of arguments: with the arguments in place of numbers, or one set behind the other."""
    if len(set(groups)) == 1:
        return [*groups[0]]
    if not all(constructors):
        raise NoSize(("sizes that SHAPES declares whose weights differ, while the constructor gets no argument that says so", None))
    merged = _fit(groups, constructors)
    if merged is not None:
        return merged
    return [
        part for number, lines in enumerate(groups)
        for part in (f"{'elif' if number else 'if'} self.made == {number}:", *(f"    {line}" for line in lines))
    ]  # fmt: skip


def _fit(groups: Sequence[tuple[str, ...]], constructors: Sequence[Mapping[str, str]]) -> list[str] | None:
    """Lines that do for all sets of arguments; None where a number does not follow from them."""
    records = [parse_module("\n".join(lines)) for lines in groups]
    columns = list_columns(records)
    if columns is None:
        return None
    arguments = {name: [parse_expression(fixed[name]) if name in fixed else None for fixed in constructors] for name in constructors[0]}
    sizes = {
        name: whole for name, values in arguments.items()
        if (whole := read_whole([one for one in values if isinstance(one, Number)])) is not None
        and len(whole) == len(constructors) and len(set(whole)) > 1
    }  # fmt: skip
    fitter = Fitter(sizes)
    words: dict[Path, Expression] = {}
    for path, values in columns.items():
        whole = read_whole(values)
        word = fitter.write(whole) if whole is not None else None
        if word is None:
            return None
        words[path] = word
    return print_statements(put_in(records[0], words).body).split("\n")
