"""Kernels that split operands into fp16 parts ahead of a product.

Each line of a parameter along the depth has a power of two of its own, and its parts are kept. Other operands are split in every call as
they are; the greatest values of their places say whether parts do for a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.operands import FreshOperand
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import ACROSS, BATCH, COLUMN, DOWN, LINE, TAP
from tritonsmith.author.compiler.ir.indices import Coordinates, Index, unravel, variable
from tritonsmith.author.compiler.ir.values import Held, Tensor, TensorView
from tritonsmith.author.compiler.kernels.emitter import Arguments
from tritonsmith.author.compiler.kernels.kernel import Buffer, KeptParts, Kernel, fold
from tritonsmith.author.compiler.kernels.product_tiles import INNER, OUTER, ProductTile, TileEmitter
from tritonsmith.author.compiler.kernels.texts import list_texts, show
from tritonsmith.author.types import PART, TRITON_TYPES

_TO_PART = f".to({TRITON_TYPES[PART]})"
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
    kept = KeptParts(f"split_{name}", base, parts, Buffer(shape=(batch, lines), dtype="int32", name=f"{base.name}_exponents"))
    own, line, tap, across = variable(BATCH, batch), variable(LINE, lines), variable(TAP, taps), variable(ACROSS, depth)
    writer = _LineWriter(value, (own, line, tap, across) if left else (own, tap, across, line), (lines, taps, depth, padded))
    pointer = writer.arguments.take(base)
    writer.add_loop(["largest = tl.maximum(largest, magnitude(values))"])
    writer.emitter.line("largest = tl.max(largest, 1)")
    writer.emitter.line("exponent = line_exponent(largest)")
    writer.emitter.line("rough = tl.max((largest >= 0x7F800000).to(tl.int32), 0)  # infinity or NaN")
    place = f"{f'(batch * {lines} + m)' if batch > 1 else 'm'} * {taps * padded} + {f'tap * {padded} + ' if taps > 1 else ''}across"
    inside = f"(m < {lines}) & (across < {padded})"
    stores = [f"tl.store(parts_ptr + {place}, {'high' if both else f'scaled{_TO_PART}'}, mask={inside})"]
    if both:
        stores = ["high, low = split_value(scaled)", *stores, f"tl.store(parts_ptr + {kept.apart} + {place}, low, mask={inside})"]
    seen, lower = "scaled", ""
    if tile.at_once:  # below 2^4, so that the high part times 2^11 is a number of fp16: all three products have the same scale then
        seen, lower = "scaled * 2.0", " - 11"
        stores.append(f"tl.store(parts_ptr + {2 * kept.apart} + {place}, (high.to(tl.float32) * 2048.0){_TO_PART}, mask={inside})")
    test = f"rough = tl.maximum(rough, is_uneven(tl.max(magnitude({seen}), 0)))"
    writer.add_loop([f"scaled = shift(values, exponent[:, None]{lower})", test, *stores])
    blocks = -(-lines // LINES)
    head = [f"batch = tl.program_id(0) // {blocks}"] if batch > 1 else []
    head += [f"line = tl.program_id(0){f' % {blocks}' if batch > 1 else ''} * LINES + tl.arange(0, LINES)", "m = line[:, None]"]
    end = f"tl.store(exponents_ptr + {f'batch * {lines} + ' if batch > 1 else ''}line, mark_rough(exponent, rough), mask=line < {lines})"
    ends = ", and the high ones times 2^11" if tile.at_once else f", with zeros up to whole blocks of {tile.depth} places"
    does = f'"""fp16 parts of {base.name}, each line times a power of two{ends}."""'
    start = "largest = tl.zeros((LINES, PLACES), tl.int32)"
    body = [does, *head, start, *list_texts(writer.emitter.scopes[0].lines), end]
    first = f"def {kept.kernel}({pointer}, parts_ptr, exponents_ptr, LINES: tl.constexpr, PLACES: tl.constexpr):"
    kept.text = "\n".join(["@triton.jit", first, *(one for line in body for one in fold(f"    {line}"))])
    return kept


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
        bounds = {LINE: f"(m < {self.lines})", ACROSS: f"(across < {self.depth})"}
        self.emitter = TileEmitter(self.arguments, lambda one: isinstance(one, Held), bounds, OUTER)

    def add_loop(self, lines: list[str]) -> None:
        """A loop over taps and depth; `values` are those of the lines, 0 beyond the edge."""
        self.emitter.open(INNER)
        start, head = "", f"for tap in range({self.taps}):"
        if self.chunks > 1:
            many = self.taps > 1
            start, head = f"place{f' % {self.chunks}' if many else ''} * PLACES + ", f"for place in range({self.taps * self.chunks}):"
            self.emitter.line(f"tap = place // {self.chunks}") if many else None
        places = "tl.arange(0, PLACES)"
        self.emitter.line(f"across = {f'({start}{places})' if start else places}[None, :]")
        text = self.emitter.read_tile(self.value, self.at, ("LINES", "PLACES"), (LINE, ACROSS), self.depth, True)
        self.emitter.line(f"values = {text}")
        for line in lines:
            self.emitter.line(line)
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
    operand: FreshOperand, usual: int, free: bool, scheme: str, name: str, in_memory: Callable[[Tensor], bool],
    programs: int,
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
    inside = f"(n < {'places' if free else places})" if free or places % wide else ""
    bounds = {COLUMN: inside, DOWN: f"(down < {depth})" if whole > depth else ""}
    emitter = TileEmitter(arguments, in_memory, bounds, OUTER)
    emitter.line("largest = tl.zeros((DEPTH, PLACES), tl.int32)")
    emitter.open(INNER)
    start = ["span * SPAN"] if spans > 1 else []
    start += ["step * DEPTH"] if per_span > 1 else []
    emitter.line(f"down = ({' + '.join([*start, 'tl.arange(0, DEPTH)'])})[:, None]")
    at = list(unravel(variable(COLUMN, places), operand.others))
    at.insert(operand.axis, variable(DOWN, depth))
    emitter.line(f"values = {emitter.read_tile(base, tuple(at), ('DEPTH', 'PLACES'), (DOWN, COLUMN), depth, bool(bounds[DOWN]))}")
    emitter.line("largest = tl.maximum(largest, magnitude(values))")
    emitter.line("high, low = split_value(values)" if both else f"high = values{_TO_PART}")
    mask = " & ".join(text for text in (bounds[COLUMN], f"(down < {padded})" if whole > padded else "") if text)
    _store_parts(emitter, parts, variable(COLUMN, places) * padded + variable(DOWN, depth), mask, both)
    if per_span > 1:
        emitter.close(f"for step in range({per_span}):")
    else:
        scope = emitter.scopes.pop()
        emitter.scopes[0].lines += scope.lines
    line, span = variable(COLUMN, places), variable("span", spans)
    place = line * spans + span if free else span * places + line
    where, mask = _spread(show(emitter.address(largest, place, stored=True)), place, "(1, PLACES)"), bounds[COLUMN]
    emitter.line("largest = tl.max(largest, 0)[None, :]")
    emitter.line(f"tl.store({where}, largest{f', mask={mask}' if mask else ''})")
    own = f"tl.program_id(0){f' // {spans}' if spans > 1 else ''}"
    head = [f"n = ({own} * PLACES + tl.arange(0, PLACES))[None, :]{'.to(tl.int64)' if arguments.largest >= 2**31 else ''}"]
    head += [f"span = tl.program_id(0) % {spans}"] if spans > 1 else []
    constants = [("DEPTH", deep), ("PLACES", wide), *([("SPAN", per_span * deep)] if spans > 1 else [])]
    where = "of each line" if free else f"in each of {places} lines"
    count = f"triton.cdiv({places}, {wide})" if free else str(-(-places // wide) * spans)
    kernel = Kernel.from_text(
        name=name, does=f"fp16 parts of {title}, {depth} values side by side, and the largest of these {where}.",
        arguments=[(arguments.names[id(one)], one) for one in arguments.values], sizes=[("places", str(places))] if free else [],
        constants=constants, lines=[*head, *list_texts(emitter.scopes[0].lines)],
        grid=f"({count}{f' * {spans}' if free and spans > 1 else ''},)", stores=[*parts, largest],
    )  # fmt: skip
    return FreshParts(operand, kernel, parts, largest, free)


def _share_out(operand: FreshOperand, usual: int, programs: int) -> tuple[int, int, int, int]:
    """Depth and places of a program at once, its steps along the depth, and how many count share a depth."""
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


def _store_parts(emitter: TileEmitter, parts: tuple[Buffer, ...], place: Index, mask: str, both: bool) -> None:
    """Store the parts of a tile: in a buffer each, or behind each other in one."""
    for number, name in enumerate(("high", "low") if both else ("high",)):
        part = parts[number % len(parts)]
        offset = number * (part.size // 2) if len(parts) == 1 else 0
        where = _spread(show(emitter.address(part, place + offset, stored=True)), place, "(DEPTH, PLACES)")
        emitter.line(f"tl.store({where}, {name}{f', mask={mask}' if mask else ''})")


def _spread(address: str, place: Index, shape: str) -> str:
    """The addresses of a tile, all of which are the same along its columns where there is one place alone."""
    return address if COLUMN in place.names else f"tl.broadcast_to({address}, {shape})"


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
        emitter.line(f"every = tl.arange(0, {size}){'[None, :]' if left else '[:, None]'}")
        emitter.bounds["every"] = f"(every < {own * spans})" if size != own * spans else ""
    text = show(emitter.load_at(fresh.largest, fresh.place_largest(every // own, operand.place_last(moved)[:-1]), guards, "0"))
    if own * spans == (rows if left else columns) == 1:
        text = f"tl.full((1, 1), {text}, tl.int32)"
    if by_column:
        emitter.line(f"{operand.side}_largest = {text}")
        emitter.line(f"{operand.side}_wide |= leaves_range({operand.side}_largest[:, None, :], 0)  # of each column")
        return
    emitter.line(f"{operand.side}_wide = leaves_range({text}, {1 if left else 0})")
