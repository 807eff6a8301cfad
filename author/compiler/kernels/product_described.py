"""The kernel of a product of 16-bit matrices whose tiles are read by tensor descriptors, in programs that take tiles in turn.

The loop over tiles and the loop over the depth are flattened into one, so that operands of the next tile are read while a tile is stored.
Sums are stored in two halves, each of which needs half the registers. Measured beside the form with pointers: `author/cards/fits.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from tritonsmith.author.compiler.fusing.described import (
    DescribedOperand,
    PairBox,
    describe_operands,
    describe_windows,
    find_box,
    is_aligned,
)  # fmt: skip
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import COLUMN, LINE, ProductSpace
from tritonsmith.author.compiler.ir.code import (
    Binary,
    Call,
    Expression,
    Group,
    Module,
    Name,
    Node,
    Number,
    Statement,
    Tuple,
    number,
)  # fmt: skip
from tritonsmith.author.compiler.ir.indices import Coordinates, ravel, unravel, variable
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import BYTES, TYPE_NAMES, Tensor
from tritonsmith.author.compiler.ir.walk import names_in
from tritonsmith.author.compiler.ir.walk import replace as change_in
from tritonsmith.author.compiler.kernels.emitter import Arguments
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel, PackedWeights
from tritonsmith.author.compiler.kernels.pieces import add, assign, divide, widen
from tritonsmith.author.compiler.kernels.product_grid import BLOCK_M, BLOCK_N, TileEmitter, TileGrid, count_tiles, is_below, write_turn
from tritonsmith.author.compiler.kernels.product_stores import AnySpace, StoreWriter
from tritonsmith.author.compiler.kernels.product_tiles import ProductTile
from tritonsmith.author.compiler.kernels.schemes import accumulate, start_sums

_BIG = 2**31
"""Elements from which on places need numbers of 64 bits."""
_HALF = divide(BLOCK_N, 2)
_NAMES = (LINE, COLUMN, "rows", "above", "left_tiles", "right_tiles", "pid", "group", "height", "row_start", "column_start", "total",
          "left", "right", "halves", "first", "second", "half", "sums")  # fmt: skip
"""Names of the kernel's own."""


class DescribedWriter:
    """Writes the kernel of a region. Its operands can be described (`describe_operands`)."""

    def __init__(self, region: ProductRegion, tile: ProductTile, name: str) -> None:
        self.region, self.tile, self.name = region, tile, name
        self.grid = TileGrid(region.product, tile, region.free_axis)
        self.arguments = Arguments()
        self.arguments.used |= {*_NAMES}

    def write(self) -> Kernel:
        """The kernel."""
        operands = describe_operands(self.region)
        assert operands is not None, "the tile is for operands that can be described"
        _, rows, columns, _, depth = self.region.product.sizes
        lines = self.grid.size(LINE), number(columns)
        ahead = [count_tiles(self.grid)] if self.grid.free == LINE else []
        for side, operand, count, block in zip(("left", "right"), operands, lines, (BLOCK_M, BLOCK_N), strict=True):
            ahead.append(self._describe(f"{side}_tiles", operand, (count, number(depth)), block))
        tail = self._write_stores()
        ahead += tail.made
        body = statements(
            """
            {ahead}
            for pid in tl.range(tl.program_id(0), {tiles}, tl.num_programs(0), flatten=True):  # the next tile is read while one is stored
                {turn}
                {zeros}
                for start in range(0, {depth}, BLOCK_K):
                    {left}
                    {right}
                    {product}
                halves = tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
                first, second = tl.split(halves)
                for half in tl.static_range(2):
                    sums = first if half == 0 else second
                    {stores}
            """,
            ahead=ahead, tiles=self._count_tiles(), turn=write_turn(self.grid), depth=depth,
            zeros=start_sums(self.tile.scheme, expression("(BLOCK_M, BLOCK_N)"), False),
            left=_load("left", operands[0], "row_start"), right=_load("right", operands[1], "column_start"),
            product=accumulate(self.tile.scheme, ("left", "right"), (False, False)), stores=tail.lines,
        )  # fmt: skip
        return self._finish(body, frozenset((*(id(operand.base) for operand in operands), *tail.described)))

    def _finish(self, body: tuple[Statement, ...], described: frozenset[int]) -> Kernel:
        tile, used = self.tile, names_in(Module(body))
        constants = [("BLOCK_M", tile.rows), ("BLOCK_N", tile.columns), ("BLOCK_K", tile.depth)]
        return Kernel(
            name=self.name, does="", arguments=self.arguments.list(), sizes=self.grid.list_sizes(used),
            constants=[*constants, *([("GROUP", tile.group)] if "GROUP" in used else [])], body=body,
            grid=expression("({programs},)", programs=self.grid.programs), stores=list(self.region.stores), warps=tile.warps,
            stages=tile.stages, described=described,
        )  # fmt: skip

    def _describe(self, name: str, operand: DescribedOperand, sizes: tuple[Expression, Expression], block: Expression) -> Statement:
        """The descriptor of an operand of so many lines and places of the depth."""
        shape, tile = [*sizes], [block, Name("BLOCK_K")]
        if operand.turned:
            shape, tile = shape[::-1], tile[::-1]
        return _make_descriptor(name, add(Name(self.arguments.take(operand.base)), operand.start), shape, operand.stride, tile)

    def _count_tiles(self) -> Expression:
        above, beside = (side or number(1) for side in (self.grid.above, self.grid.beside))
        return expression("{above} * {beside}", above=above, beside=beside) if self.grid.free else self.grid.launched

    def _write_stores(self) -> DescribedStores:
        sizes = [value.size for value in (*self.region.reads.values(), *(value.holder for value in self.region.stores))]
        writer = DescribedStores(self.region, self.grid, self.arguments, max(sizes) >= _BIG, "sums")
        writer.write_tile()
        return writer


