"""Two kernels for few long rows: programs share a row and leave what they found of it; a second launch puts that together."""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.regions import RowRegion
from tritonsmith.author.compiler.fusing.space import ROW
from tritonsmith.author.compiler.ir.indices import variable
from tritonsmith.author.compiler.ir.values import Anchor, Tensor
from tritonsmith.author.compiler.kernels.anchors import find_kind
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel
from tritonsmith.author.compiler.kernels.rows import RowWriter, list_row_stores, order_passes
from tritonsmith.author.compiler.kernels.tiling import RowLayout, choose_tiling, round_up
from tritonsmith.author.recipe import Settings
from tritonsmith.author.types import find_sum_type

_PROCESSORS = 128
"""About those of a card of this class; `parts` counts programs for each."""
_PART = "part"
JOINED = {
    "moments": (
        "{n} = tl.sum({n}_parts * count, 0) / {length}",
        "{n}_squares = tl.sum({n}_squares_parts + count * ({n}_parts - {n}) * ({n}_parts - {n}), 0)",
    ),
    "exponentials": ("{n} = tl.max({n}_parts, 0)", "{n}_total = tl.sum({n}_total_parts * tl.exp({n}_parts - {n}), 0)"),
    "argmax": ("{n} = tl.max({n}_parts, 0)", "{n}_place = tl.min(tl.where({n}_parts == {n}, {n}_place_parts, 2147483647), 0)"),
    "argmin": ("{n} = tl.min({n}_parts, 0)", "{n}_place = tl.min(tl.where({n}_parts == {n}, {n}_place_parts, 2147483647), 0)"),
    "sum": ("{n} = tl.sum({n}_parts, 0)",),
    "prod": ("{n} = tl.reduce({n}_parts, 0, combine_fn=multiply)",),
    **dict.fromkeys(("max", "any"), ("{n} = tl.max({n}_parts, 0)",)),
    **dict.fromkeys(("min", "all"), ("{n} = tl.min({n}_parts, 0)",)),
}
"""By kind: the lines that put the parts of a row together; moments as Chan, Golub and LeVeque join them (1979)."""


