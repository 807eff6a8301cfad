"""The kernel of a product of few rows whose weights are computed from whole numbers of 8 or 4 bits.

A program has some rows of the weights, all rows of the other operand, and the whole depth, so nothing is joined across programs. Each warp
multiplies a chunk of the depth of its own: `tl.dot` of three axes. Whole numbers become 16-bit floats in registers, which is exact. The sum
of a chunk is in fp32, and is multiplied by the chunk's scale, which is read a step ahead.

Weights are the left operand and lie in registers. A product of three axes is `mma.sync`, which has read its registers when it returns.
A product of two axes and 64 rows would be `wgmma` on Hopper, which reads them while the loop goes on.
"""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.integers import (
    BOUNDS,
    CHUNK,
    FOLLOWING,
    ROW,
    UNIT,
    WeightPart,
    is_impossible,
    is_short,
    locate_rows,
    place_depth,
    place_pair,
)
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import ACROSS, COLUMN, DOWN, LINE
from tritonsmith.author.compiler.ir.code import Assign, Expression, Name, Statement
from tritonsmith.author.compiler.ir.indices import Coordinates, Guard
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import TYPE_NAMES, Joined, Tensor, list_parts
from tritonsmith.author.compiler.kernels.emitter import Arguments, Found
from tritonsmith.author.compiler.kernels.kernel import Kernel
from tritonsmith.author.compiler.kernels.pieces import assign, loop, widen
from tritonsmith.author.compiler.kernels.product_grid import BLOCK_M, BLOCK_N, TileEmitter, TileGrid, is_below, write_places
from tritonsmith.author.compiler.kernels.product_stores import StoreWriter
from tritonsmith.author.compiler.kernels.product_tiles import ProductTile

_BIG = 2**31
"""Elements from which on places need numbers of 64 bits."""
_NAMES = (LINE, COLUMN, CHUNK, FOLLOWING, ROW, UNIT, ACROSS, DOWN, "pid", "first", "total", "part", "values", "values_1", "lot", "lot_1",
          "sums", "weights", "weights_1")  # fmt: skip
"""Names of the kernel's own."""
_OUTER = frozenset((ROW, UNIT, ACROSS, DOWN))
_SHAPE = "(CHUNKS, {rows}, {columns})"


