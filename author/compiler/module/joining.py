"""One module from those for several sizes: one forward where they differ in numbers alone, else one for each kind of size."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from tritonsmith.author.compiler.ir.code import (
    Attribute,
    Binary,
    Expression,
    Keyword,
    Module,
    Name,
    Node,
    Number,
    Return,
    Statement,
)
from tritonsmith.author.compiler.ir.indices import Shape
from tritonsmith.author.compiler.ir.template import expression, statement
from tritonsmith.author.compiler.ir.walk import Path, find, iterate, names_in, names_set
from tritonsmith.author.compiler.ir.walk import replace as change_records
from tritonsmith.author.compiler.kernels.names import Namer
from tritonsmith.author.compiler.module.functions import KernelPool
from tritonsmith.author.compiler.module.guards import Axis, Condition, compare, require_inputs, require_sizes, write_size
from tritonsmith.author.compiler.module.launches import read_launch
from tritonsmith.author.compiler.module.numbers import (
    Column,
    Fitter,
    Numbers,
    find_times,
    list_columns,
    put_in,
    read_real,
    read_whole,
    write_steps,
    write_table,
)
from tritonsmith.author.compiler.module.record import ForwardCode, ModuleCode

_CALLED = ("float", "max", "min")
"""What expressions of sizes call."""
_TIME_ONLY = ("ROWS", "num_warps", "num_stages")
"""Constants of launches that results do not depend on."""


@dataclass(frozen=True)
class SizedModule:
    """A module for one size of its inputs, or for any size of the leading axis that they share."""

    code: ModuleCode
    inputs: Mapping[str, tuple[Shape, str]]
    """By argument that is a tensor: its shape and type."""
    free: tuple[str, ...] = ()
    """The arguments whose leading axis may have any size."""
    most: int = 0
    """The largest one."""
    made: int = 0
    """Which of the constructor's arguments it is for."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Members that the module for all sizes has under other names."""

    @cached_property
    def record(self) -> Module:
        """The statements of forward, and at the end what it returns."""
        body = self.code.forwards[0].body
        return change_records(body, self._rename) if self.renamed else body

    def guard(self) -> ModuleCode:
        """The module with what it asks of its inputs."""
        tests, words = require_inputs(self.inputs, self.free, self.most)
        made_for = ", ".join(words) + (f", a up to {self.most}," if self.free else "")
        return replace(self.code, frame=replace(self.code.frame, wrong=" or ".join(one.wrong for one in tests), made_for=made_for))

    def _rename(self, node: Node) -> Node:
        if isinstance(node, Attribute) and node.value == Name("self") and node.name in self.renamed:
            return replace(node, name=self.renamed[node.name])
        return node

    @property
    def frame(self) -> tuple[object, ...]:
        """What modules for one forward have in common."""
        return self.free, tuple((name, len(shape), dtype) for name, (shape, dtype) in self.inputs.items())


class OpenSpan(NamedTuple):
    """Sizes too many for modules of their own."""

    low: Mapping[str, Shape]
    """Inputs at the lowest ones."""
    high: Mapping[str, Shape]
    within: Sequence[int]
    """Modules, by their number, that say what holds between."""

    def lies_in(self, other: OpenSpan) -> bool:
        """Whether all its sizes are among those of another one, but for a leading axis that may be of any size."""
        ends = [(end, other.low[name], other.high[name]) for inputs in (self.low, self.high) for name, end in inputs.items()]
        return all(
            len(end) == len(low) and all(first <= size <= last for size, first, last in [*zip(end, low, high, strict=True)][1:])
            for end, low, high in ends
        )  # fmt: skip


@dataclass
class _Kind:
    """Sizes for which forward is the same but for numbers."""

    numbers: list[int]
    """Of the modules."""
    record: Module
    """Statements, and at the end what forward returns."""
    spans: list[OpenSpan] = field(default_factory=list)
    """All sizes within these belong to it."""


