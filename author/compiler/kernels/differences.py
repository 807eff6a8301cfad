"""Squared distances in the kernel of a product: from lengths and products, or from differences one by one."""

from __future__ import annotations

from collections.abc import Callable

from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import DOWN
from tritonsmith.author.compiler.ir.code import Expression, For, Name, Statement
from tritonsmith.author.compiler.ir.template import expression, statements
from tritonsmith.author.compiler.ir.values import Tensor
from tritonsmith.author.compiler.kernels.pieces import assign
from tritonsmith.author.compiler.kernels.product_grid import INNER, TileEmitter
from tritonsmith.author.compiler.kernels.schemes import start_sums

OF_DIFFERENCES = ("lengths", "few", "start")
"""Names of the kernel's own."""
_FEW = 32
"""Squared differences that have a sum of their own: as many roundings go into it, and into the sum of such sums."""

ReadTile = Callable[[TileEmitter, str, Tensor, tuple[str | int, str | int], bool], Expression]
"""Reads a tile of an operand, by its side and the shape of the tile; the last argument says whether it may go beyond the depth."""


def find_distances(region: ProductRegion, emitter: TileEmitter, split: bool) -> list[Statement]:
    """What makes squared distances of the sums: |x|^2 + |y|^2 - 2xy, and the tile is done again where that is nearly nothing.

    Infinities and NaN are done again as well. `split`: whether there is another reason to do so.
    """
    pairs = zip(region.product.squares, region.lines, strict=True)
    lengths = [emitter.read(value, at) for value, at in pairs]
    near = expression("tl.max(tl.max((~(total >= lengths * {near})).to(tl.int32), 1), 0) > 0", near=region.product.near)
    return [*emitter.scopes[0].lines, *statements(
        """
        lengths = {left} + {right}
        total = lengths - 2.0 * total
        rough = {near}  # rare: what is left of the lengths would be rounding
        """,
        left=lengths[0], right=lengths[1], near=expression("rough | ({near})", near=near) if split else near,
    )]  # fmt: skip


def sum_differences(region: ProductRegion, emitter: TileEmitter, read: ReadTile) -> list[Statement]:
    """The loop over squared differences; few at a time have a sum of their own, so that long sums stay exact."""
    depth = region.product.sizes[-1]
    emitter.line(*start_sums("ieee", expression("(BLOCK_M, BLOCK_N)"), False))
    emitter.open(INNER)
    shapes: dict[str, tuple[str | int, str | int]] = {"left": ("BLOCK_M", 1), "right": (1, "BLOCK_N")}
    sources = {"left": region.product.source, "right": region.product.right}
    for side, shape in shapes.items():
        value = read(emitter, side, sources[side], shape, False)
        emitter.line(assign(side, value if sources[side].dtype == "float32" else expression("({v}).to(tl.float32)", v=value)))
    long = depth > _FEW
    emitter.line(*statements("apart = left - right\n{sum} += apart * apart", sum="few" if long else "total"))
    inner = emitter.scopes.pop()
    sums, places = inner.lines, statements("across = {down}", down=DOWN)
    first = emitter.scopes[0].lines
    if not long:
        return [*first, For(Name(DOWN), expression("range({depth})", depth=depth), (*places, *sums))]
    return [*first, *statements(
        """
        for start in range(0, {depth}, {step}):
            few = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for {down} in range(start, {end}):
                {sums}
            total += few
        """,
        depth=depth, step=_FEW, down=DOWN, sums=[*places, *sums],
        end=expression("tl.minimum(start + {few}, {depth})", few=_FEW, depth=depth)
        if depth % _FEW else expression("start + {few}", few=_FEW),
    )]  # fmt: skip
