"""Kernels that split operands into fp16 parts ahead of a product.

Each line of a parameter along the depth has a power of two of its own, and its parts are kept. Other operands are split in every call as
they are; the greatest values of their places say whether parts do for a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.operands import FreshOperand
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import ACROSS, BATCH, COLUMN, DOWN, LINE, TAP
from tritonsmith.author.compiler.ir.code import Expression, Group, Name, Statement, number
from tritonsmith.author.compiler.ir.indices import Coordinates, Index, unravel, variable
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import TYPE_NAMES, Held, Tensor, TensorView
from tritonsmith.author.compiler.kernels.emitter import Arguments
from tritonsmith.author.compiler.kernels.kernel import Buffer, KeptParts, Kernel, make_function
from tritonsmith.author.compiler.kernels.pieces import add, assign, join_tests, loop, store, times, widen
from tritonsmith.author.compiler.kernels.product_grid import INNER, OUTER, TileEmitter, is_below
from tritonsmith.author.compiler.kernels.product_tiles import ProductTile
from tritonsmith.author.types import PART

_PART = TYPE_NAMES[PART]
_NAMES = (*OUTER, *INNER, "line", "values", "scaled", "largest", "exponent", "rough", "high", "low", "place", "parts_ptr", "exponents_ptr")
"""Names of the kernel's own."""
LINES, PLACES = 4, 256
"""Lines of a program, and places of them at once."""
_FRESH = (*OUTER, *INNER, "values", "largest", "high", "low", "inside", "span", "places")
"""Names of the kernel for an operand of every call."""
_SIDE_BY_SIDE, _APART = (512, 8), (64, 64)
"""Depth and places of a program at once: where the depth lies side by side in memory already, and where places do."""


