"""The kernel of reductions and scans along rows, with the elementwise work around them."""

from __future__ import annotations

from dataclasses import replace

from tritonsmith.author.compiler.fusing.regions import RowRegion
from tritonsmith.author.compiler.fusing.space import PLACE, ROW, Walk, anchor_coordinates
from tritonsmith.author.compiler.ir.code import Expression, Name, Statement, number
from tritonsmith.author.compiler.ir.indices import Coordinates, Index
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import TYPE_NAMES, Anchor, Joined, Lookup, Reduction, Scan, Tensor, TensorView
from tritonsmith.author.compiler.ir.walk import names_in
from tritonsmith.author.compiler.kernels.anchors import (
    HELPER,
    TITLES,
    TURN,
    ReductionKind,
    Terms,
    count_alone,
    fill_line,
    find_kind,
    start_scan,
    write_scan,
)
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.kernel import Kernel
from tritonsmith.author.compiler.kernels.pieces import BLOCK, assign, loop, options, widen
from tritonsmith.author.compiler.kernels.tiling import RowLayout, Tiling, choose_tiling
from tritonsmith.author.recipe import Settings
from tritonsmith.author.types import find_sum_type

_BIG = 2**31
INSIDE, VALID = Name("inside"), Name("valid")
"""Conditions under which a program's rows, and its places, exist."""
_ONE = expression("()")
_SHAPES = {
    RowLayout.ROW: expression("(BLOCK,)"), RowLayout.TILE: expression("(ROWS, BLOCK)"), RowLayout.COLUMNS: expression("(ROWS,)"),
}  # fmt: skip
"""By layout: the shape of what is accumulated."""
_CHAINED = 2
"""Passes with reductions from which on all that a row needs is read ahead."""
_READ_AHEAD_WARPS, _MOST_READ_AHEAD = 16, 64
"""Warps of a program whose threads have registers for that, and values that a thread reads so."""
_UNROLLED = 32
"""Places of a row that a loop without a counter goes through."""


def write_rows(region: RowRegion, name: str, settings: Settings) -> list[Kernel]:
    """One program for each row, or for several rows."""
    return [RowWriter(region, choose_tiling(region, settings)).write(name)]


def order_passes(region: RowRegion, looped: bool = False) -> list[tuple[list[Anchor], list[Tensor]]]:
    """By pass along the row: the anchors that it does, in a loop also those that it does again, and the values that it stores."""
    levels: dict[int, int] = {}
    passes: dict[int, tuple[list[Anchor], list[Tensor]]] = {}

    def level(value: Tensor, at: Coordinates) -> int:
        walk = Walk(lambda one: id(one) in region.reads)
        walk.visit(value, at)
        return max((levels[id(one)] + (0 if isinstance(one, Scan) else 1) for one in walk.anchors), default=0)

    for anchor in region.anchors:
        levels[id(anchor)] = level(anchor.source, anchor_coordinates(anchor)[0])
        passes.setdefault(levels[id(anchor)], ([], []))[0].append(anchor)
    for value in region.stores:
        found = region.space.find(value.shape)
        assert found is not None, "the cut lets no other value in"
        if found[1]:
            passes.setdefault(level(value, found[0]), ([], []))[1].append(value)
    ordered = [passes[key] for key in sorted(passes)]
    return _repeat_scans(region, ordered) if looped else ordered


def _repeat_scans(region: RowRegion, passes: list[tuple[list[Anchor], list[Tensor]]]) -> list[tuple[list[Anchor], list[Tensor]]]:
    """The same passes, each with the scans of earlier ones whose elements it needs: a loop has only those of its block."""

    def list_scans(value: Tensor, at: Coordinates) -> set[int]:
        walk = Walk(lambda one: id(one) in region.reads)
        walk.visit(value, at)
        scans = [one for one in walk.anchors if isinstance(one, Scan)]
        return {id(one) for one in scans}.union(*(list_scans(one.source, anchor_coordinates(one)[0]) for one in scans))

    done: list[Anchor] = []
    repeated = []
    for anchors, stores in passes:
        places = [(one, found[0]) for one in stores if (found := region.space.find(one.shape)) is not None]
        places += [(one.source, anchor_coordinates(one)[0]) for one in anchors]
        needed = set[int]().union(*(list_scans(value, at) for value, at in places))
        repeated.append(([*(one for one in done if id(one) in needed), *anchors], stores))
        done += [one for one in anchors if isinstance(one, Scan)]
    return repeated


def list_row_stores(region: RowRegion) -> list[tuple[Tensor, Coordinates, Index]]:
    """Values with one element for each row, and where that lies."""
    found = [(value, region.space.find(value.shape)) for value in region.stores]
    return [(value, one[0], region.space.row) for value, one in found if one is not None and not one[1]]


