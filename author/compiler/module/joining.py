"""The text of one module from those for several sizes: one forward where they differ in numbers alone, else one for each kind of size."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tritonsmith.author.compiler.ir.indices import Shape
from tritonsmith.author.compiler.kernels.kernel import join_lines, wrap
from tritonsmith.author.compiler.kernels.names import Namer
from tritonsmith.author.compiler.module.functions import KernelPool
from tritonsmith.author.compiler.module.guards import Axis, Condition, compare, require_shape, require_sizes, write_size
from tritonsmith.author.compiler.module.module import ModuleText, SizedForward
from tritonsmith.author.compiler.module.numbers import (
    Fitter,
    Numbers,
    blank,
    find_times,
    list_numbers,
    put_in,
    read_whole,
    write_steps,
    write_table,
)

_CALLED = ("float", "max", "min")
"""What expressions of sizes call."""
_TIME_ONLY = ("ROWS", "num_warps", "num_stages")
"""Constants of launches that results do not depend on."""


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


class OpenSpan(NamedTuple):
    """Sizes too many for texts of their own."""

    low: Mapping[str, Shape]
    """Inputs at the lowest ones."""
    high: Mapping[str, Shape]
    within: Sequence[int]
    """Texts, by their number, that say what holds between."""

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
    lines: list[str]
    """Statements, and at the end what forward returns."""
    spans: list[OpenSpan] = field(default_factory=list)
    """All sizes within these belong to it."""


def join_texts(
    texts: Sequence[SizedText], names: Mapping[str, Numbers], taken: Collection[str], constructors: int = 1, spans: Sequence[OpenSpan] = ()
) -> ModuleText:
    """One module for all sizes.

    Args:
        texts: for the task's own size, then for others.
        names: of sizes, as the task calls them: one value for each text.
        taken: names that variables of forward may not have.
        constructors: with how many sets of arguments the module may be made.
        spans: of sizes that it shall take besides; `missed` says which it does not.
    """
    return _Joiner(texts, names, taken, constructors).join(spans)


class _Joiner:
    """Joins the kernels, then the forwards."""

    def __init__(self, texts: Sequence[SizedText], names: Mapping[str, Numbers], taken: Collection[str], constructors: int) -> None:
        self.texts, self.names, self.constructors = texts, names, constructors
        lines = [line for one in texts for line in (*one.text.forward, one.text.returned)]
        namer = Namer({*taken, *_CALLED, *(word for line in lines for word in re.findall(r"(?<![\w.])[A-Za-z_]\w*", line))})
        self.axes = _find_axes(texts)
        self.sizes: dict[str, tuple[str, int, Numbers]] = {}
        """By variable of forward: the input and axis that it is the size of."""
        for (name, axis), values in self.axes.items():
            if values not in [known for *_, known in self.sizes.values()]:
                self.sizes[namer.choose(self._call(values))] = (name, axis, values)
        self.pool = KernelPool([one.text for one in texts], {name: values for name, (*_, values) in self.sizes.items()})
        self.forwards = [
            [*(self.pool.complete(number, line) for line in join_lines(one.text.forward)), one.text.returned]
            for number, one in enumerate(texts)
        ]  # fmt: skip

    def join(self, spans: Sequence[OpenSpan]) -> ModuleText:
        """The text."""
        first = self.texts[0].text
        kinds, missed = self._sort(spans)
        helpers = dict.fromkeys(name for one in self.texts for name in one.text.helpers)
        merged = replace(
            first, kernels=self.pool.list_functions(), helpers=tuple(helpers),
            libdevice=any(one.text.libdevice for one in self.texts), functional=any(one.text.functional for one in self.texts),
            keeps=any(one.text.keeps for one in self.texts), missed=missed,
            records={name: fields for one in self.texts for name, fields in one.text.records.items()},
            names=[tuple(self.pool.rename(0, name) for name in names) for names in first.names],
        )  # fmt: skip
        sized = [self._write(kind) for kind in kinds]
        if len(sized) == 1:
            (one,) = sized
            return replace(merged, forward=one.lines, returned=one.returned, wrong=one.wrong, made_for=one.made_for)
        return replace(merged, forward=[], returned="", wrong="", sized=sized, made_for=" or ".join(one.made_for for one in sized))

    def _call(self, values: Numbers) -> str:
        """What a size is called: as the task calls it, where it does."""
        return next((name.lower() for name, ones in self.names.items() if ones == values), "size")

    def _sort(self, spans: Sequence[OpenSpan]) -> tuple[list[_Kind], list[int]]:
        """The kinds of sizes, those of long spans behind the others, and the spans that are not among them."""
        open_kinds: list[_Kind] = []
        missed: list[int] = []
        left = list(range(len(self.texts)))
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
            assert kind is not None, "a text differs in nothing from itself"
            closed.append(kind)
            left = [number for number in left if number not in kind.numbers]
        return [*closed, *open_kinds], missed

    def _gather(self, numbers: list[int], left: Sequence[int], within: bool) -> _Kind | None:
        """These modules, with all others that differ from them in numbers that follow from sizes; None where they do themselves."""
        lines = self._merge(numbers, within)
        if lines is None:
            return None
        for other in left:
            if other not in numbers and (more := self._merge(sorted([*numbers, other]), within)) is not None:
                numbers, lines = sorted([*numbers, other]), more
        return _Kind(numbers, lines)

    def _merge(self, numbers: Sequence[int], within: bool) -> list[str] | None:
        """The statements of forward and what it returns, for all these modules; None where they differ in more than sizes.

        within: whether the statements shall hold for sizes between these too.
        """
        versions = [self.forwards[number] for number in numbers]
        frames = {(self.texts[number].frame, self.texts[number].made if within else 0) for number in numbers}
        if len(frames) > 1 or len({tuple(map(blank, lines)) for lines in versions}) > 1:
            return None
        sizes = {name: tuple(values[number] for number in numbers) for name, (*_, values) in self.sizes.items()}
        fitter = Fitter({name: values for name, values in sizes.items() if len(set(values)) > 1})
        found = [values for lines in zip(*versions, strict=True) for values in zip(*map(list_numbers, lines), strict=True)]
        fitter.prepare(whole for values in found if (whole := read_whole(values)) is not None)
        merged = [self._merge_line(lines, numbers, fitter, within) for lines in zip(*versions, strict=True)]
        return [line for line in merged if line is not None] if None not in merged else None

    def _merge_line(self, lines: Sequence[str], numbers: Sequence[int], fitter: Fitter, within: bool) -> str | None:
        """One statement for these modules; None where a number follows from nothing that is known."""
        grid, launch, _ = blank(lines[0]).partition("](")
        columns = list(zip(*map(list_numbers, lines), strict=True))
        keys = _list_keys(lines[0])
        words = [_write_number(values, fitter, key, within) for values, key in zip(columns, keys, strict=True)]
        blocks = [(whole, word) for values, key, word in zip(columns, keys, words, strict=True)
                  if key and word is not None and (whole := read_whole(values)) is not None]  # fmt: skip
        counts = self.pool.list_counts(grid.partition("[")[0], numbers) if launch else []
        for place in range(grid.count("#") if launch else 0):
            whole = read_whole(columns[place])
            word = words[place]
            if whole is not None and len(set(whole)) > 1 and (word is None or re.search(r"[-+/]", word)):
                same = next((word for sizes, word in blocks if sizes == whole), None)
                words[place] = same or _write_programs(whole, counts, blocks, fitter) or word
        return put_in(lines[0], [word for word in words if word is not None]) if None not in words else None

    def _write(self, kind: _Kind) -> SizedForward:
        """The forward of a kind of sizes."""
        *statements, returned = kind.lines
        tests, words = self._guard(kind)
        heads = [name for name in self.sizes if any(re.search(rf"\b{name}\b", line) for line in kind.lines)]
        given = [f"{name} = {self.sizes[name][0]}.shape[{self.sizes[name][1]}]" for name in heads]
        lines = [*given, *(part for line in statements for part in _wrap(line))]
        right = " and ".join(one.right for one in tests)
        return SizedForward(lines, returned, right, " or ".join(one.wrong for one in tests), words)

    def _guard(self, kind: _Kind) -> tuple[list[Condition], str]:
        """What forward asks of its inputs, and what it takes in people's words."""
        numbers = kind.numbers
        first = self.texts[numbers[0]]
        known = self.texts if kind.spans else [self.texts[number] for number in numbers]  # both ends of a span, whatever kind they are
        most = min((one.most for one in known if one.free == first.free), default=0)
        made = [self.texts[number].made for number in numbers]
        varied = {axis: values for axis, values in self.axes.items() if len({values[number] for number in numbers}) > 1}
        letters = {axis: next(name for name, (*_, ones) in self.sizes.items() if ones == values) for axis, values in varied.items()}
        tests = [compare("self.made", "==", first.made)] if self.constructors > 1 and len(set(made)) == 1 else []
        words = []
        for name, (shape, dtype) in first.inputs.items():
            shown = [letters.get((name, axis), str(size)) for axis, size in enumerate(shape)]
            shown[:1] = ["a"] if name in first.free else shown[:1]
            words.append(f"{name} {dtype}[{', '.join(shown)}]")
            tests += require_shape(name, shape, name in first.free, [axis for axis in range(len(shape)) if (name, axis) in varied])
        for name in first.free:
            one, other = (write_size((held, 0)) for held in (name, first.free[0]))
            tests.append(compare(one, "<=", most) if name == first.free[0] else compare(one, "==", other))
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