class DoubleWriter(DescribedWriter):
    """Writes the kernel of a product with two sums: those of a pair of products, or of columns whose number is no power of two.

    A program of the only round has one tile and no loop over tiles. One box of a descriptor has lines of both right operands of a pair, and
    they are multiplied as one. No left operand is reshaped (see `WindowWriter`).
    """

    def __init__(self, region: ProductRegion, tile: ProductTile, name: str) -> None:
        super().__init__(region, tile, name)
        self.box = find_box(region)
        """The right operands of a pair; None where the second sum is of further columns."""
        self.packed = _pack(self.box)
        if self.box is None:
            self.grid = TileGrid(region.product, replace(tile, columns=tile.columns + tile.second, second=0), region.free_axis)
        self.arguments.used |= {*_DOUBLE_NAMES}
        sizes = [value.size for value in (*region.reads.values(), *(value.holder for value in region.stores))]
        self.big = max(sizes) >= _BIG

    def write(self) -> Kernel:
        """The kernel."""
        operands = describe_operands(self.region)
        assert operands is not None, "the tile is for operands that can be described"
        self.operands = operands
        ahead = [count_tiles(self.grid)] if self.grid.free == LINE else []
        ahead += self._describe_all()
        made, tail, described = self._write_pair() if self.box else self._write_columns()
        wide = BLOCK_N if self.box else expression("(BLOCK_N + REST)")
        body = statements(
            """
            {turn}
            {zeros}
            for start in range(0, {depth}, BLOCK_K):
                {product}
            {halves}
            {stores}
            """,
            turn=write_turn(self.grid, wide), zeros=self._start(), depth=self.region.product.sizes[-1], product=self._multiply(),
            halves=statements(_SPLIT_BOX) if self.box else [], stores=tail,
        )  # fmt: skip
        tiles, programs = self._count_tiles(), self.grid.programs
        if tiles == programs:
            lines = [statement("pid = tl.program_id(0)"), *ahead, *made, *body]
        else:
            head = "for pid in tl.range(tl.program_id(0), {tiles}, tl.num_programs(0), flatten=True):\n    {body}"
            lines = [*ahead, *made, *statements(head, tiles=tiles, body=body)]
        right = self.packed.buffer if self.packed else operands[1].base
        kernel = self._finish(tuple(shorten_erf(lines)), frozenset((id(operands[0].base), id(right), *described)))
        more = [] if self.box else [("REST", self.tile.second)]
        return replace(kernel, constants=[*kernel.constants, *more], packed=self.packed)

    def _describe_all(self) -> list[Statement]:
        """The descriptors of the operands."""
        _, rows, columns, _, depth = self.region.product.sizes
        left, right = self.operands
        made = [self._describe("left_tiles", left, (self.grid.size(LINE), number(depth)), BLOCK_M)]
        if self.box is not None:
            base = self.packed.buffer if self.packed else right.base
            made.append(statement(
                "right_tiles = tl.make_tensor_descriptor({base}, [2, {columns}, {depth}], [{apart}, {stride}, 1], [2, BLOCK_N, BLOCK_K])",
                base=add(Name(self.arguments.take(base)), right.start), columns=columns, depth=depth, apart=self.box.apart,
                stride=right.stride,
            ))  # fmt: skip
            return made
        lines = number(columns), number(depth)
        made.append(self._describe("right_tiles", right, lines, BLOCK_N))
        return [*made, self._describe("more_tiles", right, lines, Name("REST"))]

    def _start(self) -> tuple[Statement, ...]:
        """The sums ahead of the loop over the depth."""
        if self.box:
            return statements("total = tl.zeros((BLOCK_M, 2 * BLOCK_N), tl.float32)")
        return statements("total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)\nmore = tl.zeros((BLOCK_M, REST), tl.float32)")

    def _multiply(self) -> list[Statement]:
        """A step of the sums."""
        left = _load("left", self.operands[0], "row_start")
        if self.box:
            return [left, *statements(_MULTIPLY_BOX)]
        right = self.operands[1]
        return [
            left, _load("right", right, "column_start"), statement("total = tl.dot(left, right, total)"),
            _load("right", right, "column_start + BLOCK_N", "more_tiles"), statement("more = tl.dot(left, right, more)"),
        ]  # fmt: skip

    def _write_pair(self) -> tuple[list[Statement], list[Statement], set[int]]:
        """What is done with the sums of a pair: descriptors ahead of all tiles, the lines, and what descriptors store."""
        assert self.region.partner is not None, "it is a pair"
        writer = TileStores(self.region, self.grid, self.arguments, self.big, "total")
        writer.emitter.outcomes[id(self.region.partner), 0] = "more"
        writer.emitter.names["more"] = frozenset((LINE, COLUMN))
        writer.write_tile()
        return writer.made, writer.lines, writer.described

    def _write_columns(self) -> tuple[list[Statement], list[Statement], set[int]]:
        """What is done with the sums of both parts of the columns: the first in halves, then those behind them."""
        first = DescribedStores(self.region, self.grid, self.arguments, self.big, "sums")
        first.write_tile()
        rest = RestStores(self.region, self.grid, self.arguments, self.big, "more")
        rest.write_tile()
        lines = statements(
            """
            halves = tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
            first, second = tl.split(halves)
            for half in tl.static_range(2):
                sums = first if half == 0 else second
                {stores}
            {rest}
            """,
            stores=first.lines, rest=rest.lines,
        )  # fmt: skip
        return [*first.made, *rest.made], [*lines], first.described | rest.described


