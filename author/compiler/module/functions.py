"""Kernels of several modules: those with one text are written once, and what differs in numbers alone takes these as arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonsmith.author.compiler.kernels.kernel import fold, unfold, wrap
from tritonsmith.author.compiler.module.equal_kernels import normalize
from tritonsmith.author.compiler.module.module import ModuleText
from tritonsmith.author.compiler.module.numbers import Fitter, Numbers, blank, list_numbers, put_in, read_whole

_MOST_ARGUMENTS = 6
"""Numbers that a kernel takes besides sizes of inputs; where more differ, two kernels are easier to read."""
_OWN = "kernel__"
"""What a kernel is called while it is compared with others."""
_DOC = re.compile(r'^    """.*?"""\n', re.DOTALL | re.MULTILINE)
_KEPT = re.compile(r'(.*self\.keep\("[^"]*", )(\w+)(, .*)')
_CONSTANTS = re.compile(r"(?<=, )(?=\w+=[^,()]+(?:, \w+=[^,()]+)*\)$)")
"""Where the constants of a launch begin."""


@dataclass(eq=False)
class _Unit:
    """A kernel with the function that it calls, as one module has them."""

    name: str
    functions: list[str]
    launched: bool
    """Whether forward launches it; the others split parameters, and are launched by `keep`."""

    @property
    def key(self) -> str:
        """What it does, whatever its variables are called."""
        return normalize("\n\n\n".join(self.functions), self.name)

    def list_codes(self) -> list[str]:
        """Its functions under a name that every module has, without what explains them."""
        return [_DOC.sub("", _rename(text, self.name, _OWN), count=1) for text in self.functions]

    def list_docs(self) -> list[str]:
        """What explains each of them."""
        return [_rename(found[0], self.name, _OWN) if (found := _DOC.search(text)) else "" for text in self.functions]


@dataclass(eq=False)
class _Entry:
    """A kernel of the joined module."""

    units: dict[int, _Unit] = field(default_factory=dict)
    """By number of the module: what it is there."""
    name: str = ""
    functions: list[str] = field(default_factory=list)
    arguments: dict[str, dict[int, str]] = field(default_factory=dict)
    """Numbers that it takes: by name, and by module as that launches it."""

    def takes(self, number: int, unit: _Unit) -> bool:
        """Whether a unit of another module differs in numbers alone."""
        first = next(iter(self.units.values()))
        if number in self.units or not (unit.launched and first.launched):
            return False
        return list(map(blank, unit.list_codes())) == list(map(blank, first.list_codes()))


class KernelPool:
    """The kernels of several modules.

    Args:
        texts: the modules, all for one forward.
        sizes: of inputs, where they differ from module to module: by name, one for each module.
    """

    def __init__(self, texts: Sequence[ModuleText], sizes: Mapping[str, Numbers]) -> None:
        everything = "\n".join(kernel for text in texts for kernel in text.kernels)
        self._sizes = {_choose(name.upper(), everything): values for name, values in sizes.items()}
        self._free_name = _choose("NUMBER", everything)
        self._entries: list[_Entry] = []
        for number, text in enumerate(texts):
            self._sort_in(number, _list_units(text))
        self._entries = [part for entry in self._entries for part in self._settle(entry)]
        self._renames: list[dict[str, _Entry]] = [{} for _ in texts]
        taken: set[str] = set()
        for entry in self._entries:
            first = next(iter(entry.units.values()))
            entry.name = next(name for count in range(len(taken) + 1) if (name := _number(first.name, count)) not in taken)
            taken.add(entry.name)
            for number, unit in entry.units.items():
                self._renames[number][unit.name] = entry

    def list_functions(self) -> list[str]:
        """The text of every function."""
        return [
            _rename(text, _OWN if entry.arguments else next(iter(entry.units.values())).name, entry.name)
            for entry in self._entries for text in entry.functions
        ]  # fmt: skip

    def rename(self, number: int, name: str) -> str:
        """The name that a module's kernel has here."""
        return self._renames[number][name].name

    def list_counts(self, name: str, numbers: Sequence[int]) -> list[Numbers]:
        """The whole numbers in a kernel's text that differ between modules, for each of these modules."""
        entry = next((one for one in self._entries if one.name == name and all(number in one.units for number in numbers)), None)
        if entry is None:
            return []
        texts = ["\n".join(entry.units[number].list_codes()) for number in numbers]
        if len(set(map(blank, texts))) > 1:
            return []
        columns = dict.fromkeys(zip(*map(list_numbers, texts), strict=True))
        return [whole for values in columns if len(set(values)) > 1 and (whole := read_whole(values)) is not None]

    def complete(self, number: int, line: str) -> str:
        """A statement of a module's forward with the names and arguments that kernels have here."""
        known = self._renames[number]
        if (kept := _KEPT.fullmatch(line)) is not None:
            return f"{kept[1]}{known[kept[2]].name}{kept[3]}"
        name, bracket, rest = line.partition("[")
        if not bracket or name not in known:
            return line
        entry = known[name]
        given = "".join(f"{argument}={values[number]}, " for argument, values in entry.arguments.items())
        place = _CONSTANTS.search(rest)
        assert place is not None, "every launch says its warps"
        return f"{entry.name}[{rest[: place.start()]}{given}{rest[place.start() :]}"

    def _sort_in(self, number: int, units: list[_Unit]) -> None:
        """Find the kernels that other modules have already: the same ones first, then those that differ in numbers alone."""
        keys = {other.key: (entry, other) for entry in self._entries for other in entry.units.values()}
        left = []
        for unit in units:
            entry, other = keys.get(unit.key, (None, None))
            if entry is not None and other is not None and number not in entry.units:
                entry.units[number] = _Unit(unit.name, other.functions, other.launched) if other.name == unit.name else unit
            else:
                left.append(unit)
        for unit in left:
            entry = next((one for one in self._entries if one.takes(number, unit)), None)
            if entry is None:
                self._entries.append(entry := _Entry())
            entry.units[number] = unit

    def _settle(self, entry: _Entry) -> list[_Entry]:
        """The kernel with its text; several where too many numbers differ."""
        units = list(entry.units.values())
        if len({unit.key for unit in units}) == 1:
            entry.functions = units[0].functions
            return [entry]
        numbers = list(entry.units)
        sizes = {name: tuple(values[number] for number in numbers) for name, values in self._sizes.items()}
        words = _Words(Fitter({name: values for name, values in sizes.items() if len(set(values)) > 1}), self._free_name)
        codes = list(zip(*(unit.list_codes() for unit in units), strict=True))
        docs = list(zip(*(unit.list_docs() for unit in units), strict=True))
        words.prepare(codes)
        written = [words.write(versions) for versions in codes]
        if len(words.others) > _MOST_ARGUMENTS:
            return [one for number, unit in entry.units.items() for one in self._settle(_Entry({number: unit}))]
        known = {name: list(map(str, ones)) for name, ones in sizes.items()} | {name: list(ones) for ones, name in words.others.items()}
        called: dict[str, list[str]] = {}
        for code, versions in zip(written, docs, strict=True):
            for name, passed in called.items():
                code = _pass_on(code, name, passed)
            own = [name for name in known if re.search(rf"\b{name}\b", code)]
            doc = words.write(versions) if len(set(map(blank, versions))) == 1 else versions[0]
            entry.functions.append(_sign(code, own, doc))
            called[_read_name(code)] = own
        entry.arguments = {name: dict(zip(numbers, known[name], strict=True)) for name in own}
        return [entry]


