"""Which tile of a product a program has, and how it reads its operands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

from tritonsmith.author.compiler.fusing.space import ACROSS, BATCH, COLUMN, DOWN, LINE, TAP
from tritonsmith.author.compiler.ir.code import Assign, Binary, Expression, Group, Name, Number, Statement, number
from tritonsmith.author.compiler.ir.indices import Coordinates, Guard, Index
from tritonsmith.author.compiler.ir.precedence import tidy
from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import TYPE_NAMES, Formula, MatrixProduct, Tensor, TensorView
from tritonsmith.author.compiler.ir.walk import iterate
from tritonsmith.author.compiler.kernels.emitter import Emitter, Found
from tritonsmith.author.compiler.kernels.pieces import add, assign, divide, join_tests, reads, times, widen
from tritonsmith.author.compiler.kernels.product_tiles import ProductTile

OUTER = frozenset((BATCH, LINE, COLUMN))
"""Variables of a product's kernel that its loop does not change."""
INNER = frozenset((TAP, ACROSS, DOWN))
"""Variables of the loop."""
_AXES = (BATCH, LINE, COLUMN)
SIZES = {BATCH: "batches", LINE: "rows", COLUMN: "columns"}
"""By variable: the argument for its size."""
BLOCK_M, BLOCK_N = Name("BLOCK_M"), Name("BLOCK_N")
"""Rows and columns of a tile, as kernels know them."""
_LONG = 80
"""Characters of a mask that gets a line of its own."""


