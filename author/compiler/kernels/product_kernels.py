"""The kernels of a product: those that split operands ahead of it, and its own."""

from __future__ import annotations

from dataclasses import replace

from tritonsmith.author.compiler.fusing.operands import find_fresh
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.kernels.kernel import Kernel
from tritonsmith.author.compiler.kernels.product_parts import FreshParts, write_fresh
from tritonsmith.author.compiler.kernels.product_tiles import choose_tile
from tritonsmith.author.compiler.kernels.products import ProductWriter
from tritonsmith.author.compiler.kernels.products_at_once import OnceWriter
from tritonsmith.author.recipe import Settings


def write_product(region: ProductRegion, name: str, settings: Settings, made: dict[tuple[int, int], FreshParts]) -> list[Kernel]:
    """One program for each tile of the result, behind the kernels that split operands.

    made: by value and axis: parts that forward has already; what is added here is added to it.
    """
    tile = choose_tile(region, settings)
    fresh: dict[str, FreshParts] = {}
    kernels: list[Kernel] = []
    twins = [find_fresh(one) if tile.ahead else {} for one in region.twins or (region, region)]
    for side, operand in (find_fresh(region) if tile.ahead else {}).items():
        key = id(operand.base), operand.axis
        if key not in made:
            title = f"split_{operand.base.name or side}_of_{name}"
            usual, other = (one.get(side, operand) for one in twins)
            free = usual.others != other.others
            programs = region.card.busy_programs
            made[key] = write_fresh(operand, usual.places, free, tile.scheme, title, lambda one: id(one) in region.reads, programs)
            kernels.append(made[key].kernel)
        fresh[side] = replace(made[key], operand=operand)
    writer = OnceWriter if tile.at_once else ProductWriter
    return [*kernels, writer(region, tile, name, fresh).write()]
