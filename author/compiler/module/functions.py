"""Kernels of several modules: equal ones are written once, and what differs in numbers alone takes these as arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import cached_property
from itertools import chain

from tritonsmith.author.compiler.ir.code import (
    Call,
    Evaluate,
    Expression,
    Function,
    Module,
    Name,
    Node,
    Number,
    Parameter,
    Statement,
    String,
    number,
)
from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.template import expression
from tritonsmith.author.compiler.ir.walk import Path, names_in, names_set, rename, replace
from tritonsmith.author.compiler.module.docs import join_docs, split_words
from tritonsmith.author.compiler.module.equal_kernels import strip_names
from tritonsmith.author.compiler.module.launches import read_launch
from tritonsmith.author.compiler.module.numbers import Column, Fitter, Numbers, list_columns, put_in, read_whole

_MOST_ARGUMENTS = 6
"""Numbers that a kernel takes besides sizes of inputs; where more differ, two kernels are easier to read."""
_OWN = "kernel__"
"""What a kernel is called while it is compared with others."""


@dataclass(eq=False)
class _Code:
    """The functions of a kernel."""

    given: tuple[Function, ...]
    """As a module has them."""
    functions: tuple[Function, ...]
    """Under names that every module has: these begin with `_OWN`."""

    @cached_property
    def key(self) -> tuple[Function, ...]:
        """What it does, whatever its variables are called."""
        return strip_names(self.given, self.given[-1].name)

    @cached_property
    def bare(self) -> list[Function]:
        """The functions without what explains them."""
        return [with_fields(one, body=one.body[1:] if one.docstring else one.body) for one in self.functions]

    def list_columns(self, *others: _Code) -> list[dict[Path, Column]] | None:
        """For each function the numbers in which those of others differ; None where anything else does."""
        if any(len(one.bare) != len(self.bare) for one in others):
            return None
        columns = [list_columns(versions) for versions in zip(self.bare, *(one.bare for one in others), strict=True)]
        return [one for one in columns if one is not None] if None not in columns else None


@dataclass(eq=False)
class _Unit:
    """A kernel with the function that it calls, as one module has them."""

    name: str
    code: _Code
    launched: bool
    """Whether forward launches it; the others split parameters, and are launched by `keep`."""


@dataclass(eq=False)
class _Entry:
    """A kernel of the joined module."""

    units: dict[int, _Unit] = field(default_factory=dict)
    """By number of the module: what it is there."""
    name: str = ""
    functions: list[Function] = field(default_factory=list)
    """For all modules; none where it is the same in each."""
    arguments: dict[str, dict[int, Expression]] = field(default_factory=dict)
    """Numbers that it takes: by name, and by module as that launches it."""

    def takes(self, number: int, unit: _Unit) -> bool:
        """Whether a unit of another module differs in numbers alone."""
        first = next(iter(self.units.values()))
        return number not in self.units and unit.launched and first.launched and first.code.list_columns(unit.code) is not None

    def list_functions(self) -> Sequence[Function]:
        """Its functions."""
        first = next(iter(self.units.values()))
        if not self.functions and first.name == self.name:
            return first.code.given
        return [_rename(one, _OWN, self.name) for one in self.functions or first.code.functions]


class KernelPool:
    """The kernels of several modules.

    Args:
        kernels: each module's functions.
        names: which of them are kernels of regions.
        forwards: the statements of each module's forward.
        sizes: of inputs, where they differ from module to module: by name, one for each module.
    """

    def __init__(
        self, kernels: Sequence[Sequence[Function]], names: Sequence[set[str]], forwards: Sequence[Module], sizes: Mapping[str, Numbers]
    ) -> None:
        used = {name for kernel in chain(*kernels) for name in (kernel.name, *names_in(kernel), *names_set(kernel))}
        self._sizes = {_choose(name.upper(), used): values for name, values in sizes.items()}
        self._free_name = _choose("NUMBER", used)
        self._entries: list[_Entry] = []
        for place, (functions, own, forward) in enumerate(zip(kernels, names, forwards, strict=True)):
            self._sort_in(place, _list_units(functions, own, forward))
        self._entries = [part for entry in self._entries for part in self._settle(entry)]
        self._renames: list[dict[str, _Entry]] = [{} for _ in kernels]
        taken: set[str] = set()
        for entry in self._entries:
            first = next(iter(entry.units.values()))
            entry.name = next(name for count in range(len(taken) + 1) if (name := _number(first.name, count)) not in taken)
            taken.add(entry.name)
            for place, unit in entry.units.items():
                self._renames[place][unit.name] = entry

    def list_functions(self) -> tuple[Function, ...]:
        """Every function."""
        return tuple(function for entry in self._entries for function in entry.list_functions())

    def rename(self, place: int, name: str) -> str:
        """The name that a module's kernel has here."""
        return self._renames[place][name].name

    def list_counts(self, name: str, places: Sequence[int]) -> list[Numbers]:
        """The whole numbers in a kernel that differ between modules, for each of these modules."""
        entry = next((one for one in self._entries if one.name == name and all(place in one.units for place in places)), None)
        first, *others = [entry.units[place].code for place in places] if entry is not None else [None]
        columns = first.list_columns(*others) if first is not None else None
        values = dict.fromkeys(value for one in columns or () for value in one.values())
        return [whole for value in values if (whole := read_whole(value)) is not None]

    def complete(self, place: int, statement: Statement) -> Statement:
        """A statement of a module's forward with the names and arguments that kernels have here."""
        launch = read_launch(statement)
        entry = self._renames[place].get(launch.kernel) if launch is not None else None
        if launch is None or entry is None:
            return statement
        return launch.take(entry.name, {argument: values[place] for argument, values in entry.arguments.items()})

    def _sort_in(self, place: int, units: list[_Unit]) -> None:
        """Find the kernels that other modules have already: the same ones first, then those that differ in numbers alone."""
        keys = {other.code.key: (entry, other) for entry in self._entries for other in entry.units.values()}
        left = []
        for unit in units:
            entry, other = keys.get(unit.code.key, (None, None))
            if entry is not None and other is not None and place not in entry.units:
                entry.units[place] = _Unit(unit.name, other.code, other.launched) if other.name == unit.name else unit
            else:
                left.append(unit)
        for unit in left:
            entry = next((one for one in self._entries if one.takes(place, unit)), None)
            if entry is None:
                self._entries.append(entry := _Entry())
            entry.units[place] = unit

    def _settle(self, entry: _Entry) -> list[_Entry]:
        """The kernel with its functions; several where too many numbers differ."""
        first, *others = codes = [unit.code for unit in entry.units.values()]
        if all(code is first or code.key == first.key for code in others):
            return [entry]
        places = list(entry.units)
        sizes = {name: tuple(values[place] for place in places) for name, values in self._sizes.items()}
        words = _Words(Fitter({name: values for name, values in sizes.items() if len(set(values)) > 1}), self._free_name)
        columns = first.list_columns(*others)
        assert columns is not None, "they differ in numbers alone"
        words.prepare(columns)
        written = [words.put_in(code, values) for code, values in zip(first.bare, columns, strict=True)]
        if len(words.others) > _MOST_ARGUMENTS:
            return [one for place, unit in entry.units.items() for one in self._settle(_Entry({place: unit}))]
        known: dict[str, Sequence[Expression]] = {name: list(map(number, ones)) for name, ones in sizes.items()}
        known |= {name: ones for ones, name in words.others.items()}
        called: dict[str, list[str]] = {}
        for place, code in enumerate(written):
            for name, passed in called.items():
                code = _pass_on(code, name, passed)
            own = [name for name in known if name in names_in(code)]
            entry.functions.append(_sign(code, own, words.explain([one.functions[place] for one in codes])))
            called[code.name] = own
        entry.arguments = {name: dict(zip(places, known[name], strict=True)) for name in own}
        return [entry]