def join_modules(
    modules: Sequence[SizedModule], names: Mapping[str, Numbers], taken: Collection[str], constructors: int = 1,
    spans: Sequence[OpenSpan] = (),
) -> ModuleCode:  # fmt: skip
    """One module for all sizes.

    Args:
        modules: for the task's own size, then for others.
        names: of sizes, as the task calls them: one value for each module.
        taken: names that variables of forward may not have.
        constructors: with how many sets of arguments the module may be made.
        spans: of sizes that it shall take besides; `missed` says which it does not.
    """
    return _Joiner(modules, names, taken, constructors).join(spans)


class _Joiner:
    """Joins the kernels, then the forwards."""

    def __init__(self, modules: Sequence[SizedModule], names: Mapping[str, Numbers], taken: Collection[str], constructors: int) -> None:
        self.modules, self.names, self.constructors = modules, names, constructors
        records = [one.record for one in modules]
        namer = Namer({*taken, *_CALLED, *(name for one in records for name in (*names_in(one), *names_set(one)))})
        self.axes = _find_axes(modules)
        self.sizes: dict[str, tuple[str, int, Numbers]] = {}
        """By variable of forward: the input and axis that it is the size of."""
        for (name, axis), values in self.axes.items():
            if values not in [known for *_, known in self.sizes.values()]:
                self.sizes[namer.choose(self._call(values))] = (name, axis, values)
        self.pool = KernelPool(
            [one.code.kernels for one in modules], [{*itertools.chain(*one.code.frame.names)} for one in modules],
            records, {name: values for name, (*_, values) in self.sizes.items()},
        )  # fmt: skip
        self.forwards = [
            Module(tuple(self.pool.complete(place, statement) for statement in one.body)) for place, one in enumerate(records)
        ]

    def join(self, spans: Sequence[OpenSpan]) -> ModuleCode:
        """The module."""
        frames = [one.code.frame for one in self.modules]
        kinds, missed = self._sort(spans)
        forwards = tuple(map(self._write, kinds))
        frame = replace(
            frames[0], helpers=tuple(dict.fromkeys(name for one in frames for name in one.helpers)),
            libdevice=any(one.libdevice for one in frames), functional=any(one.functional for one in frames),
            keeps=any(one.keeps for one in frames), packs=any(one.packs for one in frames), missed=missed,
            stacks=tuple(dict.fromkeys(text for one in frames for text in one.stacks)),
            records={name: fields for one in frames for name, fields in one.records.items()},
            names=[tuple(self.pool.rename(0, name) for name in names) for names in frames[0].names],
            wrong=forwards[0].wrong if len(forwards) == 1 else "", made_for=" or ".join(one.made_for for one in forwards),
        )  # fmt: skip
        return ModuleCode(self.pool.list_functions(), forwards, frame)

    def _call(self, values: Numbers) -> str:
        """What a size is called: as the task calls it, where it does."""
        return next((name.lower() for name, ones in self.names.items() if ones == values), "size")

    def _sort(self, spans: Sequence[OpenSpan]) -> tuple[list[_Kind], list[int]]:
        """The kinds of sizes, those of long spans behind the others, and the spans that are not among them."""
        open_kinds: list[_Kind] = []
        missed: list[int] = []
        left = list(range(len(self.modules)))
        for place, span in enumerate(spans):
            if any(span.lies_in(other) for one in open_kinds for other in one.spans):
                continue
            kind = self._gather([*span.within], left, True) if set(span.within) <= set(left) else None
            if kind is None:
                missed.append(place)
                continue
            open_kinds.append(replace(kind, spans=[span]))
            left = [number for number in left if number not in kind.numbers]
        closed: list[_Kind] = []
        while left:
            kind = self._gather(left[:1], left, False)
            assert kind is not None, "a module differs in nothing from itself"
            closed.append(kind)
            left = [number for number in left if number not in kind.numbers]
        return [*closed, *open_kinds], missed

    def _gather(self, numbers: list[int], left: Sequence[int], within: bool) -> _Kind | None:
        """These modules, with all others that differ from them in numbers that follow from sizes; None where they do themselves."""
        record = self._merge(numbers, within)
        if record is None:
            return None
        for other in left:
            if other not in numbers and (more := self._merge(sorted([*numbers, other]), within)) is not None:
                numbers, record = sorted([*numbers, other]), more
        return _Kind(numbers, record)

    def _merge(self, numbers: Sequence[int], within: bool) -> Module | None:
        """The statements of forward and what it returns, for all these modules; None where they differ in more than sizes.

        within: whether the statements shall hold for sizes between these too.
        """
        versions = [self.forwards[number] for number in numbers]
        frames = {(self.modules[number].frame, self.modules[number].made if within else 0) for number in numbers}
        columns = list_columns(versions) if len(frames) == 1 else None
        if columns is None:
            return None
        sizes = {name: tuple(values[number] for number in numbers) for name, (*_, values) in self.sizes.items()}
        fitter = Fitter({name: values for name, values in sizes.items() if len(set(values)) > 1})
        fitter.prepare(whole for values in columns.values() if (whole := read_whole(values)) is not None)
        words: dict[Path, Expression] = {}
        for (place,), group in itertools.groupby(columns.items(), key=lambda column: column[0][:1]):
            statements = [one.body[place] for one in versions]
            fitted = self._fit({path[1:]: values for path, values in group}, statements, numbers, fitter, within)
            if fitted is None:
                return None
            words |= {(place, *path): word for path, word in fitted.items()}
        return put_in(versions[0], words)

    def _fit(
        self, columns: Mapping[Path, Column], statements: Sequence[Statement], numbers: Sequence[int], fitter: Fitter, within: bool
    ) -> dict[Path, Expression] | None:
        """What stands for the numbers of a statement for these modules; None where one follows from nothing that is known."""
        launches = [launch for one in statements if (launch := read_launch(one)) is not None and not launch.keeps]
        first = launches[0] if launches else None
        words = {
            path: _write_number(values, fitter, _read_key(statements[0], path) if first is not None else "", within)
            for path, values in columns.items()
        }  # fmt: skip
        if first is not None:
            known = list(zip(*((keyword.value for keyword in one.call.keywords) for one in launches), strict=True))
            constants = [tuple(one for one in values if isinstance(one, Number)) for values in known]
            given = {values: word for path, word in words.items() if (values := columns[path]) in constants and word is not None}
            blocks = [(whole, given.get(values, values[0])) for values in constants
                      if len(values) == len(numbers) and (whole := read_whole(values)) is not None]  # fmt: skip
            counts = self.pool.list_counts(first.kernel, numbers)
            for path, word in words.items():
                if path[: len(_GRID)] == _GRID and (whole := read_whole(columns[path])) is not None and not _is_product(word):
                    same = next((word for sizes, word in blocks if sizes == whole), None)
                    words[path] = same or _write_programs(whole, counts, blocks, fitter) or word
        return {path: word for path, word in words.items() if word is not None} if None not in words.values() else None

    def _write(self, kind: _Kind) -> ForwardCode:
        """The forward of a kind of sizes."""
        *statements, returned = kind.record.body
        assert isinstance(returned, Return) and returned.value is not None, "it is the last statement"
        tests, words = self._guard(kind)
        used = names_in(kind.record)
        given = [
            statement("{name} = {held}.shape[{axis}]", name=name, held=held, axis=axis)
            for name, (held, axis, _) in self.sizes.items() if name in used
        ]
        right, wrong = " and ".join(one.right for one in tests), " or ".join(one.wrong for one in tests)
        return ForwardCode((*given, *statements), returned.value, right, wrong, words)

    def _guard(self, kind: _Kind) -> tuple[list[Condition], str]:
        """What forward asks of its inputs, and what it takes in people's words."""
        numbers = kind.numbers
        first = self.modules[numbers[0]]
        known = self.modules if kind.spans else [self.modules[number] for number in numbers]  # both ends of a span, whatever kind they are
        most = min((one.most for one in known if one.free == first.free), default=0)
        made = [self.modules[number].made for number in numbers]
        varied = {axis: values for axis, values in self.axes.items() if len({values[number] for number in numbers}) > 1}
        letters = {axis: next(name for name, (*_, ones) in self.sizes.items() if ones == values) for axis, values in varied.items()}
        tests = [compare("self.made", "==", first.made)] if self.constructors > 1 and len(set(made)) == 1 else []
        shapes, words = require_inputs(first.inputs, first.free, most, letters)
        tests += shapes
        keys: dict[Axis, str] = {}
        for axis, letter in letters.items():
            twin = next((known for known, name in keys.items() if name == letter), None)
            tests += [compare(write_size(axis), "==", write_size(twin))] if twin else []
            keys |= {axis: letter} if twin is None else {}
        if varied:
            rows = [{axis: self.axes[axis][number] for axis in keys} for number in numbers]
            spans = [{(name, axis): (span.low[name][axis], span.high[name][axis]) for name, axis in keys} for span in kind.spans]
            test, said = require_sizes(keys, rows, spans, made if len(set(made)) > 1 else [])
            tests.append(test)
            words[-1] += f", {said}"
        return tests, ", ".join(words) + (f", a up to {most}," if first.free else "")


