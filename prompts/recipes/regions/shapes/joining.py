"""The text of one module from those for several sizes: one forward where they differ in numbers alone, else one for each kind of size."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tritonsmith.prompts.recipes.regions.shapes.functions import KernelPool
from tritonsmith.prompts.recipes.regions.shapes.numbers import Fitter, Numbers, blank, list_numbers, put_in, read_whole, write_table
from tritonsmith.prompts.recipes.regions.values.indices import Shape
from tritonsmith.prompts.recipes.regions.writing.kernels import join_lines, wrap_launch
from tritonsmith.prompts.recipes.regions.writing.module import ModuleText, SizedForward
from tritonsmith.prompts.recipes.regions.writing.names import Namer

_CALLED = ("float", "max", "min")
"""What expressions of sizes call."""
_CONSTANT = re.compile(r"(?<=\w=)#")


@dataclass(frozen=True)
class SizedText:
    """A module's text for one size of its inputs, or for any size of the leading axis that they share."""

    text: ModuleText
    inputs: Mapping[str, tuple[Shape, str]]
    """By argument that is a tensor: its shape and type."""
    free: tuple[str, ...] = ()
    """The arguments whose leading axis may have any size."""
    most: int = 0
    """The largest one."""
    made: int = 0
    """Which of the constructor's arguments it is for."""

    @property
    def frame(self) -> tuple[object, ...]:
        """What texts for one forward have in common."""
        return self.free, tuple((name, len(shape), dtype) for name, (shape, dtype) in self.inputs.items())


@dataclass
class _Kind:
    """Sizes for which forward is the same but for numbers."""

    numbers: list[int]
    """Of the modules."""
    lines: list[str]
    returned: str
    tests: list[str]
    words: str


def join_texts(texts: Sequence[SizedText], names: Mapping[str, Numbers], taken: Collection[str], constructors: int = 1) -> ModuleText:
    """One module for all sizes.

    Args:
        texts: for the task's own size, then for others.
        names: of sizes, as the task calls them: one value for each text.
        taken: names that variables of forward may not have.
        constructors: with how many sets of arguments the module may be made.
    """
    return _Joiner(texts, names, taken, constructors).join()


