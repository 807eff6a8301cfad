"""The kernel of elementwise values."""

from __future__ import annotations

from collections.abc import Callable

from tritonsmith.prompts.recipes.recipe import Settings
from tritonsmith.prompts.recipes.regions.cutting.regions import PointwiseRegion
from tritonsmith.prompts.recipes.regions.cutting.space import OFFSET
from tritonsmith.prompts.recipes.regions.values.indices import unravel, variable
from tritonsmith.prompts.recipes.regions.values.tensors import Tensor
from tritonsmith.prompts.recipes.regions.writing.emitter import Arguments, Emitter
from tritonsmith.prompts.recipes.regions.writing.kernels import Kernel

_BIG = 2**31


def write_pointwise(region: PointwiseRegion, name: str, settings: Settings, in_memory: Callable[[Tensor], bool]) -> list[Kernel]:
    """One program for each block of elements."""
    block, warps = int(settings["block"]), int(settings["num_warps"])
    while block >= 2 * region.size and block > 16:
        block //= 2
    arguments = Arguments()
    index = variable(OFFSET, region.size)
    free, ragged = region.free and bool(index.names), region.free or region.size % block != 0
    emitter = Emitter(arguments, in_memory, {OFFSET: "inside" if ragged else ""}, frozenset((OFFSET,)))
    for value in region.stores:
        text = emitter.read(value, unravel(index, value.shape))
        emitter.store(value, index, text, index.names)
    big = arguments.largest >= _BIG
    head = [f"offset = tl.program_id(0){'.to(tl.int64)' if big else ''} * BLOCK + tl.arange(0, BLOCK)"]
    if ragged:
        head.append(f"inside = offset < {'size' if free else region.size}")
    if not index.names:
        head = []
    grid = f"lambda c: (triton.cdiv({region.size}, c['BLOCK']),)" if free else f"({-(-region.size // block)},)"
    return [
        Kernel(
            name=name, does="", arguments=[(arguments.names[id(one)], one) for one in arguments.values],
            sizes=[("size", str(region.size))] if free else [], constants=[("BLOCK", block)] if index.names else [],
            lines=[*head, *emitter.scopes[0].lines], grid=grid, stores=list(region.stores), warps=warps,
        )
    ]  # fmt: skip