@dataclass
class _Words:
    """Writes expressions of sizes, or names of arguments, for numbers that differ."""

    fitter: Fitter
    free_name: str
    others: dict[Column, str] = field(default_factory=dict)
    """Numbers that follow from no size, with their names."""

    def prepare(self, columns: Sequence[Mapping[Path, Column]]) -> None:
        """Look at all numbers first."""
        values = [whole for one in columns for value in one.values() if (whole := read_whole(value)) is not None]
        self.fitter.prepare(values)

    def put_in(self, function: Function, columns: Mapping[Path, Column]) -> Function:
        """The function for all versions."""
        return put_in(function, {path: self._name(values) for path, values in columns.items()})

    def explain(self, versions: Sequence[Function]) -> String | None:
        """What explains them all."""
        docs = [one.docstring.spelling for one in versions if one.docstring is not None]
        return String(join_docs(docs, self._tell)) if docs else None

    def _tell(self, values: Numbers) -> str:
        return print_expression(self._name(tuple(Number(one, str(one)) for one in values)))

    def _name(self, values: Column) -> Expression:
        if len(set(values)) == 1:
            return values[0]
        whole = read_whole(values)
        word = self.fitter.write(whole) if whole is not None else None
        return word if word is not None else Name(self.others.setdefault(values, _number(self.free_name, len(self.others))))