class _Joiner:
    """Joins the kernels, then the forwards."""

    def __init__(self, texts: Sequence[SizedText], names: Mapping[str, Numbers], taken: Collection[str], constructors: int) -> None:
        self.texts, self.names, self.constructors = texts, names, constructors
        lines = [line for one in texts for line in (*one.text.forward, one.text.returned)]
        self.taken = {*taken, *_CALLED, *(word for line in lines for word in re.findall(r"(?<![\w.])[A-Za-z_]\w*", line))}
        self.axes = _find_axes(texts)
        namer = Namer(self.taken)
        self.sizes: dict[str, tuple[str, int, Numbers]] = {}
        """By variable of forward: the input and axis that it is the size of."""
        for (name, axis), values in self.axes.items():
            if values not in [known for *_, known in self.sizes.values()]:
                self.sizes[namer.choose(self._call(values))] = (name, axis, values)
        self.pool = KernelPool([one.text for one in texts], {name: values for name, (*_, values) in self.sizes.items()})

    def join(self) -> ModuleText:
        """The text."""
        functions = self.pool.list_functions()
        first = self.texts[0].text
        forwards = [[self.pool.complete(number, line) for line in join_lines(one.text.forward)] for number, one in enumerate(self.texts)]
        kinds: list[_Kind] = []
        left = list(range(len(self.texts)))
        while left:
            kind = self._make_kind(left, forwards)
            kinds.append(kind)
            left = [number for number in left if number not in kind.numbers]
        helpers = dict.fromkeys(name for one in self.texts for name in one.text.helpers)
        merged = replace(
            first, kernels=functions, helpers=tuple(helpers), libdevice=any(one.text.libdevice for one in self.texts),
            functional=any(one.text.functional for one in self.texts), keeps=any(one.text.keeps for one in self.texts),
            records={name: fields for one in self.texts for name, fields in one.text.records.items()},
            names=[tuple(self.pool.rename(0, name) for name in names) for names in first.names],
        )  # fmt: skip
        if len(kinds) == 1:
            (kind,) = kinds
            return replace(merged, forward=kind.lines, returned=kind.returned, wrong=" or ".join(kind.tests), made_for=kind.words)
        sized = [SizedForward(kind.lines, kind.returned, " and ".join(map(_negate, kind.tests)), kind.words) for kind in kinds]
        return replace(merged, forward=[], returned="", wrong="", sized=sized, made_for=" or ".join(kind.words for kind in kinds))

    def _call(self, values: Numbers) -> str:
        """What a size is called: as the task calls it, where it does."""
        return next((name.lower() for name, ones in self.names.items() if ones == values), "size")

    def _make_kind(self, left: list[int], forwards: list[list[str]]) -> _Kind:
        """The first of the texts that are left, with all that differ from it in numbers that follow from sizes."""
        first, *others = left
        numbers = [first]
        lines = self._merge(numbers, forwards)
        assert lines is not None, "a text differs in nothing from itself"
        for other in others:
            if self.texts[other].frame == self.texts[first].frame and (more := self._merge([*numbers, other], forwards)) is not None:
                numbers, lines = [*numbers, other], more
        *statements, returned = lines
        tests, words = self._guard(numbers)
        heads = [name for name in self.sizes if any(re.search(rf"\b{name}\b", line) for line in lines)]
        given = [f"{name} = {self.sizes[name][0]}.shape[{self.sizes[name][1]}]" for name in heads]
        return _Kind(numbers, [*given, *(part for line in statements for part in wrap_launch(line))], returned, tests, words)

    def _merge(self, numbers: list[int], forwards: list[list[str]]) -> list[str] | None:
        """The statements of forward and what it returns, for all these modules; None where they differ in more than sizes."""
        versions = [[*forwards[number], self.texts[number].text.returned] for number in numbers]
        if len({tuple(map(blank, lines)) for lines in versions}) > 1:
            return None
        sizes = {name: tuple(values[number] for number in numbers) for name, (*_, values) in self.sizes.items()}
        fitter = Fitter({name: values for name, values in sizes.items() if len(set(values)) > 1})
        found = [values for lines in zip(*versions, strict=True) for values in zip(*map(list_numbers, lines), strict=True)]
        fitter.prepare(whole for values in found if (whole := read_whole(values)) is not None)
        merged = []
        for lines in zip(*versions, strict=True):
            columns = list(zip(*map(list_numbers, lines), strict=True))
            constants = [found.start() for found in _CONSTANT.finditer(blank(lines[0]))] if "](" in lines[0] else []
            places = [found.start() for found in re.finditer("#", blank(lines[0]))]
            words = [_write(values, fitter, place in constants) for values, place in zip(columns, places, strict=True)]
            if any(word is None for word in words):
                return None
            merged.append(put_in(lines[0], [word for word in words if word is not None]))
        return merged

    def _guard(self, numbers: list[int]) -> tuple[list[str], str]:
        """What forward refuses, as tests in Python's words, and what it takes, in people's."""
        first = self.texts[numbers[0]]
        most = min(self.texts[number].most for number in numbers)
        varied = [axis for axis, values in self.axes.items() if len({values[number] for number in numbers}) > 1]
        letters = {axis: next(name for name, (*_, values) in self.sizes.items() if values == self.axes[axis]) for axis in varied}
        made = [self.texts[number].made for number in numbers]
        alone = self.constructors > 1 and len(set(made)) == 1
        tests, words = [f"self.made != {first.made}"] if alone else [], []
        for name, (shape, dtype) in first.inputs.items():
            shown = [letters.get((name, axis), str(size)) for axis, size in enumerate(shape)]
            shown[:1] = ["a"] if name in first.free else shown[:1]
            words.append(f"{name} {dtype}[{', '.join(shown)}]")
            tests += _test_shape(name, shape, name in first.free, [axis for axis in range(len(shape)) if (name, axis) in varied])
        for name in first.free:
            tests.append(f"{name}.shape[0] {f'> {most}' if name == first.free[0] else f'!= {first.free[0]}.shape[0]'}")
        if varied:
            keys = [(name, axis) for name, axis, _ in self.sizes.values() if (name, axis) in varied]
            same = {axis: self.axes[axis] for axis in varied if axis not in keys}
            tests += [f"{name}.shape[{axis}] != {self._find_twin(values)}" for (name, axis), values in same.items()]
            columns = {f"{name}.shape[{axis}]": [self.axes[name, axis][number] for number in numbers] for name, axis in keys}
            named = ", ".join(letters[key] for key in keys)
            listed = _list_rows(list(columns.values()))
            words[-1] += f", {named if len(keys) == 1 else f'({named})'} one of {listed}"
            columns = ({"self.made": made} if len(set(made)) > 1 else {}) | columns
            given = ", ".join(columns)
            tests.append(f"{given if len(columns) == 1 else f'({given})'} not in ({_list_rows(list(columns.values()))})")
        return tests, ", ".join(words) + (f", a up to {most}," if first.free else "")

    def _find_twin(self, values: Numbers) -> str:
        """Another axis that always has the same size."""
        return next(f"{name}.shape[{axis}]" for name, axis, ones in self.sizes.values() if ones == values)