def _runs_back(region: RowRegion) -> bool:
    return any(isinstance(one, Scan) and one.reverse for one in region.anchors)


def _choose_kind(anchor: Anchor, ragged_first: bool) -> ReductionKind:
    """How an anchor is accumulated in a loop, whose first block may be the one that is not full."""
    kind = find_kind(anchor.kind, anchor.source.dtype)
    return count_alone(kind) if ragged_first else kind


def _is_unrolled(region: RowRegion, tiling: Tiling, chunk: int) -> bool:
    """Whether a thread's loop over the places of a row is written out by Triton."""
    return tiling.layout is RowLayout.COLUMNS and not chunk and not _runs_back(region) and region.space.length <= _UNROLLED


def give_hints(emitter: Emitter, region: RowRegion, tiling: Tiling, last: bool, several: bool) -> None:
    """Have what is read again kept in L2, and what is not needed any more leave it.

    Softmax of 2,048 rows of 65,536 took 0.309 ms with these hints, and 0.385 ms without them (H200).
    """
    several = several and tiling.looped and tiling.layout is RowLayout.ROW
    whole = region.space.rows * region.space.length
    hint = options(eviction_policy=f"evict_{'first' if last else 'last'}") if several else ()
    emitter.load_options = {key: hint for key, value in region.reads.items() if value.size >= whole}
    emitter.store_options = options(cache_modifier=".cs") if several and last and region.space.length > 2 * tiling.block else ()


