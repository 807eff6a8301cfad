"""How products are cut into tiles, and how their tiles are read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.calls import choose_sides, fill
from tritonsmith.author.compiler.fusing.operands import find_fresh, find_kept, has_rim, is_short
from tritonsmith.author.compiler.fusing.regions import ProductRegion, WorkRegion
from tritonsmith.author.compiler.fusing.space import ACROSS, BATCH, COLUMN, DOWN, LINE, TAP
from tritonsmith.author.compiler.ir.code import Assign, Expression, Group, Name, Tuple
from tritonsmith.author.compiler.ir.indices import Coordinates, Guard, Index
from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.template import expression
from tritonsmith.author.compiler.ir.values import TYPE_NAMES, Formula, MatrixProduct, Tensor, TensorView
from tritonsmith.author.compiler.kernels.emitter import Emitter, Found
from tritonsmith.author.compiler.kernels.pieces import assign, join_tests, reads
from tritonsmith.author.compiler.kernels.texts import as_expression
from tritonsmith.author.recipe import Settings
from tritonsmith.author.types import IN_PARTS

TUNED = ("block_m", "block_n", "block_k", "group", "product_warps", "num_stages")
"""Settings of products."""
SPLIT = ("fp16x3", "fp16")
"""Schemes that make fp16 parts of fp32 values."""
_IN_LOOP = 32
"""Places of the depth at once where both operands are split in the loop, which needs shared memory besides the values, and where windows
have masks, which need registers."""
_WASTE = 1.2
"""Depth with what fills it up to whole steps, over the depth."""
_PER_WARP = 2048
"""Sums of a tile, or values of its operands, that keep a warp busy; twice as many still fit its registers."""
_GROUP = 4
"""Warps that multiply together on tensor cores."""
PLAIN_STAGES = 3
"""The plain setting, which leaves the number to the tile."""
STEP = 16
"""Places of the depth that tensor cores multiply at least. A warp reads 16 neighbouring columns of such a block: with blocks of 64 and 16 a
convolution of 72 takes 1.06 to 1.12 of the time, and with one of 128 1.6 to 1.7 (level 2: 57, 65, 85; raw/kernelbench/at_once.jsonl)."""
_LONG = 80
"""Characters of a mask that gets a line of its own."""


@dataclass(frozen=True)
class ProductTile:
    """How a product is cut into tiles."""

    card: CardModel
    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    group: int
    """Tiles above each other that share columns of the right operand held in L2."""
    scheme: str
    kept: str
    """The operand that is a parameter, whose parts are kept between calls: `left`, `right`, or empty."""
    ahead: bool = False
    """Whether the other operands are split in a pass ahead of the product."""
    registers: int = 0
    """Of a thread, at most; 0 where the compiler decides."""
    at_once: int = 0
    """Blocks of 16 places in which the whole depth of all taps is multiplied at once; 0 for a loop over steps of it."""

    @property
    def apart(self) -> bool:
        """Whether the function that does a tile again, whose values fp16 parts cannot hold, is called and not put into the kernel.

        Behind the stores it needs no registers beside the sums. Called, it needs none of the kernel's either: 49 kernels with four warps
        took 0.963 of the time that they take with sums done again in place, in geometric mean (0.86 to 1.11). 79 with eight warps took
        1.004 of the time with the function put in (0.95 to 1.15; KernelBench, H200, 2026-11-27; raw/kernelbench/redone_apart.jsonl).
        """
        return self.warps <= _GROUP

    @property
    def shared_bytes(self) -> int:
        """Shared memory of all stages: two fp16 parts need as much as one fp32 value."""
        if self.at_once:
            return 2 * (3 * self.rows + 2 * self.columns) * self.at_once * STEP
        value = 2 if self.scheme == "as they are" else 4
        in_loop = 4 * self.columns * self.depth if self.scheme in SPLIT and not self.kept and not self.ahead else 0
        return value * (self.rows + self.columns) * self.depth * max(1, self.stages) + in_loop

    @property
    def sums(self) -> int:
        """fp32 sums of a thread."""
        single = self.at_once or self.scheme in ("as they are", "tf32", "ieee", "fp16")
        return self.rows * self.columns * (1 if single else 2) // (32 * self.warps)

    @property
    def programs(self) -> int:
        """Programs that take tiles in turn where the whole depth is multiplied at once: as many as the card has room for."""
        registers = self.card.fits.tiles.other_registers + self.sums
        return self.card.processors * self.card.count_resident(self.shared_bytes, self.warps, registers)


def choose_tile(region: ProductRegion, settings: Settings) -> ProductTile:
    """The tile of the settings, no larger than the product asks for."""
    region = region.usual
    fits = region.card.fits.tiles
    depth = region.product.sizes[-1]
    half = region.product.source.dtype not in IN_PARTS
    scheme = "as they are" if half else str(settings["scheme"])
    kept = find_kept(region) if scheme in SPLIT else ""
    fresh = find_fresh(region).values() if scheme in SPLIT else ()
    ahead = bool(fresh)
    crowded = scheme in SPLIT and not ahead and (not kept or has_rim(region))
    most = min(_IN_LOOP, int(settings["block_k"])) if crowded else int(settings["block_k"])
    high, wide = choose_sides(region.product, int(settings["block_m"]), int(settings["block_n"]), region.card)
    deep = min(most, fill(depth))
    while deep > _IN_LOOP and -(-depth // deep) * deep > _WASTE * depth:
        deep //= 2
    warps = int(settings["product_warps"])
    while warps > _GROUP and max(high * wide, (high + wide) * deep) < _PER_WARP * warps // 2:
        warps //= 2
    wide = max(wide, region.product.together)
    high = max(high, fill(region.product.sizes[1])) if region.product.reduced else high
    tile = ProductTile(region.card, high, wide, deep, warps, int(settings["num_stages"]), int(settings["group"]), scheme, kept, ahead)
    if not ahead:
        return tile
    if blocks := _count_blocks(region, tile):
        tile = replace(tile, warps=_GROUP, stages=1, at_once=blocks)
        return replace(tile, registers=int(settings["registers"]) if tile.sums <= fits.once_sums else 0)
    tile = _choose_stages(_pair(tile, region.product), tile.stages, region.product)
    low = tile.rows <= fits.low_rows
    if not region.product.window or not tile.apart or not (low or region.chained) or any(one.depth > fits.few_channels for one in fresh):
        return tile
    registers = int(settings["registers"])
    return replace(tile, registers=min(registers, fits.low_registers) if low and region.chained else registers)


def _count_blocks(region: ProductRegion, tile: ProductTile) -> int:
    """Blocks of the whole depth of a convolution, if it is so short that a program multiplies it at once; 0 otherwise."""
    _, rows, columns, taps, depth = region.product.sizes
    short = is_short(region.product, region.card)
    fits = short and region.chained and rows <= tile.rows and columns > tile.columns and region.free_axis in ("", COLUMN)
    return -(-taps * depth // STEP) if fits and tile.kept == "left" and tile.scheme == "fp16x3" else 0


def _choose_stages(tile: ProductTile, asked: int, product: MatrixProduct) -> ProductTile:
    """The tile of a convolution, in one stage where more cost registers and hide little."""
    _, _, _, taps, depth = product.sizes
    steps = taps * -(-depth // tile.depth)
    fits = tile.card.fits.tiles
    shallow = product.window and asked == PLAIN_STAGES and tile.rows <= fits.low_rows and steps <= fits.few_steps
    return replace(tile, stages=1) if shallow else tile


def _pair(tile: ProductTile, product: MatrixProduct) -> ProductTile:
    """The tile of a convolution with so few warps and stages that two programs fit on a processor, where there are enough for all.

    One stores while the other multiplies. With four warps instead of eight a convolution with parts made ahead takes 0.66 to 1.0 of the
    time (eleven of KernelBench, H200, 2026-11-26; raw/kernelbench/tiles.jsonl).
    """
    card = tile.card
    batch, rows, columns, _, _ = product.sizes
    tiles = batch * -(-rows // tile.rows) * -(-columns // tile.columns)
    if not product.window or tile.rows * tile.columns > card.pair_sums or tile.warps <= _GROUP or tiles < 2 * card.processors:
        return tile
    stages = tile.stages
    while stages > 2 and replace(tile, stages=stages).shared_bytes > card.pair_shared:
        stages -= 1
    return replace(tile, warps=_GROUP, stages=stages)


def number_products(regions: Iterable[WorkRegion]) -> dict[int, int]:
    """By region: a number for all products of one size, from 1, the costliest first."""
    found = {id(one): one.usual.product.sizes for one in regions if isinstance(one, ProductRegion)}
    sizes = sorted(dict.fromkeys(found.values()), key=lambda one: -math.prod(one))
    return {key: sizes.index(one) + 1 for key, one in found.items()}


def pick_settings(settings: Settings, number: int) -> Settings:
    """The settings for products of a number: `block_m_2` stands for `block_m` in those of number 2."""
    return settings | {name: settings[f"{name}_{number}"] for name in TUNED if f"{name}_{number}" in settings}


@dataclass(frozen=True)
class TileGrid:
    """The tiles of a product's result; along one axis their number may follow from a size that the kernel is given."""

    product: MatrixProduct
    tile: ProductTile
    free: str = ""
    """The variable of that axis."""

    def size(self, axis: str) -> str:
        """How many products, rows or columns there are."""
        return SIZES[axis] if axis == self.free else str(self.product.sizes[(BATCH, LINE, COLUMN).index(axis)])

    @property
    def above(self) -> str:
        """Tiles above each other; empty for one."""
        return self._count(LINE, self.tile.rows, "above")

    @property
    def beside(self) -> str:
        """Tiles beside each other; empty for one."""
        return self._count(COLUMN, self.tile.columns, "beside")

    def _count(self, axis: str, block: int, name: str) -> str:
        if axis == self.free:
            return name
        count = -(-self.product.sizes[(BATCH, LINE, COLUMN).index(axis)] // block)  # a Size where a second axis follows from one
        return str(count) if count > 1 else ""

    def list_sizes(self, lines: Iterable[str]) -> list[tuple[str, str]]:
        """The size that the kernel is given and forward's text of it, where its lines use it."""
        name = SIZES.get(self.free)
        if name is None or not any(re.search(rf"\b{name}\b", line) for line in lines):
            return []
        return [(name, str(self.product.sizes[(BATCH, LINE, COLUMN).index(self.free)]))]

    def list_bounds(self, folded: int = 1, together: int = 1) -> dict[str, str]:
        """Conditions under which rows and columns are in range.

        Args:
            folded: rows of the sums that are one row of the result.
            together: columns of the sums that are one number.
        """
        _, rows, columns, _, _ = self.product.sizes
        sides = ((LINE, rows // folded, self.tile.rows // folded),
                 (COLUMN, columns * folded // together, self.tile.columns * folded // together))  # fmt: skip
        bounds = {name: f"({name} < {size})" if size % block else "" for name, size, block in sides}
        if self.free in bounds:
            fewer, more = (folded, 1) if self.free == LINE else (together, folded)
            turns = f" // {fewer}" if fewer > 1 else f" * {more}" if more > 1 else ""
            bounds[self.free] = f"({self.free} < {SIZES[self.free]}{turns})"
        return bounds

    @property
    def launched(self) -> str:
        """The number of programs as forward writes it."""
        numbers, factor = self.product.sizes, 1
        parts: list[str] = []
        for axis, count, block in zip((BATCH, LINE, COLUMN), numbers, (1, self.tile.rows, self.tile.columns), strict=False):
            if axis == self.free and block > 1:
                parts = [f"triton.cdiv({count}, {block})"]
            else:
                factor *= -(-count // block)
        return " * ".join([*parts, *([str(factor)] if factor > 1 or not parts else [])])


SIZES = {BATCH: "batches", LINE: "rows", COLUMN: "columns"}
"""By variable: the argument for its size."""


def write_head(grid: TileGrid, big: bool) -> list[str]:
    """Which tile a program has: GROUP tiles above each other are done one after the other."""
    product, above, beside = grid.product, grid.above, grid.beside
    wide = ".to(tl.int64)" if big else ""
    lines = ["pid = tl.program_id(0)"]
    lines += [f"above = tl.cdiv({SIZES[LINE]}, BLOCK_M)"] if grid.free == LINE else []
    lines += [f"beside = tl.cdiv({SIZES[COLUMN]}, BLOCK_N)"] if grid.free == COLUMN else []
    if product.sizes[0] > 1 and product.interleaved:
        batch = grid.size(BATCH)
        lines += [f"batch = {f'(pid % {batch}){wide}' if big else f'pid % {batch}'}", f"pid = pid // {batch}"]
    elif product.sizes[0] > 1:
        tiles = _multiply(above, beside)
        lines += [f"batch = {f'(pid // {tiles}){wide}' if big else f'pid // {tiles}'}", f"pid = pid % {tiles}"]
    if above and beside:
        lines += [f"group = pid // (GROUP * {beside})", f"height = tl.minimum({above} - group * GROUP, GROUP)"]
    return lines + write_places(grid, big, "BLOCK_M", "BLOCK_N")


def _multiply(above: str, beside: str) -> str:
    """The number of tiles of one product."""
    named = [one for one in (above, beside) if one and not one.isdigit()]
    number = math.prod(int(one) for one in (above, beside) if one.isdigit())
    if not named:
        return str(number)
    return named[0] if number == 1 else f"({named[0]} * {number})"


def write_places(grid: TileGrid, big: bool, high: str, wide: str) -> list[str]:
    """The rows and columns of a program, of which it has `high` and `wide`."""
    above, beside = grid.above, grid.beside
    first, second = "pid" if above else "", "pid" if beside else ""
    if above and beside:
        first, second = f"(group * GROUP + pid % (GROUP * {beside}) % height)", f"(pid % (GROUP * {beside}) // height)"
    lines = []
    for name, block, start, axis in ((LINE, high, first, "[:, None]"), (COLUMN, wide, second, "[None, :]")):
        inner, step = f"tl.arange(0, {block})", f"({block})" if " " in block else block
        lines.append(f"{name} = {f'({start} * {step} + {inner})' if start else inner}{axis}{'.to(tl.int64)' if big else ''}")
    return lines


def unfold_sums(grid: TileGrid, big: bool) -> list[str]:
    """Lines that lay sums of several rows beside each other, where they are neighbours in the result."""
    folded = grid.product.folded
    if folded == 1:
        return []
    high, wide = f"BLOCK_M // {folded}", f"BLOCK_N * {folded}"
    return [
        f"total = tl.permute(tl.reshape(total, ({high}, {folded}, BLOCK_N)), (0, 2, 1))  # neighbours in the result",
        f"total = tl.reshape(total, ({high}, {wide}))",
        *write_places(grid, big, high, wide),
    ]


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
        for names, part in sorted(groups.items(), key=lambda one: bool(one[0] & inner)):
            shown = part.code if len(part.terms) == 1 and part.terms[0][1] > 0 else Group(part.code)
            if len(self.scopes) > 1 and not names & inner:
                shown = self.keep(part.code, names, f"{pointer.removesuffix('_ptr')}_at")
            address = expression("{a} + {b}", a=address, b=shown)
        return Index(constant=index.constant).add_to(address) if index.constant > 0 else (
            expression("{a} - {b}", a=address, b=-index.constant) if index.constant else address
        )

    def keep(self, given: Expression | str, names: frozenset[str], hint: str) -> Name:
        """A name for an expression, computed as far out as it can be."""
        scope, node = self._scope(names), as_expression(given)
        if node not in scope.expressions:
            scope.expressions[node] = Name(self.arguments.name(hint))
            scope.lines.append(assign(scope.expressions[node].name, node))
        return scope.expressions[node]

    def mask(self, names: frozenset[str], guards: tuple[Guard, ...] = ()) -> Expression | None:
        """The condition under which an element that depends on these variables exists."""
        tests = [as_expression(test) for name, test in self.bounds.items() if test and name in names]
        for guard in guards:
            if guard.names <= names:
                name = self.keep(guard.index.code, guard.names, "place") if len(guard.index.terms) > 1 else None
                tests += guard.list_tests(name)
        joined = join_tests(tests)
        return self.keep(joined, names, "inside_window") if joined and len(print_expression(joined)) > _LONG else joined

    def _load(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...], other: Expression | None = None) -> Found:
        node, names = super()._load(value, at, guards, other)
        return (reads(node) or node if self.as_stored else node), names

    def load_at(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...], other: str) -> Expression:
        """A load as an expression."""
        return self._load(value, at, guards, as_expression(other))[0]

    def read_tile(self, value: Tensor, at: Coordinates, shape: tuple[str, str], spans: tuple[str, str], depth: int, ragged: bool) -> str:
        """A tile of an operand as the text of an expression.

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
        if not set(spans) <= names:
            node = expression("tl.broadcast_to({x}, {shape})", x=node, shape=Tuple(tuple(as_expression(size) for size in shape)))
        along = next(one for one in spans if one in (ACROSS, DOWN))
        if ragged and (computed or along not in names):
            node = expression("tl.where({along} < {depth}, {x}, 0.0)", along=along, depth=depth, x=node)
        if computed and value.dtype != "float32":
            node = expression("({x}).to({dtype})", x=node, dtype=TYPE_NAMES[value.dtype])
        return print_expression(node)


OUTER = frozenset((BATCH, LINE, COLUMN))
"""Variables of a product's kernel that its loop does not change."""
INNER = frozenset((TAP, ACROSS, DOWN))
"""Variables of the loop."""
