"""How products are cut into tiles, and how their tiles are read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tritonsmith.prompts.recipes.recipe import Settings
from tritonsmith.prompts.recipes.regions.cutting.operands import find_fresh, find_kept, has_rim
from tritonsmith.prompts.recipes.regions.cutting.rates import choose_sides, fill
from tritonsmith.prompts.recipes.regions.cutting.regions import ProductRegion, WorkRegion
from tritonsmith.prompts.recipes.regions.cutting.space import ACROSS, BATCH, COLUMN, DOWN, LINE, TAP
from tritonsmith.prompts.recipes.regions.values.indices import Coordinates, Guard, Index
from tritonsmith.prompts.recipes.regions.values.tensors import TRITON_TYPES, Formula, MatrixProduct, Tensor, TensorView
from tritonsmith.prompts.recipes.regions.writing.emitter import Emitter

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
_LONG = 80
"""Characters of a mask that gets a line of its own."""


@dataclass(frozen=True)
class ProductTile:
    """How a product is cut into tiles."""

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

    @property
    def shared_bytes(self) -> int:
        """Shared memory of all stages: two fp16 parts need as much as one fp32 value."""
        value = 2 if self.scheme == "as they are" else 4
        in_loop = 4 * self.columns * self.depth if self.scheme in SPLIT and not self.kept and not self.ahead else 0
        return value * (self.rows + self.columns) * self.depth * max(1, self.stages) + in_loop

    @property
    def sums(self) -> int:
        """fp32 sums of a thread."""
        return self.rows * self.columns * (1 if self.scheme in ("as they are", "tf32", "ieee", "fp16") else 2) // (32 * self.warps)


def choose_tile(region: ProductRegion, settings: Settings) -> ProductTile:
    """The tile of the settings, no larger than the product asks for."""
    depth = region.product.sizes[-1]
    half = region.product.source.dtype != "float32"
    scheme = "as they are" if half else str(settings["scheme"])
    kept = find_kept(region) if scheme in SPLIT else ""
    ahead = scheme in SPLIT and bool(find_fresh(region))
    crowded = scheme in SPLIT and not ahead and (not kept or has_rim(region))
    most = min(_IN_LOOP, int(settings["block_k"])) if crowded else int(settings["block_k"])
    high, wide = choose_sides(region.product, int(settings["block_m"]), int(settings["block_n"]))
    deep = min(most, fill(depth))
    while deep > _IN_LOOP and -(-depth // deep) * deep > _WASTE * depth:
        deep //= 2
    warps = int(settings["product_warps"])
    while warps > _GROUP and max(high * wide, (high + wide) * deep) < _PER_WARP * warps // 2:
        warps //= 2
    return ProductTile(high, wide, deep, warps, int(settings["num_stages"]), int(settings["group"]), scheme, kept, ahead)


def number_products(regions: Iterable[WorkRegion]) -> dict[int, int]:
    """By region: a number for all products of one size, from 1, the costliest first."""
    found = [one for one in regions if isinstance(one, ProductRegion)]
    sizes = sorted(dict.fromkeys(one.product.sizes for one in found), key=lambda one: -math.prod(one))
    return {id(one): sizes.index(one.product.sizes) + 1 for one in found}


def pick_settings(settings: Settings, number: int) -> Settings:
    """The settings for products of a number: `block_m_2` stands for `block_m` in those of number 2."""
    return settings | {name: settings[f"{name}_{number}"] for name in TUNED if f"{name}_{number}" in settings}


def write_head(product: MatrixProduct, tile: ProductTile, big: bool) -> list[str]:
    """Which tile a program has: GROUP tiles above each other are done one after the other."""
    batch, rows, columns, _, _ = product.sizes
    wide = ".to(tl.int64)" if big else ""
    above, beside = -(-rows // tile.rows), -(-columns // tile.columns)
    lines = ["pid = tl.program_id(0)"]
    if batch > 1 and product.interleaved:
        lines += [f"batch = {f'(pid % {batch}){wide}' if big else f'pid % {batch}'}", f"pid = pid // {batch}"]
    elif batch > 1:
        tiles = above * beside
        lines += [f"batch = {f'(pid // {tiles}){wide}' if big else f'pid // {tiles}'}", f"pid = pid % {tiles}"]
    if above > 1 and beside > 1:
        lines += [f"group = pid // (GROUP * {beside})", f"height = tl.minimum({above} - group * GROUP, GROUP)"]
    return lines + write_places(product, tile, big, "BLOCK_M", "BLOCK_N")


def write_places(product: MatrixProduct, tile: ProductTile, big: bool, high: str, wide: str) -> list[str]:
    """The rows and columns of a program, of which it has `high` and `wide`."""
    _, rows, columns, _, _ = product.sizes
    above, beside = -(-rows // tile.rows), -(-columns // tile.columns)
    first, second = "pid" if above > 1 else "", "pid" if beside > 1 else ""
    if above > 1 and beside > 1:
        first, second = f"(group * GROUP + pid % (GROUP * {beside}) % height)", f"(pid % (GROUP * {beside}) // height)"
    lines = []
    for name, block, start, axis in ((LINE, high, first, "[:, None]"), (COLUMN, wide, second, "[None, :]")):
        inner, step = f"tl.arange(0, {block})", f"({block})" if " " in block else block
        lines.append(f"{name} = {f'({start} * {step} + {inner})' if start else inner}{axis}{'.to(tl.int64)' if big else ''}")
    return lines


def unfold_sums(product: MatrixProduct, tile: ProductTile, big: bool) -> list[str]:
    """Lines that lay sums of several rows beside each other, where they are neighbours in the result."""
    if product.folded == 1:
        return []
    high, wide = f"BLOCK_M // {product.folded}", f"BLOCK_N * {product.folded}"
    return [
        f"total = tl.permute(tl.reshape(total, ({high}, {product.folded}, BLOCK_N)), (0, 2, 1))  # neighbours in the result",
        f"total = tl.reshape(total, ({high}, {wide}))",
        *write_places(product, tile, big, high, wide),
    ]


class TileEmitter(Emitter):
    """Reads tiles: what of an address or a mask does not change in the loop is computed ahead of it; 16-bit operands stay as they are."""

    as_stored = False
    """Whether 16-bit values are left in their type."""

    def address(self, value: Tensor, index: Index, stored: bool = False) -> str:
        """The pointer to an element."""
        groups: dict[frozenset[str], Index] = {}
        for atom, factor in index.terms:
            groups[atom.names] = groups.get(atom.names, Index()) + Index(((atom, factor),))
        if stored or len(groups) < 2:
            return super().address(value, index, stored)
        pointer, inner = self.arguments.take(value, stored), self.scopes[-1].variables
        text = pointer
        for names, part in sorted(groups.items(), key=lambda one: bool(one[0] & inner)):
            shown = part.text if len(part.terms) == 1 and not part.text.startswith("-") else f"({part.text})"
            if len(self.scopes) > 1 and not names & inner:
                shown = self.keep(part.text, names, f"{pointer.removesuffix('_ptr')}_at")
            text += f" + {shown}"
        return text + (f" + {index.constant}" if index.constant > 0 else f" - {-index.constant}" if index.constant else "")

    def keep(self, text: str, names: frozenset[str], hint: str) -> str:
        """A name for an expression, computed as far out as it can be."""
        scope = self._scope(names)
        if text not in scope.expressions:
            scope.expressions[text] = self.arguments.name(hint)
            scope.lines.append(f"{scope.expressions[text]} = {text}")
        return scope.expressions[text]

    def mask(self, names: frozenset[str], guards: tuple[Guard, ...] = ()) -> str:
        """The condition under which an element that depends on these variables exists."""
        texts = [text for name, text in self.bounds.items() if text and name in names]
        for guard in guards:
            if guard.names <= names:
                name = self.keep(guard.index.text, guard.names, "place") if len(guard.index.terms) > 1 else ""
                texts += [text.replace(f"({guard.index.text} ", f"({name} ") if name else text for text in guard.texts]
        found = " & ".join(dict.fromkeys(texts))
        return self.keep(found, names, "inside_window") if len(found) > _LONG else found

    def _load(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...], other: str = "") -> tuple[str, frozenset[str]]:
        text, names = super()._load(value, at, guards, other)
        return (text.removesuffix(".to(tl.float32)") if self.as_stored else text), names

    def load_at(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...], other: str) -> str:
        """A load as an expression."""
        return self._load(value, at, guards, other)[0]

    def read_tile(self, value: Tensor, at: Coordinates, shape: tuple[str, str], spans: tuple[str, str], depth: int, ragged: bool) -> str:
        """A tile of an operand as an expression.

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
        text = self.read(value, at)
        self.as_stored = False
        names, lines = self.depends(text), self.scopes[-1].lines
        if lines and lines[-1].startswith(f"{text} = ") and not computed:
            text = lines.pop().partition(" = ")[2]
        if not set(spans) <= names:
            text = f"tl.broadcast_to({text}, ({', '.join(shape)}))"
        along = next(one for one in spans if one in (ACROSS, DOWN))
        if ragged and (computed or along not in names):
            text = f"tl.where({along} < {depth}, {text}, 0.0)"
        return f"({text}).to({TRITON_TYPES[value.dtype]})" if computed and value.dtype != "float32" else text


OUTER = frozenset((BATCH, LINE, COLUMN))
"""Variables of a product's kernel that its loop does not change."""
INNER = frozenset((TAP, ACROSS, DOWN))
"""Variables of the loop."""