_DOUBLE_NAMES = ("more", "more_tiles")
"""Further names of a kernel with two sums."""
_MULTIPLY_BOX = """
right = right_tiles.load([0, column_start, start]).reshape(2 * BLOCK_N, BLOCK_K).T
total = tl.dot(left, right, total)
"""
_SPLIT_BOX = """
total, more = tl.split(tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N)), (0, 2, 1)))
"""


def _pack(box: PairBox | None) -> PackedWeights | None:
    """The buffer of the two weights of a pair; None where they lie in one tensor."""
    if box is None or not box.weights:
        return None
    first = box.weights[0]
    return PackedWeights(box.weights, Buffer(shape=(len(box.weights), *first.shape), dtype=first.dtype, name="weights"))


def shorten_erf(lines: Iterable[Statement]) -> list[Statement]:
    """The statements with `one_plus_erf(x)` in the place of `1.0 + tl.erf(x)`: a third of the instructions, enough for 16 bits."""
    erf = expression("tl.erf")

    def change(part: Node) -> Node:
        match part:
            case Binary(left=Number(value=1.0), operator="+", right=Call(function=function, arguments=arguments)) if function == erf:
                return Call(Name("one_plus_erf"), arguments)
            case Group(inner=Call(function=Name(name="one_plus_erf"))):
                return part.inner
        return part

    return [change_in(line, change) for line in lines]