class RowWriter:
    """Writes the kernel of a region.

    Args:
        region: what it computes.
        tiling: how.
        chunk: places of a row that one program goes through, where several share a row; 0 where none do.
    """

    def __init__(self, region: RowRegion, tiling: Tiling, chunk: int = 0) -> None:
        self.region, self.tiling, self.space, self.chunk = region, tiling, region.space, chunk
        self.arguments = Arguments()
        self.free = region.free and not chunk and region.space.rows > 1  # the number of rows is an argument
        length, block = self.space.length, tiling.block
        self.ragged = tiling.layout is not RowLayout.COLUMNS and length % block != 0
        self.row_vector = tiling.layout is not RowLayout.ROW
        self.has_rest = self.row_vector and (self.free or self.space.rows % tiling.rows != 0)
        bounds = {ROW: INSIDE if self.has_rest else None, PLACE: VALID if self.ragged else None}
        outer = frozenset((ROW,)) if tiling.looped else frozenset((ROW, PLACE))
        self.emitter = Emitter(self.arguments, self.in_memory, bounds, outer)
        self.emitter.rounded = region.rounded
        self.emitter.numbers = frozenset((PLACE,) if _is_unrolled(region, tiling, chunk) else ())
        self.titles: dict[int, str] = {}
        """By anchor: the name of its result."""

    def in_memory(self, value: Tensor) -> bool:
        """Whether the kernel reads a value from memory."""
        return id(value) in self.region.reads

    def write(self, name: str) -> Kernel:
        """The kernel."""
        passes = order_passes(self.region, self.tiling.looped)
        self._read_ahead(passes)
        for place, (anchors, stores) in enumerate(passes):
            give_hints(self.emitter, self.region, self.tiling, place == len(passes) - 1, len(passes) > 1)
            self.write_pass(anchors, stores)
        for value, at, index in list_row_stores(self.region):
            self.emitter.store(value, index, self.emitter.read(value, at), frozenset((ROW,)))
        rows, free = self.space.rows, self.free and self.has_rest
        grid = expression("({programs},)", programs=-(-rows // self.tiling.rows))
        if free:
            grid = expression("lambda c: (triton.cdiv({rows}, c['ROWS']),)", rows=rows)
        return Kernel(
            name=name, does="", arguments=self.arguments.list(), sizes=[("rows", number(rows))] if free else [],
            constants=self.list_constants(), body=[*self.head(), *self.emitter.scopes[0].lines], grid=grid,
            stores=list(self.region.stores), warps=self.tiling.warps,
        )  # fmt: skip

    def _read_ahead(self, passes: list[tuple[list[Anchor], list[Tensor]]]) -> None:
        """Read what a row needs ahead of the first of several reductions, behind each of which a program would wait for memory again."""
        if self.tiling.looped or sum(any(isinstance(one, Reduction) for one in anchors) for anchors, _ in passes) < _CHAINED:
            return
        walk = Walk(self.in_memory)
        for anchors, stores in passes:
            for anchor in anchors:
                walk.visit(anchor.source, anchor_coordinates(anchor)[0])
            for value in stores:
                found = self.space.find(value.shape)
                assert found is not None, "the cut lets no other value in"
                walk.visit(value, found[0])
        if any(isinstance(one, Joined | Lookup) or isinstance(one, TensorView) and one.guard for one in walk.formulas.values()):
            return  # of which some elements are read only where a condition holds
        elements = [(walk.leaves[key], at) for key, at in walk.elements if key in walk.leaves]
        each = self.tiling.rows * self.tiling.block // (32 * self.tiling.warps)
        if self.tiling.warps > _READ_AHEAD_WARPS or each * len(elements) > _MOST_READ_AHEAD:
            return
        for value, at in elements:
            if {name for index in at for name in index.names} <= {ROW, PLACE} and PLACE in walk.depends[id(value)]:
                self.emitter.read(value, at)

    def list_constants(self) -> list[tuple[str, int]]:
        """The sizes of a program."""
        constants = [("ROWS", self.tiling.rows)] if self.row_vector and self.space.rows > 1 else []
        return constants + ([("BLOCK", self.tiling.block)] if self.tiling.layout is not RowLayout.COLUMNS else [])

    def head(self) -> list[Statement]:
        """The lines that say which rows and places a program has."""
        big = max(self.arguments.largest, self.space.length, self.space.rows) >= _BIG
        lines = self._find_rows(big) if self.space.rows > 1 else []
        if self.chunk:
            part = widen(expression("(tl.program_id(0) % PARTS)"), big)
            lines += statements(
                """
                begin = {part} * {chunk}
                end = tl.minimum(begin + {chunk}, {length})
                """,
                part=part, chunk=self.chunk, length=self.space.length,
            )  # fmt: skip
        if not self.tiling.looped:
            lines.append(assign("k", self._list_places()))
            masked = self.ragged or any(VALID.name in names_in(line) for line in self.emitter.scopes[0].lines)
            lines += [self._compare_places()] if masked else []
        return lines

    def _find_rows(self, big: bool) -> list[Statement]:
        """The lines that say which rows a program has, and which of them exist."""
        program = expression("tl.program_id(0)")
        if self.chunk:
            program = expression("(tl.program_id(0) // PARTS)" if big else "tl.program_id(0) // PARTS")
        program = widen(program, big)
        if not self.row_vector:
            return [assign(ROW, program)]
        vector = expression("{program} * ROWS + tl.arange(0, ROWS)", program=program)
        if self.tiling.layout is RowLayout.TILE:
            vector = expression("({vector})[:, None]", vector=vector)
        last = Name("rows") if self.free else number(self.space.rows)
        return [assign(ROW, vector), *([statement("inside = row < {last}", last=last)] if self.has_rest else [])]

    def _list_places(self) -> Expression:
        return expression("tl.arange(0, BLOCK)[None, :]" if self.tiling.layout is RowLayout.TILE else "tl.arange(0, BLOCK)")

    def _compare_places(self) -> Statement:
        return statement("valid = k < {length}", length=self.space.length)

    def write_pass(self, anchors: list[Anchor], stores: list[Tensor]) -> None:
        """Go along the row once."""
        emitter, tiling = self.emitter, self.tiling
        for anchor in anchors:
            self.entitle(anchor)
        if not tiling.looped:
            for anchor in anchors:
                self.reduce_whole(anchor) if isinstance(anchor, Reduction) else self._run(anchor)
            self.store_places(stores)
            return
        for anchor in anchors:
            self._start(anchor)
        emitter.open(frozenset((PLACE,)))
        if tiling.layout is not RowLayout.COLUMNS:
            emitter.line(statement("k = start + {places}", places=self._list_places()), self._compare_places())
        before = len(emitter.scopes[-1].lines)
        for anchor in anchors:
            self._step(anchor) if isinstance(anchor, Reduction) else self._run(anchor)
        self.store_places(stores)
        lines = emitter.scopes[-1].lines
        if tiling.layout is not RowLayout.COLUMNS and not any(VALID.name in names_in(line) for line in lines[before:]):
            lines.pop(before - 1)
        self._close_loop()
        if tiling.layout is not RowLayout.COLUMNS:
            for anchor in anchors:
                self._finish(anchor)
        for anchor in anchors:
            self.conclude(anchor)

    def _close_loop(self) -> None:
        length, backwards, emitter = self.space.length, _runs_back(self.region), self.emitter
        ends: tuple[int | Expression, ...] = (Name("begin"), Name("end")) if self.chunk else (0, length)
        if self.tiling.layout is not RowLayout.COLUMNS:
            last = (length - 1) // self.tiling.block
            if backwards:
                emitter.scopes[-1].lines.insert(0, statement("start = ({last} - step) * BLOCK", last=last))
            emitter.close(loop("step", last + 1) if backwards else loop("start", *ends, BLOCK))
        elif self.chunk or backwards:
            emitter.close(loop(PLACE, length - 1, -1, -1) if backwards else loop(PLACE, *ends))
        else:
            emitter.close(loop(PLACE, length, kind="tl.static_range" if emitter.numbers else "range"))

    def store_places(self, stores: list[Tensor]) -> None:
        """Store values that have an element for each place."""
        for value in stores:
            found = self.space.find(value.shape)
            assert found is not None
            self.emitter.store(value, self.space.whole, self.emitter.read(value, found[0]), frozenset((ROW, PLACE)))

    def entitle(self, anchor: Anchor) -> None:
        """Name the results of an anchor."""
        title = self.arguments.name(anchor.name or TITLES.get(anchor.kind, anchor.kind))
        self.titles[id(anchor)] = title
        if isinstance(anchor, Scan):
            self.emitter.outcomes[id(anchor), 0] = title
            self.emitter.names[title] = frozenset((ROW, PLACE))
            return
        for which, part in enumerate(find_kind(anchor.kind, anchor.source.dtype).parts[:2]):
            self.emitter.outcomes[id(anchor), which] = f"{title}{part}"
            self.emitter.names[f"{title}{part}"] = frozenset((ROW,))

    def _take(self, anchor: Anchor) -> tuple[Expression, Expression | None]:
        """The element that an anchor takes in, and the condition under which it counts; None where it always does."""
        element = self.emitter.read(anchor.source, anchor_coordinates(anchor)[0])
        constant = PLACE not in self.emitter.depends(element) and self.tiling.layout is not RowLayout.COLUMNS and self.space.length > 1
        if anchor.source.dtype == "bool":
            element = expression("{x}.to(tl.int32)", x=element)
        return element, VALID if self.ragged or constant else None

    def _list_terms(self, anchor: Anchor, element: Expression | None = None, valid: Expression | None = None) -> Terms:
        """What fills the lines of a reduction."""
        tile = self.tiling.layout is RowLayout.TILE
        return Terms(
            self.titles[id(anchor)], expression("end - begin") if self.chunk else number(self.space.length), element or number(0),
            Name(PLACE) if self.space.length > 1 else number(0), axis=int(tile), keep=tile, valid=valid,
        )  # fmt: skip

    def reduce_whole(self, anchor: Reduction) -> None:
        """Make one number of all places at once."""
        terms = self._list_terms(anchor, *self._take(anchor))
        for line in find_kind(anchor.kind, anchor.source.dtype).whole:
            if line is HELPER:
                assert anchor.helper is not None
                terms = replace(terms, helper=self.emitter.read(anchor.helper, anchor_coordinates(anchor)[0]))
            else:
                self.add_line(fill_line(line, terms), anchor)
        self.conclude(anchor)

    def add_line(self, line: Statement, anchor: Reduction) -> None:
        """Add a line of a reduction of all places at once."""
        self.emitter.line(line)

    def conclude(self, anchor: Anchor) -> None:
        """Turn numbers back into truths."""
        if anchor.kind in ("any", "all"):
            self.emitter.line(statement("{n} = {n} != 0", n=self.titles[id(anchor)]))

    def _start(self, anchor: Anchor) -> None:
        layout = self.tiling.layout
        if isinstance(anchor, Scan):
            self.emitter.line(start_scan(anchor, self.titles[id(anchor)], layout))
            return
        kind = _choose_kind(anchor, self.ragged and _runs_back(self.region))
        for part, start in zip(kind.parts, kind.start, strict=True):
            dtype = "int32" if part == "_place" else find_sum_type(anchor.source.dtype)
            shape = _ONE if part == TURN else _SHAPES[layout]
            name = f"{self.titles[id(anchor)]}{part}"
            value = expression("tl.full({shape}, {start}, {dtype})", shape=shape, start=start, dtype=TYPE_NAMES[dtype])
            self.emitter.line(assign(name, value))

    def _step(self, anchor: Anchor) -> None:
        terms = self._list_terms(anchor, *self._take(anchor))
        for line in _choose_kind(anchor, self.ragged and _runs_back(self.region)).step:
            self.emitter.line(fill_line(line, terms))

    def _finish(self, anchor: Anchor) -> None:
        if isinstance(anchor, Reduction):
            for line in find_kind(anchor.kind, anchor.source.dtype).finish:
                self.emitter.line(fill_line(line, self._list_terms(anchor)))

    def _run(self, anchor: Anchor) -> None:
        element, valid = self._take(anchor)
        self.emitter.line(*write_scan(anchor, self.titles[id(anchor)], element, valid, self.tiling))