@dataclass
class _Words:
    """Writes expressions of sizes, or names of arguments, for numbers that differ."""

    fitter: Fitter
    free_name: str
    others: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Numbers that follow from no size, with their names."""

    def prepare(self, texts: Sequence[Sequence[str]]) -> None:
        """Look at all numbers first."""
        columns = [values for versions in texts for values in zip(*map(list_numbers, versions), strict=True)]
        self.fitter.prepare(whole for values in columns if (whole := read_whole(values)) is not None)

    def write(self, versions: Sequence[str]) -> str:
        """One text for all versions."""
        return put_in(versions[0], [self._name(values) for values in zip(*map(list_numbers, versions), strict=True)])

    def _name(self, values: tuple[str, ...]) -> str:
        if len(set(values)) == 1:
            return values[0]
        whole = read_whole(values)
        found = self.fitter.write(whole) if whole is not None else None
        if found is None:
            found = self.others.setdefault(values, _number(self.free_name, len(self.others)))
        return found


def _sign(text: str, names: Sequence[str], doc: str) -> str:
    """A function with its further arguments and what explains it, its lines folded."""
    lines = unfold(text)
    place = next(number for number, line in enumerate(lines) if line.startswith("def "))
    start, _, rest = lines[place].partition("(")
    given = [*rest.removesuffix("):").split(", "), *(f"{name}: tl.constexpr" for name in names)]
    folded = [part for line in lines[place + 1 :] for part in fold(line)]
    return "\n".join([*lines[:place], *wrap(f"{start}(", given, "):", ""), *doc.splitlines(), *folded])


def _pass_on(text: str, called: str, names: Sequence[str]) -> str:
    """The text with these as further arguments of the calls of a function."""
    pieces = re.split(rf"\b{called}\(", "\n".join(unfold(text)))
    for number, piece in enumerate(pieces[1:], 1):
        depth = 1
        for place, letter in enumerate(piece):
            depth += (letter in "([") - (letter in ")]")
            if not depth:
                pieces[number] = f"{piece[:place]}{''.join(f', {name}' for name in names)}{piece[place:]}"
                break
    return f"{called}(".join(pieces)


def _list_units(text: ModuleText) -> list[_Unit]:
    """The kernels of a module, each with the function that it calls, which stands in front of it."""
    forward = "\n".join(text.forward)
    units: list[_Unit] = []
    ahead: list[str] = []
    names = {name for names in text.names for name in names}
    for function in text.kernels:
        name = _read_name(function)
        launched = re.search(rf"^{name}\[", forward, re.MULTILINE) is not None
        if not launched and name not in names and not re.search(rf"\b{name}\b", forward):
            ahead.append(function)
            continue
        units.append(_Unit(name, [*ahead, function], launched))
        ahead = []
    return units


def _read_name(function: str) -> str:
    found = re.search(r"^def (\w+)\(", function, re.MULTILINE)
    assert found is not None, "a kernel's text is a function"
    return found[1]


def _rename(text: str, name: str, other: str) -> str:
    """The text with another name for the kernel, and for what is called after it."""
    return re.sub(rf"\b{name}(?=\b|_)", other, text) if name != other else text


def _choose(name: str, text: str) -> str:
    """The name, with underscores behind it where the text has it already."""
    while re.search(rf"\b{name}(_\d+)?\b", text):
        name += "_"
    return name


def _number(name: str, count: int) -> str:
    return f"{name}_{count + 1}" if count else name