def _sign(code: Function, names: Sequence[str], doc: String | None) -> Function:
    """A function with further arguments and what explains it."""
    constants = (Parameter(name, expression("tl.constexpr")) for name in names)
    explained = (Evaluate(doc),) if doc is not None else ()
    return with_fields(code, parameters=(*code.parameters, *constants), body=(*explained, *code.body), layout=None)


def _pass_on(code: Function, called: str, names: Sequence[str]) -> Function:
    """The function with these as further arguments where it calls another one."""

    def extend(node: Node) -> Node:
        if isinstance(node, Call) and node.function == Name(called):
            return with_fields(node, arguments=(*node.arguments, *map(Name, names)))
        return node

    return replace(code, extend)


def _list_units(functions: Sequence[Function], names: set[str], forward: Module) -> list[_Unit]:
    """The kernels of a module, each with the function that it calls, which stands in front of it."""
    launches = [launch for node in forward.body if isinstance(node, Statement) and (launch := read_launch(node)) is not None]
    launched = {one.kernel for one in launches if not one.keeps}
    mentioned = names_in(forward) | names
    units: list[_Unit] = []
    ahead: list[Function] = []
    for function in functions:
        ahead.append(function)
        if (name := function.name) in mentioned:
            code = _Code(tuple(ahead), tuple(_rename(one, name, _OWN) for one in ahead))
            units.append(_Unit(name, code, name in launched))
            ahead = []
    return units


def _rename(function: Function, name: str, other: str) -> Function:
    """The function with another name for the kernel, and for what is called after it."""

    def change(word: str) -> str:
        return f"{other}{word.removeprefix(name)}" if word == name or word.startswith(f"{name}_") else word

    if name == other:
        return function
    changed = rename(function, {word: change(word) for word in (*names_in(function), *names_set(function))})
    if (doc := function.docstring) is not None:
        said = String("".join(map(change, split_words(doc.spelling))))
        changed = with_fields(changed, body=(Evaluate(said), *changed.body[1:]))
    return with_fields(changed, name=change(changed.name), layout=None)


def _choose(name: str, used: set[str]) -> str:
    """The name, with underscores behind it where names begin with it already."""
    while any(one == name or one.startswith(f"{name}_") and one.removeprefix(f"{name}_").isdigit() for one in used):
        name += "_"
    return name


def _number(name: str, count: int) -> str:
    return f"{name}_{count + 1}" if count else name