def _find_axes(modules: Sequence[SizedModule]) -> dict[tuple[str, int], Numbers]:
    """By input and axis the sizes, one for each module; without those that all share, and those that may be of any size."""
    found: dict[tuple[str, int], Numbers] = {}
    for name, (shape, _) in modules[0].inputs.items():
        for axis in range(len(shape)):
            shapes = [one.inputs[name][0] for one in modules]
            if all(len(one) == len(shape) for one in shapes):
                values = tuple(one[axis] for one in shapes)
                if len(set(values)) > 1 and not (axis == 0 and all(name in one.free for one in modules)):
                    found[name, axis] = values
    return found


def _write_programs(
    programs: Numbers, counts: Sequence[Numbers], blocks: Sequence[tuple[Numbers, Expression]], fitter: Fitter
) -> Expression | None:
    """A number of programs that share what a kernel counts, a block for each; or a multiple of it.

    counts: numbers in the kernel's text.
    blocks: sizes of blocks, and how they are written.
    """
    for count, (sizes, block) in itertools.product(counts, blocks):
        tiles = tuple(-(-one // size) for one, size in zip(count, sizes, strict=True) if size)
        times = find_times(programs, tiles) if len(tiles) == len(count) else None
        if times is not None and (size := fitter.write(count)) is not None:
            shared = expression("triton.cdiv({size}, {block})", size=size, block=block)
            return expression("{shared} * {times}", shared=shared, times=times) if times > 1 else shared
    return None


_GRID = (0, 0, 1)
"""The place of a grid in the statement that launches a kernel."""


def _read_key(statement: Statement, path: Path) -> str:
    """The constant of a launch that a number is, such as the size of a block; empty for any other."""
    holder = find(statement, path[:-1])
    return holder.name if isinstance(holder, Keyword) and len(path) == len(_GRID) else ""


def _is_product(word: Expression | None) -> bool:
    """Whether an expression is a size or a product, which the number of programs may well be."""
    return word is not None and not any(isinstance(one, Binary) and one.operator != "*" for one in iterate(word))


def _write_number(values: Column, fitter: Fitter, key: str, within: bool) -> Expression | None:
    """What forward writes for numbers of several modules; None where nothing is known that they follow from.

    key: the constant of a launch that it is. These may also be looked up; within a span only those that decide nothing but the time.
    """
    whole = read_whole(values)
    word = fitter.write(whole) if whole is not None else None
    if not key or isinstance(word, Name):
        return word
    real = read_real(values)
    if real is not None:
        return expression("float({size})", size=size) if (size := fitter.write(real)) is not None else None
    if whole is not None and key not in _TIME_ONLY and (power := fitter.write_power(whole, within)) is not None:
        return power
    if within:
        return write_steps(values, fitter.sizes) if key in _TIME_ONLY else word
    return write_table(values, fitter.sizes)