class WindowWriter(DescribedWriter):
    """Writes the kernel of a convolution. Its operands can be described (`describe_windows`).

    A tile has filters as rows and places as columns. Its left operand is as a descriptor gave it, and the box of places is the right one:
    a left operand that was reshaped is held in registers. On Hopper the assembler of Triton 3.7 and before (ptxas below 13.3)
    may write such registers while tensor cores still read them.
    """

    def write(self) -> Kernel:
        """The kernel."""
        windows, boxes = describe_windows(self.region), self.tile.boxes
        assert windows is not None and boxes is not None, "the tile is for operands that can be described"
        self.windows, self.boxes = windows, boxes
        self.arguments.used |= {*_WINDOW_NAMES}
        body = statements(
            """
            {described}
            {places}
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            {zeros}
            for step in range(0, {depth}, BLOCK_K):
                {multiplied}
            {stores}
            {more}
            """,
            described=self._describe_both(), places=self._find_box(), depth=math.prod(windows.weights.shape[1:]),
            zeros=statements("more = tl.zeros((REST, BLOCK_N), tl.float32)") if boxes.rest else [], multiplied=self._multiply(),
            stores=self._write_part("total", boxes.filters), more=self._write_part("more", boxes.rest, further=True) if boxes.rest else [],
        )  # fmt: skip
        sides = [("BLOCK_M", boxes.filters), *([("REST", boxes.rest)] if boxes.rest else []), ("BLOCK_N", boxes.places)]
        return Kernel(
            name=self.name, does="", arguments=self.arguments.list(), sizes=[], constants=[*sides, ("BLOCK_K", self.tile.depth)], body=body,
            grid=expression("({programs},)", programs=self._count_filters() * math.prod(self._count_boxes())),
            stores=list(self.region.stores), warps=self.tile.warps, stages=self.tile.stages,
            described=frozenset((id(windows.image), id(windows.weights))),
        )  # fmt: skip

    def _describe_both(self) -> list[Statement]:
        """The descriptors of the image and of the filters."""
        (images, high, wide, channels), (filters, *window) = self.windows.image.shape, self.windows.weights.shape
        image, weights = self.arguments.take(self.windows.image), self.arguments.take(self.windows.weights)
        strides = [number(high * wide * channels), number(wide * channels), number(channels), number(1)]
        box = [*map(number, (self.boxes.images, self.boxes.high, self.boxes.wide)), Name("BLOCK_K")]
        made = [statement(
            "images = tl.make_tensor_descriptor({image}, [{*shape}], [{*strides}], [{*box}])",
            image=image, shape=[*map(number, (images, high, wide, channels))], strides=strides, box=box,
        )]  # fmt: skip
        depth = math.prod(window)
        for name, side in (("filters", BLOCK_M), ("more_filters", Name("REST")))[: 2 if self.boxes.rest else 1]:
            made.append(_make_descriptor(name, Name(weights), [number(filters), number(depth)], depth, [side, Name("BLOCK_K")]))
        return made

    def _multiply(self) -> list[Statement]:
        """A step of the sums: one tap, and some channels."""
        _, _, across, channels = self.windows.weights.shape
        lines = statements(
            """
            tap = step // {channels}
            right = images.load([image, {down}, {beside}, step % {channels}]).reshape(BLOCK_N, BLOCK_K).T
            total = tl.dot(filters.load([filter, step]), right, total)
            """,
            channels=channels, down=_shift("down", expression("tap // {across}", across=across), self.windows.padding[0]),
            beside=_shift("across", expression("tap % {across}", across=across), self.windows.padding[1]),
        )  # fmt: skip
        more = statements("more = tl.dot(more_filters.load([filter + BLOCK_M, step]), right, more)")
        return [*lines, *(more if self.boxes.rest else ())]

    def _count_filters(self) -> int:
        return -(-self.windows.weights.shape[0] // (self.boxes.filters + self.boxes.rest))

    def _count_boxes(self) -> tuple[int, int, int]:
        return self.boxes.count(self.windows.image.shape[0], self.windows.outputs)

    def _find_box(self) -> list[Statement]:
        """The first filter of a program, and the image and the place where its box begins. Neighbouring programs share a box."""
        filters, boxes = self._count_filters(), self.boxes
        counts = self._count_boxes()
        pid = variable("pid", filters * math.prod(counts))
        box, part = unravel(pid, (math.prod(counts), filters))
        image, down, across = unravel(box, counts)
        sides = ((part, boxes.filters + boxes.rest), (image, boxes.images), (down, boxes.high), (across, boxes.wide))
        named = zip(("filter", "image", "down", "across"), sides, strict=True)
        return [statement("pid = tl.program_id(0)"), *(assign(name, (place * side).code) for name, (place, side) in named)]

    def _write_part(self, sums: str, count: int, further: bool = False) -> list[Statement]:
        """What is done with the sums of so many filters; `further`: those behind the first ones."""
        boxes, filters = self.boxes, self.windows.weights.shape[0]
        size = Name("REST" if further else "BLOCK_M")
        sizes = [value.size for value in (*self.region.reads.values(), *(value.holder for value in self.region.stores))]
        big = max(sizes) >= _BIG
        grid = replace(self.grid, tile=replace(self.tile, rows=count, columns=boxes.places))
        writer = StoreWriter(self.region, grid, self.arguments, big, sums)
        writer.shape = Tuple((size, BLOCK_N))
        exact = filters % (boxes.filters + boxes.rest) == 0
        writer.emitter.bounds = {
            LINE: None if exact else is_below(LINE, filters), COLUMN: None if self._is_whole() else Name("inside"),
        }  # fmt: skip
        first = expression("filter + BLOCK_M" if further else "filter")
        places = expression("({first} + tl.arange(0, {size}))[:, None]", first=first, size=size)
        return [assign(LINE, widen(places, big)), *([] if further else self._number_places(big)), *writer.write()]

    def _is_whole(self) -> bool:
        """Whether boxes have no places beyond the images."""
        sizes = (self.windows.image.shape[0], *self.windows.outputs)
        return all(size % side == 0 for size, side in zip(sizes, (self.boxes.images, self.boxes.high, self.boxes.wide), strict=True))

    def _number_places(self, big: bool) -> list[Statement]:
        """The places of a box among those of all images, and which of them there are."""
        boxes, (high, wide) = self.boxes, self.windows.outputs
        if self._is_whole() and boxes.wide == wide and (boxes.high == high or boxes.images == 1):
            first = expression("(image * {high} + down) * {wide}", high=high, wide=wide)
            return [assign(COLUMN, widen(expression("({first} + tl.arange(0, BLOCK_N))[None, :]", first=first), big))]
        lines = statements(
            """
            place = tl.arange(0, BLOCK_N)[None, :]
            box_image = image + place // {area}
            box_down = down + place // {wide} % {high}
            box_across = across + place % {wide}
            """,
            area=boxes.high * boxes.wide, wide=boxes.wide, high=boxes.high,
        )  # fmt: skip
        if not self._is_whole():
            test = "inside = (box_image < {n}) & (box_down < {high}) & (box_across < {wide})"
            lines += statements(test, n=self.windows.image.shape[0], high=high, wide=wide)
        places = expression("(box_image * {high} + box_down) * {wide} + box_across", high=high, wide=wide)
        return [*lines, assign(COLUMN, widen(places, big))]


_WINDOW_NAMES = ("images", "filters", "more_filters", "image", "filter", "down", "across", "tap", "step", "more", "place", "box_image",
                 "box_down", "box_across", "inside")  # fmt: skip
"""Further names of a convolution's kernel."""


def _shift(start: str, tap: Expression, rim: int) -> Expression:
    """Where a tap reads along an axis."""
    place = expression("{start} + {tap}", start=Name(start), tap=tap)
    return expression("{place} - {rim}", place=place, rim=rim) if rim else place


class DescribedStores(StoreWriter):
    """Writes what is done with half a tile's sums, the one of number `half`; results of 16 bits are stored by descriptors."""

    shape = Tuple((BLOCK_M, _HALF))
    wide: Expression = _HALF
    """Columns that it has."""
    first: Expression = expression("column_start + half * (BLOCK_N // 2)")
    """The first of them."""
    made: list[Statement]
    """The descriptors, ahead of all tiles."""
    lines: list[Statement]
    described: set[int]
    """The results that are stored by descriptors, by identity."""

    def write_tile(self) -> None:
        """Write the lines."""
        self.made, self.described = [], set()
        places = statements(
            "{m} = {line}\n{n} = {column}", m=LINE, n=COLUMN,
            line=widen(expression("(row_start + tl.arange(0, BLOCK_M))[:, None]"), self.big),
            column=widen(expression("({first} + tl.arange(0, {wide}))[None, :]", first=self.first, wide=self.wide), self.big),
        )  # fmt: skip
        lines = self.write()
        used = names_in(Module(tuple(lines)))
        self.lines = [*(place for place, name in zip(places, (LINE, COLUMN), strict=True) if name in used), *lines]

    def _store(self, emitter: TileEmitter, value: Tensor, space: AnySpace, at: Coordinates, shape: Expression) -> None:
        _, rows, columns, _, _ = self.region.product.sizes
        place = variable(LINE, rows) * columns + variable(COLUMN, columns)
        whole = isinstance(space, ProductSpace) and value.spot is None and ravel(at, value.shape) == place
        if not whole or BYTES.get(value.dtype) != 2 or not is_aligned(columns):
            return super()._store(emitter, value, space, at, shape)
        element = emitter.read(value, at, space.guards)
        if emitter.depends(element) != {LINE, COLUMN}:
            return super()._store(emitter, value, space, at, shape)
        pointer = self.arguments.take(value, stored=True)
        name = self.arguments.name(f"{pointer.removesuffix('_ptr')}_tiles")
        self.described.add(id(value))
        self.made.append(_make_descriptor(name, Name(pointer), [self.grid.size(LINE), number(columns)], columns, [BLOCK_M, self.wide]))
        start = expression("[row_start, {first}]", first=self.first)
        emitter.line(statement("{tiles}.store({start}, {x}.to({own}))", tiles=name, start=start, x=element, own=TYPE_NAMES[value.dtype]))
        return None


class TileStores(DescribedStores):
    """The same with a whole tile's sums."""

    shape = Tuple((BLOCK_M, BLOCK_N))
    wide = BLOCK_N
    first = Name("column_start")


class RestStores(DescribedStores):
    """The same with the sums of columns behind the others."""

    shape = Tuple((BLOCK_M, Name("REST")))
    wide = Name("REST")
    first = expression("column_start + BLOCK_N")


def _make_descriptor(name: str, pointer: Expression, shape: list[Expression], stride: int, tile: list[Expression]) -> Statement:
    made = expression("tl.make_tensor_descriptor({pointer}, [{*shape}], [{stride}, 1], [{*tile}])",
                      pointer=pointer, shape=shape, stride=stride, tile=tile)  # fmt: skip
    return assign(name, made)


def _load(side: str, operand: DescribedOperand, start: str, tiles: str = "") -> Statement:
    """The statement that reads a tile of an operand: rows and depth for the left one, depth and columns for the right one."""
    places = [expression(start), Name("start")]
    tile = expression("{tiles}.load([{*places}])", tiles=tiles or f"{side}_tiles", places=places[::-1] if operand.turned else places)
    return assign(side, tile if operand.turned == (side == "right") else expression("{tile}.T", tile=tile))
