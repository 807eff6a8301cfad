"""What the constructor of one module makes for every size that a task declares."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tritonsmith.author.compiler.ir.code import Expression, Number
from tritonsmith.author.compiler.ir.parser import parse_expression
from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.torch_calls import TorchCall, write_call
from tritonsmith.author.compiler.module.numbers import Fitter, list_columns, put_in, read_whole
from tritonsmith.author.members import Block, Line, Member, complete_members, list_parents, settle_members
from tritonsmith.author.plan import NoSize
from tritonsmith.evaluator.schema import TaskFacts

LAST, TAPS_FIRST = "last", "taps first"
"""Orders in memory of a convolution's weights: [filters, *window, channels], and [*window, 1, channels] for one of each channel."""
_EMPTY = re.compile(r"torch\.empty\(\((?P<shape>[^()]*)\), (?P<rest>[^()]*)\)")
"""What makes a weight."""


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
    tables: tuple[Line, ...]
    """Lines that keep tensors which no state holds."""
    last: Mapping[str, str] = field(default_factory=dict)
    """By path: how weights of convolutions lie that have their channels last."""


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
    lines = _merge([_list_group(group) for group in groups], constructors)
    constants = {text: name for one, names in zip(sizes, rename_constants(sizes), strict=True)
                 for text, old in one.constants.items() for name in (names[old],)}  # fmt: skip
    tables = {one.tables for one in sizes if one.tables}
    if len(tables) > 1:
        raise NoSize(("sizes that SHAPES declares whose tensors besides the state differ", None))
    buffers = [f'self.register_buffer("{name}", {text}, persistent=False)' for text, name in constants.items()]
    return settle_members((*lines, *buffers, *(line for one in tables for line in one)))


def _list_group(group: Sequence[SizeMembers]) -> tuple[Line, ...]:
    """Lines for one set of arguments. Raises NoSize where sizes with the same ones need other members."""
    facts = group[0].facts
    made = {path: call for one in group for path, call in one.modules.items()}
    if any(one.facts.parameters != facts.parameters or not one.modules.items() <= made.items() for one in group):
        raise NoSize(("sizes that SHAPES declares whose weights differ, while the constructor gets the same arguments", None))
    calls = {path: print_expression(write_call(call)) for path, call in made.items()}
    lines = [part for path, text in calls.items() for part in (*list_parents(path, of_module=True), Member(path, text))]
    names = [name for name in facts.parameters if not any(name.startswith(f"{path}.") for path in made)]
    last = {path: order for one in group for path, order in one.last.items()}
    complete = complete_members(lines, names, facts)
    return tuple(_keep_last(line, last[line.path]) if isinstance(line, Member) and line.path in last else line for line in complete)


def _keep_last(weight: Member, order: str) -> Member:
    """The member in memory whose channels are neighbours; weights that are copied into it keep that."""
    if order == LAST:
        return replace(weight, value=weight.value.replace(", dtype=", ", memory_format=torch.channels_last, dtype=", 1))
    return replace(weight, value=_EMPTY.sub(_put_taps_first, weight.value, count=1))


def _put_taps_first(found: re.Match[str]) -> str:
    """`torch.empty((64, 1, 3, 3), ...)` with the same shape in memory as [3, 3, 1, 64]."""
    shape = found["shape"].split(", ")
    order = [*range(2, len(shape)), 1, 0]
    back = ", ".join(str(order.index(axis)) for axis in range(len(shape)))
    return f"torch.empty(({', '.join(shape[axis] for axis in order)}), {found['rest']}).permute({back})"


def _merge(groups: Sequence[tuple[Line, ...]], constructors: Sequence[Mapping[str, str]]) -> Sequence[Line | Block]:
    """The lines for all sets of arguments: with the arguments in place of numbers, or one set behind the other."""
    if len(set(groups)) == 1:
        return groups[0]
    if not all(constructors):
        raise NoSize(("sizes that SHAPES declares whose weights differ, while the constructor gets no argument that says so", None))
    merged = _fit(groups, constructors)
    if merged is not None:
        return merged
    return [Block(f"{'elif' if number else 'if'} self.made == {number}:", lines) for number, lines in enumerate(groups)]


def _fit(groups: Sequence[tuple[Line, ...]], constructors: Sequence[Mapping[str, str]]) -> list[Line] | None:
    """Lines that do for all sets of arguments; None where a number does not follow from them."""
    members = [[line for line in lines if isinstance(line, Member)] for lines in groups]
    if len({tuple(one.path for one in ones) for ones in members}) > 1:
        return None
    arguments = {name: [parse_expression(fixed[name]) if name in fixed else None for fixed in constructors] for name in constructors[0]}
    sizes = {
        name: whole for name, values in arguments.items()
        if (whole := read_whole([one for one in values if isinstance(one, Number)])) is not None
        and len(whole) == len(constructors) and len(set(whole)) > 1
    }  # fmt: skip
    fitter = Fitter(sizes)
    fitted = [_fit_value([parse_expression(one.value) for one in ones], fitter) for ones in zip(*members, strict=True)]
    values = [print_expression(value) for value in fitted if value is not None]
    return [Member(one.path, value) for one, value in zip(members[0], values, strict=True)] if None not in fitted else None


def _fit_value(values: Sequence[Expression], fitter: Fitter) -> Expression | None:
    """One expression for all sets of arguments; None where a number does not follow from them."""
    columns = list_columns(values)
    whole = {path: read_whole(numbers) for path, numbers in columns.items()} if columns is not None else None
    words = {path: fitter.write(ones) if ones is not None else None for path, ones in whole.items()} if whole is not None else {}
    known = {path: word for path, word in words.items() if word is not None}
    return put_in(values[0], known) if whole is not None and len(known) == len(words) else None