@dataclass(frozen=True)
class TileGrid:
    """The tiles of a product's result; along one axis their number may follow from a size that the kernel is given."""

    product: MatrixProduct
    tile: ProductTile
    free: str = ""
    """The variable of that axis."""

    def size(self, axis: str) -> Expression:
        """How many products, rows or columns there are."""
        return Name(SIZES[axis]) if axis == self.free else number(self._count(axis))

    def _count(self, axis: str) -> int:
        return self.product.sizes[_AXES.index(axis)]

    @property
    def above(self) -> Expression | None:
        """Tiles above each other; None for one."""
        return self._count_tiles(LINE, self.tile.rows, "above")

    @property
    def beside(self) -> Expression | None:
        """Tiles beside each other; None for one."""
        return self._count_tiles(COLUMN, self.tile.columns, "beside")

    def _count_tiles(self, axis: str, block: int, name: str) -> Expression | None:
        if axis == self.free:
            return Name(name)
        count = -(-self._count(axis) // block)
        return number(count) if count > 1 else None

    def list_sizes(self, used: set[str]) -> list[tuple[str, Expression]]:
        """The size that the kernel is given and what forward gives for it, where it is among the names that the kernel uses."""
        name = SIZES.get(self.free)
        return [] if name is None or name not in used else [(name, number(self._count(self.free)))]

    def list_bounds(self, folded: int = 1, together: int = 1) -> dict[str, Expression | None]:
        """Conditions under which rows and columns are in range; None where they always are.

        Args:
            folded: rows of the sums that are one row of the result.
            together: columns of the sums that are one number.
        """
        _, rows, columns, _, _ = self.product.sizes
        sides = ((LINE, rows // folded, self.tile.rows // folded),
                 (COLUMN, columns * folded // together, self.tile.columns * folded // together))  # fmt: skip
        bounds = {name: is_below(name, size) if size % block else None for name, size, block in sides}
        if self.free in bounds:
            fewer, more = (folded, 1) if self.free == LINE else (together, folded)
            size = Name(SIZES[self.free])
            bounds[self.free] = is_below(self.free, divide(size, fewer) if fewer > 1 else times(size, more) if more > 1 else size)
        return bounds

    @property
    def launched(self) -> Expression:
        """The number of programs as forward computes it."""
        factor, free = 1, None
        for axis, count, block in zip(_AXES, self.product.sizes, (1, self.tile.rows, self.tile.columns), strict=False):
            if axis == self.free and block > 1:
                free = expression("triton.cdiv({count}, {block})", count=count, block=block)
            else:
                factor *= -(-count // block)
        if free is None:
            return number(factor)
        return times(free, factor) if factor > 1 else free

    @property
    def programs(self) -> Expression:
        """The number of programs that take tiles in turn, as forward computes it."""
        launched, most = self.launched, self.tile.programs
        if isinstance(launched, Number):
            return number(min(int(launched.value), most))
        return expression("min({launched}, {most})", launched=launched, most=most)


def is_below(name: str, size: Expression | int) -> Expression:
    """The condition `(name < size)`."""
    return expression("({name} < {size})", name=name, size=size)


def write_head(grid: TileGrid, big: bool) -> list[Statement]:
    """Which tile a program has: GROUP tiles above each other are done one after the other."""
    product, above, beside = grid.product, grid.above, grid.beside
    body = [statement("pid = tl.program_id(0)")]
    if grid.free in (LINE, COLUMN):
        body.append(count_tiles(grid))
    if product.sizes[0] > 1:
        count = grid.size(BATCH) if product.interleaved else _multiply(above, beside)
        words = ("%", "//") if product.interleaved else ("//", "%")
        own, rest = (tidy(Binary(Name("pid"), word, count)) for word in words)
        body += statements("batch = {own}\npid = {rest}", own=widen(own, big), rest=rest)
    return [*body, *_write_group(grid), *write_places(grid, big, BLOCK_M, BLOCK_N)]


def _write_group(grid: TileGrid) -> list[Statement]:
    """The group of tiles that a program's is one of, and how many of them lie above each other."""
    above, beside = grid.above, grid.beside
    if not above or not beside:
        return []
    return [*statements(
        "group = pid // (GROUP * {beside})\nheight = tl.minimum({above} - group * GROUP, GROUP)", above=above, beside=beside,
    )]  # fmt: skip


def write_turn(grid: TileGrid, wide: Expression = BLOCK_N) -> list[Statement]:
    """The first row and column of the tile `pid` of a program that takes tiles in turn; `wide`: columns of a tile."""
    first, second = _number_tile(grid)
    starts = [expression("{number} * {block}", number=number_, block=block) if number_ else number(0)
              for number_, block in ((first, BLOCK_M), (second, wide))]  # fmt: skip
    return [*_write_group(grid), assign("row_start", starts[0]), assign("column_start", starts[1])]


def count_tiles(grid: TileGrid) -> Statement:
    """The number of tiles along the axis whose size the kernel is given."""
    name, block = ("above", BLOCK_M) if grid.free == LINE else ("beside", BLOCK_N)
    return statement("{name} = tl.cdiv({size}, {block})", name=name, size=SIZES[grid.free], block=block)


def _multiply(*counts: Expression | None) -> Expression:
    """The number of tiles of one product."""
    whole = math.prod(int(count.value) for count in counts if isinstance(count, Number))
    named = [count for count in counts if count is not None and not isinstance(count, Number)]
    return reduce(lambda left, right: tidy(Binary(left, "*", right)), [*named, *([number(whole)] if whole > 1 or not named else [])])


def write_places(grid: TileGrid, big: bool, high: Expression, wide: Expression) -> list[Statement]:
    """The rows and columns of a program, of which it has `high` and `wide`."""
    first, second = _number_tile(grid)
    rows = expression("{places}[:, None]", places=_list_places(first, high))
    columns = expression("{places}[None, :]", places=_list_places(second, wide))
    return [assign(LINE, widen(rows, big)), assign(COLUMN, widen(columns, big))]


def _number_tile(grid: TileGrid) -> tuple[Expression | None, Expression | None]:
    """Which tile from above, and which from the left, a program has; None for the only one."""
    above, beside = grid.above, grid.beside
    if above and beside:
        first = expression("group * GROUP + pid % (GROUP * {beside}) % height", beside=beside)
        return first, expression("(pid % (GROUP * {beside}) // height)", beside=beside)
    return Name("pid") if above else None, Name("pid") if beside else None


def _list_places(start: Expression | None, block: Expression) -> Expression:
    if start is None:
        return expression("tl.arange(0, {block})", block=block)
    step = Group(block) if isinstance(block, Binary) else block
    return expression("{start} * {step} + tl.arange(0, {block})", start=start, step=step, block=block)


def unfold_sums(grid: TileGrid, big: bool) -> list[Statement]:
    """Statements that lay sums of several rows beside each other, where they are neighbours in the result."""
    folded = grid.product.folded
    if folded == 1:
        return []
    high, wide = divide(BLOCK_M, folded), times(BLOCK_N, folded)
    unfolded = statements(
        """
        total = tl.permute(tl.reshape(total, ({high}, {folded}, BLOCK_N)), (0, 2, 1))  # neighbours in the result
        total = tl.reshape(total, ({high}, {wide}))
        """,
        high=high, wide=wide, folded=folded,
    )  # fmt: skip
    return [*unfolded, *write_places(grid, big, high, wide)]


class TileEmitter(Emitter):
    """Reads tiles: what of an address or a mask does not change in the loop is computed ahead of it; 16-bit operands stay as they are."""

    as_stored = False
    """Whether 16-bit values are left in their type."""

    def address(self, value: Tensor, index: Index, stored: bool = False) -> Expression:
        """The pointer to an element."""
        groups: dict[frozenset[str], Index] = {}
        for atom, factor in index.terms:
            groups[atom.names] = groups.get(atom.names, Index()) + Index(((atom, factor),))
        if stored or len(groups) < 2:
            return super().address(value, index, stored)
        pointer, inner = self.arguments.take(value, stored), self.scopes[-1].variables
        address: Expression = Name(pointer)
        for names, part in sorted(groups.items(), key=lambda group: bool(group[0] & inner)):
            shown = part.code if len(part.terms) == 1 and part.terms[0][1] > 0 else Group(part.code)
            if len(self.scopes) > 1 and not names & inner:
                shown = self.keep(part.code, names, f"{pointer.removesuffix('_ptr')}_at")
            address = expression("{address} + {more}", address=address, more=shown)
        if index.constant < 0:
            return expression("{address} - {less}", address=address, less=-index.constant)
        return add(address, index.constant)

    def keep(self, node: Expression, names: frozenset[str], hint: str) -> Name:
        """A name for an expression, computed as far out as it can be."""
        scope = self._scope(names)
        if node not in scope.expressions:
            scope.expressions[node] = Name(self.arguments.name(hint))
            scope.lines.append(assign(scope.expressions[node].name, node))
        return scope.expressions[node]

    def mask(self, names: frozenset[str], guards: tuple[Guard, ...] = ()) -> Expression | None:
        """The condition under which an element that depends on these variables exists."""
        tests = [test for name, test in self.bounds.items() if test is not None and name in names]
        for guard in guards:
            if guard.names <= names:
                name = self.keep(guard.index.code, guard.names, "place") if len(guard.index.terms) > 1 else None
                tests += guard.list_tests(name)
        joined = join_tests(tests)
        return self.keep(joined, names, "inside_window") if joined and len(print_expression(joined)) > _LONG else joined

    def _load(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...], other: Expression | None = None) -> Found:
        node, names = super()._load(value, at, guards, other)
        return (reads(node) or node if self.as_stored else node), names

    def load_at(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...], other: Expression) -> Expression:
        """A load as an expression."""
        return self._load(value, at, guards, other)[0]

    def read_tile(
        self, value: Tensor, at: Coordinates, shape: tuple[str | int, str | int], spans: tuple[str, str], depth: int, ragged: bool
    ) -> Expression:
        """A tile of an operand.

        Args:
            value: the operand.
            at: where it is read.
            shape: of the tile, as the kernel names it.
            spans: the variables along its axes.
            depth: of the operand.
            ragged: whether the tile may go beyond that.
        """
        base = value
        while isinstance(base, TensorView) and not self.in_memory(base):
            base = base.source
        computed = isinstance(base, Formula) and not self.in_memory(base)
        self.as_stored = not computed
        node = self.read(value, at)
        self.as_stored = False
        names, lines = self.depends(node), self.scopes[-1].lines
        last = lines[-1] if lines else None
        if isinstance(last, Assign) and last.targets == (node,) and last.value is not None and not computed:
            lines.pop()
            node = last.value
        if _is_literal(node):  # which is no value of Triton
            dtype = TYPE_NAMES["float64" if value.dtype == "float64" else "float32"]
            node = expression("tl.full(({rows}, {columns}), {x}, {dtype})", rows=shape[0], columns=shape[1], x=node, dtype=dtype)
        elif not set(spans) <= names:
            node = expression("tl.broadcast_to({x}, ({rows}, {columns}))", x=node, rows=shape[0], columns=shape[1])
        along = next(one for one in spans if one in (ACROSS, DOWN))
        if ragged and (computed or along not in names):
            node = expression("tl.where({along} < {depth}, {x}, 0.0)", along=along, depth=depth, x=node)
        if computed and value.dtype != "float32":
            node = expression("({x}).to({dtype})", x=node, dtype=TYPE_NAMES[value.dtype])
        return node


def _is_literal(node: Expression) -> bool:
    """Whether an expression is a number of Python."""
    return all(not isinstance(part, Name) or part.name == "float" for part in iterate(node))
