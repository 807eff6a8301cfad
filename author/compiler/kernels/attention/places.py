"""The places at which the kernels of an attention compute elements, and their names."""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.regions import AttentionRegion
from tritonsmith.author.compiler.ir.attention import COLUMN, FEATURE, KEY, LEAD, QUERY
from tritonsmith.author.compiler.ir.indices import Index
from tritonsmith.author.compiler.ir.values import TRITON_TYPES, Tensor, TensorView
from tritonsmith.author.compiler.kernels.attention.blocks import KEPT, Blocks
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.texts import show
from tritonsmith.author.types import IN_PARTS

DOWN = "n_down"
"""Keys as rows, where `n` has them as columns."""
SPAN = ("first", "clear", "last")
"""What is known of a block of queries ahead: where a block of keys begins that one of them sees, from where on not all of them see
all keys, and the key behind the last one."""
WORDS = {LEAD, QUERY, KEY, DOWN, *SPAN, "program", "block", "part", "scores", "most", "higher", "base", "total", "weights", "alpha",
         "valid_down", "weights_high", "weights_low", "weights_back", "feature", "seen", "all_seen", "split_lines", "split_alike",
         "start"}  # fmt: skip
"""Names that the kernel uses itself."""


def load_operand(region: AttentionRegion, emitter: Emitter, value: Tensor, row: Index, column: Index) -> str:
    """An operand's block, in fp32 or in its own type of 16 bits."""

    def is_read(one: Tensor) -> bool:
        return id(one) in region.reads

    at = region.attention.find(value, row, column)
    below: Tensor = value
    while isinstance(below, TensorView) and below.guard is None and not is_read(below):
        below = below.source
    direct = value.dtype not in IN_PARTS
    emitter.narrow = direct and is_read(below)
    text = show(emitter.read(value, at))
    emitter.narrow = False
    if direct and not is_read(below):
        emitter.line(f"{text} = {text}.to({TRITON_TYPES[value.dtype]})")
    return text


def make_emitter(region: AttentionRegion, arguments: Arguments, blocks: Blocks) -> Emitter:
    """What computes elements at the places that a program has."""
    one = region.attention
    bounds = {QUERY: "inside" if one.queries % blocks.queries else ""}
    bounds |= {KEY: "valid", DOWN: "valid_down"} if one.keys % blocks.keys else {KEY: "", DOWN: ""}
    for letter, pieces, size in ((FEATURE, blocks.features, one.features), (COLUMN, blocks.columns, one.columns)):
        for number, (start, places) in enumerate(pieces):
            ragged = size % places if size > KEPT else start + places > size
            for down in ("", "_down"):
                bounds[f"{letter}{number}{down}"] = f"{letter}{number}_valid{down}" if ragged else ""
    return Emitter(arguments, lambda value: id(value) in region.reads, bounds, frozenset((LEAD, QUERY)))


def write_piece(name: str, start: int, places: int, size: int, shift: str, wide: str, down: bool = True) -> list[str]:
    """The lines of a piece of an axis, as columns and as rows."""
    text = " + ".join([one for one in (shift, str(start) if start else "") if one] + [f"tl.arange(0, {places})"])
    text = f"({text}){wide}" if "+" in text else f"{text}{wide}"
    lines = [f"{name} = {text}[None, :]"] + ([f"{name}_down = {text}[:, None]"] if down else [])
    ragged = size % places if shift else start + places > size
    if ragged:
        lines += [f"{name}_valid = {name} < {size}"] + ([f"{name}_valid_down = {name}_down < {size}"] if down else [])
    return lines
