"""Reductions over groups of neighbouring columns, done on the tile of a product."""

from __future__ import annotations

import re

from tritonsmith.prompts.recipes.regions.cutting.grouping import place_source
from tritonsmith.prompts.recipes.regions.cutting.regions import ProductRegion
from tritonsmith.prompts.recipes.regions.cutting.space import COLUMN, LINE
from tritonsmith.prompts.recipes.regions.values.tensors import Anchor, Reduction
from tritonsmith.prompts.recipes.regions.writing.anchors import HELPER, find_kind
from tritonsmith.prompts.recipes.regions.writing.emitter import Emitter

_COUNTED = re.compile(r"\[([^|\[\]]*)\|[^|\[\]]*\]")
"""In lines of reductions: a value, and what stands for one that does not count."""


def reduce_groups(region: ProductRegion, emitter: Emitter, shape: str) -> None:
    """Lay the groups of a tile, where it has some, along an axis of their own, and make the numbers of each; `shape`: of the tile then."""
    group = region.group
    if not group:
        return
    emitter.line(f"m, n = m[:, :, None], tl.reshape(n, (1, BLOCK_N // {group}, {group}))  # groups of neighbouring columns")
    emitter.line(f"total = tl.reshape(total, {shape})")
    for anchor in region.grouped:
        _reduce(region, emitter, anchor)


def _reduce(region: ProductRegion, emitter: Emitter, anchor: Anchor) -> None:
    kind, at = find_kind(anchor.kind, anchor.source.dtype), place_source(region.product, anchor)
    title = emitter.arguments.name(anchor.name or {"moments": "mean", "exponentials": "most"}.get(anchor.kind, anchor.kind))
    for number, part in enumerate(kind.parts[:2]):
        emitter.outcomes[id(anchor), number] = f"{title}{part}"
        emitter.names[f"{title}{part}"] = frozenset((LINE, COLUMN))
    text, helper = emitter.read(anchor.source, at), ""
    for line in kind.whole:
        if line == HELPER:
            assert isinstance(anchor, Reduction) and anchor.helper is not None, "moments and exponentials have one"
            helper = emitter.read(anchor.helper, at)
        else:
            filled = line.format(n=title, v=text, h=helper, a="2, keep_dims=True", length=region.group)
            emitter.line(_COUNTED.sub(r"\1", filled))