class IntegerWriter:
    """Writes the kernel of a region. Its weights are computed from whole numbers (`read_integers`)."""

    def __init__(self, region: ProductRegion, tile: ProductTile, name: str) -> None:
        assert tile.integers is not None, "the tile is for such weights"
        self.region, self.tile, self.name, self.weights = region, tile, name, tile.integers
        self.grid = TileGrid(region.product, tile)
        self.arguments = Arguments()
        self.arguments.used |= {*_NAMES}
        self.steps = self.weights.count // tile.chunks
        self.two = len(self.weights.parts) > 1
        hints = [value.name or "scale" for value, _ in self.weights.ahead]
        names = [(self.arguments.name(f"{hint}_now"), self.arguments.name(f"{hint}_next")) for hint in hints]
        self.ahead = dict(zip(self.weights.ahead, names, strict=True))

    def write(self) -> Kernel:
        """The kernel."""
        sizes = [value.size for value in (*self.region.reads.values(), *(value.holder for value in self.region.stores))]
        big = max(sizes) >= _BIG
        places = write_places(self.grid, big, BLOCK_M, BLOCK_N)
        sums = self._sum()
        scales = self._scale_late() if self.weights.late else []
        tail = StoreWriter(self.region, self.grid, self.arguments, big).write()
        body = [
            *statements("pid = tl.program_id(0)"), *self._write_ranges(big), *sums,
            statement("total = tl.trans(tl.sum(total, axis=0))"), *places, *scales, *tail,
        ]  # fmt: skip
        sides = [("BLOCK_M", self.tile.rows), ("BLOCK_N", self.tile.columns), ("CHUNKS", self.tile.chunks), ("CHUNK", self.tile.depth)]
        return Kernel(
            name=self.name, does="", arguments=self.arguments.list(), sizes=[], constants=sides, body=body,
            grid=expression("({programs},)", programs=self.grid.launched), stores=list(self.region.stores), warps=self.tile.warps,
            stages=self.tile.stages,
        )  # fmt: skip

    def _write_ranges(self, big: bool) -> list[Statement]:
        """Rows, columns and places of a chunk along the axes of the loop's tiles."""
        first = expression("pid * BLOCK_N + tl.arange(0, BLOCK_N)") if self.grid.beside else expression("tl.arange(0, BLOCK_N)")
        pair = self.two and self.weights.interleaved
        row = "tl.arange(0, BLOCK_M)[None, :, None]" if pair else "tl.arange(0, BLOCK_M)[None, None, :]"
        across = "tl.arange(0, 2 * CHUNK)[None, None, :]" if pair else "tl.arange(0, CHUNK)[None, :, None]"
        return [
            assign(UNIT, widen(expression("({first})[None, :, None]", first=first), big)), assign(ROW, widen(expression(row), big)),
            assign(ACROSS, expression(across)), assign(DOWN, expression("tl.arange(0, CHUNK)[None, None, :]")),
        ]  # fmt: skip

    def _open(self, outer: frozenset[str]) -> IntegerEmitter:
        """What reads tiles of the loop."""
        known = self.grid.list_bounds()
        sizes = {LINE: self.region.product.sizes[1], COLUMN: self.region.product.sizes[2]}
        bounds = {name: is_below(name, sizes[axis]) if known[axis] is not None else None for name, axis in BOUNDS}
        return IntegerEmitter(self.arguments, lambda value: id(value) in self.region.reads, bounds, outer)

    def _sum(self) -> list[Statement]:
        """The loop over the depth, from which `total` comes: a sum for each chunk of a step."""
        emitter = self._open(_OUTER)
        emitter.line(statement("total = tl.zeros((CHUNKS, BLOCK_N, BLOCK_M), tl.float32)"), *self._read_first())
        emitter.ahead = {(id(value), at): now for (value, at), (now, _) in self.ahead.items()}
        emitter.open(frozenset((CHUNK, FOLLOWING)))
        emitter.line(assign(CHUNK, _list_chunks(Name("first"))))
        self._read_rows(emitter)
        for title, part in zip(("weights", "weights_1"), self.weights.parts, strict=False):
            emitter.line(assign(title, self._read_element(emitter, *part.element)))
        following = self._read_next(emitter) if self.steps > 1 else []
        emitter.line(*self._multiply(emitter), *following)
        emitter.close(loop("first", 0, self.weights.count, Name("CHUNKS")))
        return emitter.scopes[0].lines

    def _read_first(self) -> list[Statement]:
        """Lines that read scales and offsets of the first step."""
        if not self.ahead:
            return []
        emitter = self._open(_OUTER | {CHUNK})
        emitter.line(assign(CHUNK, expression("tl.arange(0, CHUNKS)[:, None, None]")))
        for (value, at), (now, _) in self.ahead.items():
            emitter.line(assign(now, emitter.take_last(emitter.read(value, at))))
        return emitter.scopes[0].lines

    def _read_next(self, emitter: IntegerEmitter) -> list[Statement]:
        """Add lines that read scales and offsets of the next step; returns those which have it take their places."""
        if self.ahead:
            first = expression("(first + CHUNKS) % {count}", count=self.weights.count)
            emitter.line(assign(FOLLOWING, _list_chunks(first)))
        for (value, at), (_, coming) in self.ahead.items():
            emitter.line(assign(coming, emitter.take_last(emitter.read(value, self.weights.move(at)))))
        return [assign(now, Name(coming)) for now, coming in self.ahead.values()]

    def _scale_late(self) -> list[Statement]:
        """Lines that multiply the finished sums by scales which are the same for the whole depth."""
        part = self.weights.parts[0]
        if not part.scales:
            return []
        emitter = self._open(frozenset((UNIT,)))
        emitter.line(assign(UNIT, Name(COLUMN)))
        for value, at in part.scales:
            emitter.line(statement("total *= {scale}", scale=emitter.read(value, at)))
        return emitter.scopes[0].lines

    def _read_rows(self, emitter: IntegerEmitter) -> None:
        """Lines that read the other operand, as `values` and `values_1`: [chunk, place, row]."""
        product, weights = self.region.product, self.weights
        if self.two and weights.interleaved:
            tile = emitter.read_tensor(product.source, locate_rows(product, place_pair(weights.chunk, weights.count)))
            shape = expression(_SHAPE, rows=BLOCK_M, columns=expression("2 * CHUNK"))
            emitter.line(*statements(
                """
                lot = {tile}
                lot, lot_1 = tl.split(tl.reshape(lot, (CHUNKS, BLOCK_M, CHUNK, 2)))
                values = tl.permute(lot, (0, 2, 1))
                values_1 = tl.permute(lot_1, (0, 2, 1))
                """,
                tile=_spread(tile, emitter, {CHUNK, ROW, ACROSS}, shape, weights.count),
            ))  # fmt: skip
            return
        shape = expression(_SHAPE, rows=Name("CHUNK"), columns=BLOCK_M)
        for number_ in range(len(weights.parts)):
            place = place_depth(weights.chunk, weights.count, len(weights.parts), number_, False, ACROSS)
            tile = emitter.read_tensor(product.source, locate_rows(product, place))
            emitter.line(assign(_title("values", number_), _spread(tile, emitter, {CHUNK, ROW, ACROSS}, shape, weights.count)))

    def _read_element(self, emitter: IntegerEmitter, value: Tensor, at: Coordinates) -> Expression:
        """A tile of weights [chunk, column, place], as tensor cores take it."""
        element = emitter.read(value, at)
        shape = expression(_SHAPE, rows=BLOCK_N, columns=Name("CHUNK"))
        tile = _spread((element, emitter.depends(element)), emitter, {CHUNK, UNIT, DOWN}, shape, self.weights.count)
        tile = expression("{x}.to(tl.int8)", x=tile) if is_short(value) else tile
        return expression("{x}.to({dtype})", x=tile, dtype=TYPE_NAMES[self.region.product.right.dtype])

    def _multiply(self, emitter: IntegerEmitter) -> list[Statement]:
        """Lines that multiply, and add to `total`."""
        pairs = [("weights", "values"), ("weights_1", "values_1")][: len(self.weights.parts)]
        if self.weights.late:
            return [statement("total = tl.dot({a}, {b}, total)", a=a, b=b) for a, b in pairs]
        if not self.weights.alike:
            return [
                line for part, (a, b) in zip(self.weights.parts, pairs, strict=True)
                for line in (statement("part = tl.dot({a}, {b})", a=a, b=b), *self._add_part(emitter, part, [b]))
            ]  # fmt: skip
        lines = [statement("part = tl.dot({a}, {b})", a=a, b=b) if place == 0 else statement("part = tl.dot({a}, {b}, part)", a=a, b=b)
                 for place, (a, b) in enumerate(pairs)]  # fmt: skip
        return [*lines, *self._add_part(emitter, self.weights.parts[0], [b for _, b in pairs])]

    def _add_part(self, emitter: IntegerEmitter, part: WeightPart, values: list[str]) -> list[Statement]:
        """Lines that lessen the sums of chunks by their offset times the sum of the values, scale them, and add them."""
        lines: list[Statement] = []
        total: Expression = Name("part")
        if part.offset is not None:
            for place, name in enumerate(values):
                sums = expression("tl.sum({x}.to(tl.float32), axis=1)[:, None, :]", x=name)
                lines.append(assign("sums", expression("sums + {x}", x=sums) if place else sums))
            total = expression("({part} - {offset} * sums)", part=total, offset=emitter.read(*part.offset))
        for value, at in part.scales:
            total = expression("{total} * {scale}", total=total, scale=emitter.read(value, at))
        return [*lines, statement("total += {x}  # in fp32", x=total)]