def write_parts(region: ProductRegion, tile: ProductTile, name: str) -> KeptParts:
    """The kernel for the operand of a product that is a parameter."""
    product = region.product
    batch, rows, columns, taps, depth = product.sizes
    left = tile.kept == "left"
    lines, value = (rows, product.source) if left else (columns, product.right)
    padded = depth if tile.at_once else -(-depth // tile.depth) * tile.depth
    base: Tensor = value
    while isinstance(base, TensorView):
        base = base.source
    assert isinstance(base, Held), "only parameters are kept"
    both = tile.scheme == "fp16x3"
    count = (3 if tile.at_once else 2) if both else 1
    parts = Buffer(shape=(count, batch, lines, taps * padded), dtype=PART, name=f"{base.name}_parts")
    exponents = Buffer(shape=(batch, lines), dtype="int32", name=f"{base.name}_exponents")
    own, line, tap, across = variable(BATCH, batch), variable(LINE, lines), variable(TAP, taps), variable(ACROSS, depth)
    writer = _LineWriter(value, (own, line, tap, across) if left else (own, tap, across, line), (lines, taps, depth, padded))
    pointer = writer.arguments.take(base)
    writer.add_loop(statements("largest = tl.maximum(largest, magnitude(values))"))
    writer.emitter.line(*statements(_FIND_EXPONENT))
    writer.add_loop(_split_lines(tile, parts, padded if taps > 1 else 0, is_below(ACROSS, padded)))
    body = [
        *_find_lines(batch, lines), *statements("largest = tl.zeros((LINES, PLACES), tl.int32)"), *writer.emitter.scopes[0].lines,
        store(
            add(Name("exponents_ptr"), expression("batch * {lines}", lines=lines) if batch > 1 else None, Name("line")),
            expression("mark_rough(exponent, rough)"), expression("line < {lines}", lines=lines),
        ),
    ]  # fmt: skip
    ends = ", and the high ones times 2^11" if tile.at_once else f", with zeros up to whole blocks of {tile.depth} places"
    does = f"fp16 parts of {base.name}, each line times a power of two{ends}."
    function = make_function(f"split_{name}", [pointer, "parts_ptr", "exponents_ptr"], ["LINES", "PLACES"], does, body)
    return KeptParts(function, base, parts, exponents)


_FIND_EXPONENT = """
    largest = tl.max(largest, 1)
    exponent = line_exponent(largest)
    rough = tl.max((largest >= 0x7F800000).to(tl.int32), 0)  # infinity or NaN
"""


def _find_lines(batch: int, lines: int) -> tuple[Statement, ...]:
    """Which lines a program has."""
    own, blocks = expression("tl.program_id(0)"), -(-lines // LINES)
    head: tuple[Statement, ...] = ()
    if batch > 1:
        head = statements("batch = {own} // {blocks}", own=own, blocks=blocks)
        own = expression("{own} % {blocks}", own=own, blocks=blocks)
    return *head, *statements("line = {own} * LINES + tl.arange(0, LINES)\nm = line[:, None]", own=own)


def _split_lines(tile: ProductTile, parts: Buffer, padded: int, filled: Expression) -> list[Statement]:
    """Split the values of some lines, and store their parts.

    Args:
        tile: of the product.
        parts: where they are stored.
        padded: places of a tap; 0 where there is one tap.
        filled: the condition of a place that is stored.
    """
    count, batch, lines, places = parts.shape
    row = expression("batch * {lines} + m", lines=lines) if batch > 1 else Name(LINE)
    tap = expression("tap * {padded}", padded=padded) if padded else None
    inside = join_tests([is_below(LINE, lines), filled])

    def put(which: int, part: Expression) -> Statement:
        apart = which * (parts.size // count)
        return store(add(Name("parts_ptr"), apart, times(row, places), tap, Name(ACROSS)), part, inside)

    seen, exponent = expression("scaled"), expression("exponent[:, None]")
    if tile.at_once:  # below 2^4, so that the high part times 2^11 is a number of fp16: all three products have the same scale then
        seen, exponent = expression("scaled * 2.0"), expression("exponent[:, None] - 11")
    body = list(statements(
        """
        scaled = shift(values, {exponent})
        rough = tl.maximum(rough, is_uneven(tl.max(magnitude({seen}), 0)))
        """,
        exponent=exponent, seen=seen,
    ))  # fmt: skip
    if count == 1:
        return [*body, put(0, expression("scaled.to({part})", part=_PART))]
    body += [*statements("high, low = split_value(scaled)"), put(0, Name("high")), put(1, Name("low"))]
    return [*body, put(2, expression("(high.to(tl.float32) * 2048.0).to({part})", part=_PART))] if tile.at_once else body


class _LineWriter:
    """Writes loops along some lines of a parameter.

    Args:
        value: the operand.
        at: where it is read.
        sizes: lines, taps, depth, and the depth filled up to whole blocks.
    """

    def __init__(self, value: Tensor, at: Coordinates, sizes: tuple[int, int, int, int]) -> None:
        self.value, self.at = value, at
        self.lines, self.taps, self.depth, padded = sizes
        self.chunks = -(-padded // PLACES)
        self.arguments = Arguments()
        self.arguments.used |= set(_NAMES)
        bounds = {LINE: is_below(LINE, self.lines), ACROSS: is_below(ACROSS, self.depth)}
        self.emitter = TileEmitter(self.arguments, lambda value: isinstance(value, Held), bounds, OUTER)

    def add_loop(self, body: Iterable[Statement]) -> None:
        """A loop over taps and depth; `values` are those of the lines, 0 beyond the edge."""
        self.emitter.open(INNER)
        start, head = None, loop(TAP, self.taps)
        if self.chunks > 1:
            many = self.taps > 1
            start, head = expression("place * PLACES"), loop("place", self.taps * self.chunks)
            if many:
                start = expression("place % {chunks} * PLACES", chunks=self.chunks)
                self.emitter.line(*statements("tap = place // {chunks}", chunks=self.chunks))
        self.emitter.line(*statements("across = {places}[None, :]", places=add(start, expression("tl.arange(0, PLACES)"))))
        values = self.emitter.read_tile(self.value, self.at, ("LINES", "PLACES"), (LINE, ACROSS), self.depth, True)
        self.emitter.line(assign("values", values), *body)
        self.emitter.close(head)


@dataclass
class FreshParts:
    """Parts of an operand that are made in every call."""

    operand: FreshOperand
    kernel: Kernel
    parts: tuple[Buffer, ...]
    """[high and low, other axes, depth], with zeros up to whole loads; for any number of places a buffer for each part, without that axis.

    One address less to compute: with two buffers a product took up to 1.4 times as long (convolution of 3 x 3 x 8 values, H200).
    """
    largest: Buffer
    """[spans of the depth, other axes]: the greatest `magnitude` there; for any number of places [other axes, spans of the depth]."""
    free: bool
    """Whether it takes any number of places."""

    def view(self, value: Tensor, part: int) -> TensorView:
        """The operand `value` as it lies in the parts: the high one, or the low one."""
        operand = self.operand

        def move(at: Coordinates) -> Coordinates:
            place = operand.place_last(operand.follow(at)[0])
            return place if self.free else (Index(constant=part), *place)

        source = self.parts[part if self.free else 0]
        return TensorView(
            shape=value.shape, dtype=PART, source=source, move=move, guard=lambda at: operand.follow(at)[1], name=value.name
        )

    def place_largest(self, span: Index, place: Coordinates) -> Coordinates:
        """Where the largest of a span lies."""
        return (*place, span) if self.free else (span, *place)


def write_fresh(
    operand: FreshOperand, usual: int, free: bool, scheme: str, name: str, in_memory: Callable[[Tensor], bool], programs: int
) -> FreshParts:
    """The kernel that splits an operand of every call, its depth last.

    Args:
        operand: what it splits.
        usual: lines along the depth that the kernel is laid out for.
        free: whether it shall take any number of them.
        scheme: of the product.
        name: of the kernel.
        in_memory: whether a value is read from memory.
        programs: that keep the card busy.
    """
    base, depth, places = operand.base, operand.depth, operand.places
    title = base.name or "x"
    padded = operand.padded
    deep, wide, per_span, spans = _share_out(operand, usual, programs)
    both = scheme == "fp16x3"
    parts, largest = _make_buffers(operand, spans, both, free)
    arguments = Arguments()
    arguments.used |= set(_FRESH)
    whole = spans * per_span * deep  # the last span of an operand may have less to do
    bound = is_below(COLUMN, Name("places") if free else places) if free or places % wide else None
    ragged = is_below(DOWN, depth) if whole > depth else None
    emitter = TileEmitter(arguments, in_memory, {COLUMN: bound, DOWN: ragged}, OUTER)
    emitter.line(*statements("largest = tl.zeros((DEPTH, PLACES), tl.int32)"))
    emitter.open(INNER)
    starts = expression("span * SPAN") if spans > 1 else None, expression("step * DEPTH") if per_span > 1 else None
    emitter.line(statement("down = {places}[:, None]", places=Group(add(*starts, expression("tl.arange(0, DEPTH)")))))
    at = list(unravel(variable(COLUMN, places), operand.others))
    at.insert(operand.axis, variable(DOWN, depth))
    emitter.line(assign("values", emitter.read_tile(base, tuple(at), ("DEPTH", "PLACES"), (DOWN, COLUMN), depth, ragged is not None)))
    emitter.line(*statements("largest = tl.maximum(largest, magnitude(values))"))
    emitter.line(statement("high, low = split_value(values)") if both else statement("high = values.to({part})", part=_PART))
    mask = join_tests(test for test in (bound, is_below(DOWN, padded) if whole > padded else None) if test)
    _store_parts(emitter, parts, variable(COLUMN, places) * padded + variable(DOWN, depth), mask, both)
    if per_span > 1:
        emitter.close(loop("step", per_span))
    else:
        scope = emitter.scopes.pop()
        emitter.scopes[0].lines += scope.lines
    line, span = variable(COLUMN, places), variable("span", spans)
    place = line * spans + span if free else span * places + line
    where = _spread(emitter.address(largest, place, stored=True), place, 1)
    emitter.line(*statements("largest = tl.max(largest, 0)[None, :]"), store(where, Name("largest"), bound))
    constants = [("DEPTH", deep), ("PLACES", wide), *([("SPAN", per_span * deep)] if spans > 1 else [])]
    lines = "of each line" if free else f"in each of {places} lines"
    grid = expression("triton.cdiv({places}, {wide})", places=places, wide=wide) if free else number(-(-places // wide) * spans)
    kernel = Kernel(
        name=name, does=f"fp16 parts of {title}, {depth} values side by side, and the largest of these {lines}.",
        arguments=arguments.list(), sizes=[("places", number(places))] if free else [], constants=constants,
        body=[*_find_places(spans, arguments.largest >= 2**31), *emitter.scopes[0].lines],
        grid=expression("({programs},)", programs=times(grid, spans) if free and spans > 1 else grid), stores=[*parts, largest],
    )  # fmt: skip
    return FreshParts(operand, kernel, parts, largest, free)


def _find_places(spans: int, big: bool) -> list[Statement]:
    """Which places a program has, and which span of the depth."""
    own = expression("tl.program_id(0)")
    own = expression("{own} // {spans}", own=own, spans=spans) if spans > 1 else own
    places = expression("({own} * PLACES + tl.arange(0, PLACES))[None, :]", own=own)
    span = statements("span = tl.program_id(0) % {spans}", spans=spans) if spans > 1 else ()
    return [assign(COLUMN, widen(places, big)), *span]


def _share_out(operand: FreshOperand, usual: int, programs: int) -> tuple[int, int, int, int]:
    """Depth and places of a program at once, its steps along the depth, and how many programs share a depth."""
    deep, wide = _SIDE_BY_SIDE if operand.axis == len(operand.base.shape) - 1 else _APART
    fitting = min(deep, 1 << (operand.padded - 1).bit_length())
    deep, wide = fitting, wide * min(4, deep // fitting)
    chunks = -(-operand.padded // deep)
    per_span = -(-chunks // min(chunks, -(-programs // -(-usual // wide))))
    return deep, wide, per_span, -(-chunks // per_span)


def _make_buffers(operand: FreshOperand, spans: int, both: bool, free: bool) -> tuple[tuple[Buffer, ...], Buffer]:
    """Where the parts lie, and the largest of each span."""
    title, shape, named = operand.base.name or "x", (*operand.others, operand.padded), ("high", "low") if both else ("half",)
    if free:
        parts = tuple(Buffer(shape=shape, dtype=PART, name=f"{title}_{part}") for part in named)
    else:
        parts = (Buffer(shape=(len(named), *shape), dtype=PART, name=f"{title}_parts"),)
    largest = Buffer(shape=(*operand.others, spans) if free else (spans, *operand.others), dtype="int32", name=f"{title}_largest")
    return parts, largest


def _store_parts(emitter: TileEmitter, parts: tuple[Buffer, ...], place: Index, mask: Expression | None, both: bool) -> None:
    """Store the parts of a tile: in a buffer each, or behind each other in one."""
    for which, name in enumerate(("high", "low") if both else ("high",)):
        part = parts[which % len(parts)]
        offset = which * (part.size // 2) if len(parts) == 1 else 0
        emitter.line(store(_spread(emitter.address(part, place + offset, stored=True), place, "DEPTH"), Name(name), mask))


def _spread(address: Expression, place: Index, rows: str | int) -> Expression:
    """The addresses of a tile, all of which are the same along its columns where there is one place alone."""
    return address if COLUMN in place.names else expression("tl.broadcast_to({address}, ({rows}, PLACES))", address=address, rows=rows)


def watch_places(emitter: TileEmitter, fresh: FreshParts, sizes: tuple[int, int, int, int, int], by_column: bool = False) -> None:
    """Lines that find whether parts do for all places of the operand that a tile reads, or for those of each column.

    sizes: of the product.
    """
    operand = fresh.operand
    copies, rows, columns, taps, _ = sizes
    batch, own = variable(BATCH, copies), taps * operand.steps
    spans = fresh.largest.shape[-1 if fresh.free else 0]
    every = variable("every", own * spans)
    tap, down = every % own // operand.steps, every % own % operand.steps * operand.depth
    left = operand.side == "left"
    at = (batch, variable(LINE, rows), tap, down) if left else (batch, tap, down, variable(COLUMN, columns))
    moved, guards = operand.follow(at)
    if own * spans > 1:
        size = 1 << (own * spans - 1).bit_length()
        axis = "every = tl.arange(0, {size})[None, :]" if left else "every = tl.arange(0, {size})[:, None]"
        emitter.line(*statements(axis, size=size))
        emitter.bounds["every"] = is_below("every", own * spans) if size != own * spans else None
    place = fresh.place_largest(every // own, operand.place_last(moved)[:-1])
    largest = emitter.load_at(fresh.largest, place, guards, number(0))
    if own * spans == (rows if left else columns) == 1:
        largest = expression("tl.full((1, 1), {largest}, tl.int32)", largest=largest)
    wide = f"{operand.side}_wide"
    if by_column:
        name = f"{operand.side}_largest"
        watched = "{wide} |= leaves_range({largest}[:, None, :], 0)  # of each column"
        emitter.line(assign(name, largest), *statements(watched, wide=wide, largest=name))
        return
    emitter.line(*statements("{wide} = leaves_range({largest}, {axis})", wide=wide, largest=largest, axis=1 if left else 0))