def _wrap(line: str) -> list[str]:
    """A statement on several lines where it is a long launch."""
    head, launch, arguments = line.partition("](")
    parts = re.split(r", (?![^{[(]*[}\])])", arguments.removesuffix(")"))
    return wrap(f"{head}](", parts, ")", "") if launch else [line]


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


def _write_programs(programs: Numbers, counts: Sequence[Numbers], blocks: Sequence[tuple[Numbers, str]], fitter: Fitter) -> str | None:
    """A number of programs that share what a kernel counts, a block for each; or a multiple of it.

    counts: numbers in the kernel's text.
    blocks: sizes of blocks, and how they are written.
    """
    for count, (sizes, block) in itertools.product(counts, blocks):
        tiles = tuple(-(-one // size) for one, size in zip(count, sizes, strict=True) if size)
        times = find_times(programs, tiles) if len(tiles) == len(count) else None
        if times is not None and (found := fitter.write(count)) is not None:
            return f"triton.cdiv({found}, {block})" + (f" * {times}" if times > 1 else "")
    return None


def _list_keys(line: str) -> list[str]:
    """For each number of a statement: the constant of a launch that it is, such as the size of a block; empty for any other."""
    if "](" not in line:
        return [""] * len(list_numbers(line))
    pieces = blank(line).split("#")[:-1]
    return [found[1] if (found := re.search(r"(\w+)=$", piece)) else "" for piece in pieces]


def _write_number(values: tuple[str, ...], fitter: Fitter, key: str, within: bool) -> str | None:
    """What forward writes for numbers of several texts; None where nothing is known that they follow from.

    key: the constant of a launch that it is. These may also be looked up; within a span only those that decide nothing but the time.
    """
    if len(set(values)) == 1:
        return values[0]
    whole = read_whole(values)
    found = fitter.write(whole) if whole is not None else None
    if not key or found in fitter.sizes:
        return found
    real = read_whole(values, ".0")
    if real is not None:
        return f"float({inner})" if (inner := fitter.write(real)) is not None else None
    if whole is not None and key not in _TIME_ONLY and (power := fitter.write_power(whole, within)) is not None:
        return power
    if within:
        return write_steps(values, fitter.sizes) if key in _TIME_ONLY else found
    return write_table(values, fitter.sizes)