def _list_rows(columns: Sequence[Sequence[int]]) -> str:
    """What stands in these columns, each row once."""
    rows = dict.fromkeys(zip(*columns, strict=True))
    return ", ".join(str(row[0] if len(row) == 1 else row) for row in rows)


def _find_axes(texts: Sequence[SizedText]) -> dict[tuple[str, int], Numbers]:
    """By input and axis the sizes, one for each text; without those that all texts share, and those that may be of any size."""
    found: dict[tuple[str, int], Numbers] = {}
    for name, (shape, _) in texts[0].inputs.items():
        for axis in range(len(shape)):
            shapes = [one.inputs[name][0] for one in texts]
            if all(len(one) == len(shape) for one in shapes):
                values = tuple(one[axis] for one in shapes)
                if len(set(values)) > 1 and not (axis == 0 and all(name in one.free for one in texts)):
                    found[name, axis] = values
    return found


def _test_shape(name: str, shape: Shape, free: bool, varied: Sequence[int]) -> list[str]:
    """Tests of the axes that have one size."""
    if not free and not varied:
        return [f"{name}.shape != {shape}"]
    fixed = [axis for axis in range(len(shape)) if axis not in varied and not (free and axis == 0)]
    tests = [f"{name}.dim() != {len(shape)}"]
    if len(fixed) > 1 and fixed == [*range(fixed[0], len(shape))]:
        return [*tests, f"{name}.shape[{fixed[0]}:] != {shape[fixed[0] :]}"]
    return [*tests, *(f"{name}.shape[{axis}] != {shape[axis]}" for axis in fixed)]


def _write(values: tuple[str, ...], fitter: Fitter, constant: bool) -> str | None:
    """What forward writes for numbers of several texts; None where nothing is known that they follow from.

    constant: whether it is a constant of a launch, such as the size of a block: these may also be looked up.
    """
    if len(set(values)) == 1:
        return values[0]
    whole = read_whole(values)
    found = fitter.write(whole) if whole is not None else None
    if not constant or found in fitter.sizes:
        return found
    power = fitter.write_power(whole) if whole is not None else None
    real = read_whole(values, ".0")
    if real is not None and (found := fitter.write(real)) is not None:
        return f"float({found})"
    return power or write_table(values, fitter.sizes)


def _negate(test: str) -> str:
    """The opposite of a comparison."""
    for mark, other in ((" != ", " == "), (" not in ", " in "), (" > ", " <= ")):
        if mark in test:
            return test.replace(mark, other, 1)
    raise AssertionError(test)
