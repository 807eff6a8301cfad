"""How products are cut into tiles."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.calls import choose_sides, fill
from tritonsmith.author.compiler.fusing.described import WindowTile, choose_windows, describe_windows, find_whole_rounds, takes_descriptors
from tritonsmith.author.compiler.fusing.integers import IntegerWeights, choose_rows, choose_units, count_stage, read_integers
from tritonsmith.author.compiler.fusing.operands import find_fresh, find_kept, has_rim, is_short
from tritonsmith.author.compiler.fusing.regions import ProductRegion, WorkRegion
from tritonsmith.author.compiler.fusing.space import COLUMN
from tritonsmith.author.compiler.ir.values import MatrixProduct
from tritonsmith.author.compiler.kernels.schemes import SPLIT
from tritonsmith.author.recipe import Settings
from tritonsmith.author.types import IN_PARTS

TUNED = ("block_m", "block_n", "block_k", "group", "product_warps", "num_stages", "form")
"""Settings of products."""
DESCRIPTORS, POINTERS = "descriptors", "pointers"
"""How tiles of 16-bit operands are read."""
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
_WINDOW_WARPS = 8
"""Warps of a convolution's program: each group of four has 64 places."""
_ALONE = 128, 4
"""Places of the depth at once, and stages, of a small tile of 16-bit operands that has a processor to itself: 64 x 4096 x 4096 takes
10.9 us, with 64 places 11.6. A router of 8192 x 2048 to 64 takes 22.2 us in 3 stages, 20.2 in 4 and 20.3 in 5 (H200, 2026-11-28)."""
STEP = 16
"""Places of the depth that tensor cores multiply at least. A warp reads 16 neighbouring columns of such a block: with blocks of 64 and 16 a
convolution of 72 takes 1.06 to 1.12 of the time, and with one of 128 1.6 to 1.7 (level 2: 57, 65, 85; raw/kernelbench/at_once.jsonl)."""


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
    described: bool = False
    """Whether operands are read by tensor descriptors, in programs that take tiles in turn."""
    second: int = 0
    """Columns of a second sum: of the other product of a pair, or of further columns of the same one."""
    boxes: WindowTile | None = None
    """Of a convolution whose operands are read by tensor descriptors."""
    integers: IntegerWeights | None = None
    """How weights are computed from whole numbers, where rows are few."""
    chunks: int = 1
    """Places of the depth, `depth` of them each, that different warps multiply at once."""
    stage: int = 0
    """Bytes of a step of such a product."""

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
        if self.integers:
            return max(self.stage * max(1, self.stages - 1), 4 * self.chunks * self.rows * self.columns)
        if self.at_once:
            return 2 * (3 * self.rows + 2 * self.columns) * self.at_once * STEP
        value = 2 if self.scheme == "as they are" else 4
        staged = 2 * self.rows * self.columns if self.described else 0  # half a tile on its way to memory, and half of what is read
        if self.second and self.second < self.columns:  # half of the first sums
            staged //= 2
        in_loop = 4 * self.columns * self.depth if self.scheme in SPLIT and not self.kept and not self.ahead else 0
        return value * (self.rows + self.columns + self.second) * self.depth * max(1, self.stages) + in_loop + staged

    @property
    def sums(self) -> int:
        """fp32 sums of a thread."""
        if self.integers:  # of all steps, and of one
            return 2 * self.chunks * self.rows * self.columns // (32 * self.warps)
        single = self.at_once or self.scheme in ("as they are", "tf32", "ieee", "fp16")
        return self.rows * (self.columns + self.second) * (1 if single else 2) // (32 * self.warps)

    @property
    def programs(self) -> int:
        """Programs that take tiles in turn: as many as the card has room for."""
        registers = self.card.fits.tiles.other_registers + self.sums
        return self.card.processors * self.card.count_resident(self.shared_bytes, self.warps, registers)


def choose_tile(region: ProductRegion, settings: Settings) -> ProductTile:
    """The tile of the settings, no larger than the product asks for."""
    region = region.usual
    fits = region.card.fits.tiles
    depth = region.product.sizes[-1]
    half = region.product.source.dtype not in IN_PARTS
    scheme = "as they are" if half else str(settings["scheme"])
    if region.product.differences and not region.product.squares:
        scheme = "ieee"
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
    read = 0 if half and not region.product.window else (high + wide) * deep  # what else keeps warps busy
    while warps > _GROUP and max(high * wide, read) < _PER_WARP * warps // 2:
        warps //= 2
    wide = max(wide, region.product.together)
    high = max(high, fill(region.product.sizes[1])) if region.product.reduced else high
    tile = ProductTile(region.card, high, wide, deep, warps, int(settings["num_stages"]), int(settings["group"]), scheme, kept, ahead)
    if half and (weights := read_integers(region.product, region.card)) is not None:
        return _choose_integers(region, replace(tile, integers=weights))
    if half and (windows := describe_windows(region)) is not None:
        found = choose_windows(region, windows)
        return replace(tile, rows=found.filters, columns=found.places, depth=windows.step, warps=_WINDOW_WARPS, boxes=found, described=True)
    if region.partner is not None:
        return _choose_pair(region, tile, int(settings["block_m"]), int(settings["block_n"]))
    if half and not region.product.window:
        return _choose_form(region, tile, str(settings["form"]))
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


def _choose_integers(region: ProductRegion, tile: ProductTile) -> ProductTile:
    """The tile of a product of few rows whose weights are whole numbers: all rows, and a chunk of the depth for each warp."""
    weights, product, hardware = tile.integers, region.product, tile.card.hardware
    assert weights is not None, "the tile is for such a product"
    chunks, units = weights.list_chunks(), choose_units(product, tile.card)
    stage = count_stage(product, units, chunks, weights.chunk, len(weights.parts))
    turned = 0 if weights.whole else 2 * chunks * weights.chunk * units  # what is computed goes to other threads
    asked = tile.stages + weights.is_read  # steps of half the size
    stages = max(1, min(asked, 1 + (hardware.shared_per_block - turned) // stage))
    return replace(
        tile, rows=choose_rows(product), columns=units, depth=weights.chunk, chunks=chunks, warps=max(_GROUP, chunks), stages=stages,
        stage=stage,
    )  # fmt: skip


def _choose_pair(region: ProductRegion, tile: ProductTile, most_rows: int, most_columns: int) -> ProductTile:
    """The tile of a pair of products: half of the columns are the other one's."""
    high, wide = choose_sides(region.product, most_rows, most_columns // 2, tile.card)
    return replace(tile, rows=high, columns=wide, second=wide, described=True)


def _choose_form(region: ProductRegion, tile: ProductTile, form: str) -> ProductTile:
    """The tile of a product of 16-bit matrices: read by descriptors where many are, and further ahead where a processor has one."""
    if form == DESCRIPTORS and (found := find_whole_rounds(region)) is not None:
        return replace(tile, rows=found.rows, columns=found.columns, second=found.second, described=True)
    if form == DESCRIPTORS and takes_descriptors(region, tile.rows, tile.columns):
        return replace(tile, described=True)
    batch, rows, columns, _, depth = region.product.sizes
    tiles = batch * -(-rows // tile.rows) * -(-columns // tile.columns)
    if tiles > tile.card.processors or tile.stages != PLAIN_STAGES or tile.rows * tile.columns > _GROUP * _PER_WARP // 2:
        return tile
    places, stages = _ALONE
    return replace(tile, depth=min(max(tile.depth, places), fill(depth)), stages=stages)


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
