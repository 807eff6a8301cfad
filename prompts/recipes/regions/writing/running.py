"""The lines of a scan: running sums and products, with what came before a block carried along."""

from __future__ import annotations

from tritonsmith.prompts.recipes.regions.values.tensors import FLOATS, TRITON_TYPES, Anchor, Scan
from tritonsmith.prompts.recipes.regions.writing.anchors import find_type
from tritonsmith.prompts.recipes.regions.writing.tiling import RowLayout, Tiling


def find_neutral(anchor: Anchor) -> str:
    """The number that changes no sum or product, as the kernel writes it."""
    return ("0" if anchor.kind == "sum" else "1") + (".0" if find_type(anchor.dtype) in FLOATS else "")


def start_scan(anchor: Anchor, title: str, layout: RowLayout) -> str:
    """What comes before the first block."""
    shape = {RowLayout.ROW: "()", RowLayout.TILE: "(ROWS, 1)", RowLayout.COLUMNS: "(ROWS,)"}[layout]
    return f"{title}_before = tl.full({shape}, {find_neutral(anchor)}, {TRITON_TYPES[find_type(anchor.dtype)]})"


def write_scan(anchor: Anchor, title: str, text: str, valid: str, tiling: Tiling) -> list[str]:
    """The scan of a block, `text`, where `valid`; its result is `title`."""
    sums = anchor.kind == "sum"
    sign = "+" if sums else "*"
    if tiling.layout is RowLayout.COLUMNS:
        return [f"{title}_before {sign}= {text}", f"{title} = {title}_before"]
    axis = "1" if tiling.layout is RowLayout.TILE else "0"
    lines = [f"{title}_counted = tl.where({valid}, {text}, {find_neutral(anchor)})"] if valid else []
    counted = f"{title}_counted" if valid else text
    turn = ", reverse=True" if isinstance(anchor, Scan) and anchor.reverse else ""
    run = f"tl.cumsum({counted}, {axis}{turn})" if sums else f"tl.cumprod({counted}, {axis}{turn})"
    if not tiling.looped:
        return [*lines, f"{title} = {run}"]
    keep = ", keep_dims=True" if tiling.layout is RowLayout.TILE else ""
    total = f"tl.sum({counted}, {axis}{keep})" if sums else f"tl.reduce({counted}, {axis}, combine_fn=multiply{keep})"
    return [*lines, f"{title} = {title}_before {sign} {run}", f"{title}_before {sign}= {total}"]