def write_split(region: RowRegion, name: str, settings: Settings) -> list[Kernel]:
    """The kernel that finds the parts, and the one that joins them."""
    tiling = choose_tiling(region, settings, shared=True)
    groups = -(-region.space.rows // tiling.rows)
    usual = -(-region.rows // tiling.rows)
    wanted = max(1, _PROCESSORS * int(settings["parts"]) // usual)
    chunk = -(-region.space.length // wanted)
    chunk = -(-chunk // tiling.block) * tiling.block
    parts = -(-region.space.length // chunk)
    first = RowWriter(region, tiling, chunk)
    ((anchors, places),) = order_passes(region)
    first.write_pass(anchors, places)
    buffers: dict[str, Buffer] = {}
    for anchor in anchors:
        for suffix in list_suffixes(anchor):
            buffers[f"{first.titles[id(anchor)]}{suffix}"] = _store_part(first, anchor, suffix, parts)
    one = _finish_first(first, name, [*buffers.values(), *places], groups, parts)
    return [one, _write_join(region, f"join_{name}", anchors, first.titles, buffers, chunk, parts)]


def list_suffixes(anchor: Anchor) -> tuple[str, ...]:
    """Suffixes of what a part leaves of a reduction."""
    return find_kind(anchor.kind, anchor.source.dtype).parts[:2]


def find_part_type(anchor: Anchor, suffix: str) -> str:
    """The type of what a part leaves."""
    return "int32" if suffix == "_place" else find_sum_type(anchor.source.dtype)


def _store_part(writer: RowWriter, anchor: Anchor, suffix: str, parts: int) -> Buffer:
    """Store what a program found of its part of a row."""
    title = f"{writer.titles[id(anchor)]}{suffix}"
    buffer = Buffer(shape=(writer.space.rows, parts), dtype=find_part_type(anchor, suffix), name=f"{title}_parts")
    pointer = writer.arguments.take(buffer)
    mask = ", mask=inside" if writer.emitter.bounds[ROW] else ""
    row = "row * PARTS + " if writer.space.rows > 1 else ""
    place = f"{row}tl.program_id(0) % PARTS"
    writer.emitter.line(f"tl.store({pointer} + {place}, {title}{mask})")
    return buffer


def _finish_first(writer: RowWriter, name: str, stores: list[Tensor], groups: int, parts: int) -> Kernel:
    arguments, tiling = writer.arguments, writer.tiling
    constants = [("PARTS", parts)]
    constants += [("ROWS", tiling.rows)] if writer.row_vector and writer.space.rows > 1 else []
    constants += [("BLOCK", tiling.block)] if tiling.layout is not RowLayout.COLUMNS else []
    return Kernel(
        name=name, does="", arguments=[(arguments.names[id(one)], one) for one in arguments.values], sizes=[], constants=constants,
        lines=[*writer.head(arguments.largest >= 2**31), *writer.emitter.scopes[0].lines], grid=f"({groups * parts},)",
        stores=stores, warps=tiling.warps,
    )  # fmt: skip


def _write_join(
    region: RowRegion, name: str, anchors: list[Anchor], titles: dict[int, str], buffers: dict[str, Buffer], chunk: int, parts: int
) -> Kernel:
    """One program for each row reads its parts."""
    arguments = Arguments()
    block = max(2, round_up(parts))
    bounds = {ROW: "", _PART: f"part < {parts}" if parts % block else ""}
    emitter = Emitter(arguments, lambda one: id(one) in region.reads or isinstance(one, Buffer), bounds, frozenset((ROW, _PART)))
    lines = ["row = tl.program_id(0)"] if region.space.rows > 1 else []
    emitter.line("part = tl.arange(0, BLOCK)")
    part = variable(_PART, parts)
    if any(anchor.kind == "moments" for anchor in anchors):
        emitter.line(f"count = tl.minimum(tl.maximum({region.space.length} - part.to(tl.int64) * {chunk}, 0), {chunk}).to(tl.float32)")
    for anchor in anchors:
        title = titles[id(anchor)]
        arguments.used.add(title)
        for number, suffix in enumerate(list_suffixes(anchor)):
            buffer = buffers[f"{title}{suffix}"]
            address = emitter.address(buffer, region.space.row * parts + part)
            masked = f", mask={bounds[_PART]}, other={pick_other(anchor, suffix)}" if bounds[_PART] else ""
            emitter.line(f"{title}{suffix}_parts = tl.load({address}{masked})")
            emitter.outcomes[id(anchor), number] = f"{title}{suffix}"
            emitter.names[f"{title}{suffix}"] = frozenset((ROW,))
        for line in JOINED[anchor.kind]:
            emitter.line(line.format(n=title, length=region.space.length))
        if anchor.kind in ("any", "all"):
            emitter.line(f"{title} = {title} != 0")
    numbers = list_row_stores(region)
    for value, at, index in numbers:
        emitter.store(value, index, emitter.read(value, at), frozenset((ROW,)))
    return Kernel(
        name=name, does=f"What all parts of a row found, put together: {parts} parts of {chunk} places.",
        arguments=[(arguments.names[id(one)], one) for one in arguments.values], sizes=[], constants=[("BLOCK", block)],
        lines=[*lines, *emitter.scopes[0].lines], grid=f"({region.space.rows},)",
        stores=[value for value, _, _ in numbers], warps=4 if block >= 128 else 1,
    )  # fmt: skip


def pick_other(anchor: Anchor, suffix: str) -> str:
    """What a part that does not exist counts as."""
    if suffix == "_place":
        return "2147483647"
    return find_kind(anchor.kind, anchor.source.dtype).start[0 if not suffix else 1]