class IntegerEmitter(TileEmitter):
    """Reads tiles of three axes; of joined values only the part that a place can lie in."""

    ahead: dict[tuple[int, Coordinates], str] = {}  # noqa: RUF012  # each has its own, if any
    """By value and place: the name of what was read a step ahead."""

    def read(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...] = ()) -> Expression:
        """The name of an element, or a number."""
        name = self.ahead.get((id(value), at))
        return Name(name) if name else super().read(value, at, guards)

    def take_last(self, node: Expression) -> Expression:
        """What the last line gives the name `node`, without that line; the name itself where it is given elsewhere."""
        scope = self.scopes[-1]
        last = scope.lines[-1] if scope.lines else None
        if not isinstance(last, Assign) or last.targets != (node,) or last.value is None:
            return node
        scope.lines.pop()
        scope.known = {key: name for key, name in scope.known.items() if name != node}
        return last.value

    def read_tensor(self, value: Tensor, at: Coordinates) -> Found:
        """A tile of 16-bit values as they are, and the variables that it depends on."""
        self.as_stored = True
        node = self.read(value, at)
        self.as_stored = False
        return self.take_last(node), self.depends(node)

    def _join(self, value: Joined, at: Coordinates, guards: tuple[Guard, ...]) -> Found:
        possible = [(part, moved) for part, moved, own in list_parts(value, at) if not any(map(is_impossible, own))]
        if len(possible) == 1:
            node = self.read(*possible[0], guards)
            return node, self.depends(node)
        return super()._join(value, at, guards)


def _list_chunks(first: Expression) -> Expression:
    """The chunks of a step, the first of which is `first`."""
    return expression("{first} + tl.arange(0, CHUNKS)[:, None, None]", first=first)


def _title(name: str, number_: int) -> str:
    return f"{name}_{number_}" if number_ else name


def _spread(tile: Found, emitter: IntegerEmitter, names: set[str], shape: Expression, count: int) -> Expression:
    """A tile in its whole shape, where it is the same along an axis."""
    node, depends = tile
    needed = names - ({CHUNK} if count == 1 else set())
    return node if needed <= depends else expression("tl.broadcast_to({x}, {shape})", x=node, shape=shape)
