"""Two kernels for few long rows: programs share a row and leave what they found of it; a second launch puts that together."""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.regions import RowRegion
from tritonsmith.author.compiler.fusing.space import ROW
from tritonsmith.author.compiler.ir.code import Expression, Name, number
from tritonsmith.author.compiler.ir.indices import variable
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import Anchor, Tensor
from tritonsmith.author.compiler.kernels.anchors import Terms, fill_line, find_part_type, list_joins, list_suffixes, pick_other
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel
from tritonsmith.author.compiler.kernels.pieces import assign, load, store
from tritonsmith.author.compiler.kernels.rows import RowWriter, list_row_stores, order_passes
from tritonsmith.author.compiler.kernels.tiling import choose_tiling, round_up
from tritonsmith.author.recipe import Settings

_PART = "part"


def write_split(region: RowRegion, name: str, settings: Settings) -> list[Kernel]:
    """The kernel that finds the parts, and the one that joins them."""
    tiling = choose_tiling(region, settings, shared=True)
    groups = -(-region.space.rows // tiling.rows)
    usual = -(-region.rows // tiling.rows)
    wanted = max(1, region.card.even_processors * int(settings["parts"]) // usual)
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


def _store_part(writer: RowWriter, anchor: Anchor, suffix: str, parts: int) -> Buffer:
    """Store what a program found of its part of a row."""
    title = f"{writer.titles[id(anchor)]}{suffix}"
    buffer = Buffer(shape=(writer.space.rows, parts), dtype=find_part_type(anchor, suffix), name=f"{title}_parts")
    address: Expression = Name(writer.arguments.take(buffer))
    if writer.space.rows > 1:
        address = expression("{p} + row * PARTS", p=address)
    address = expression("{p} + tl.program_id(0) % PARTS", p=address)
    writer.emitter.line(store(address, Name(title), writer.emitter.bounds[ROW]))
    return buffer


def _finish_first(writer: RowWriter, name: str, stores: list[Tensor], groups: int, parts: int) -> Kernel:
    return Kernel(
        name=name, does="", arguments=writer.arguments.list(), sizes=[], constants=[("PARTS", parts), *writer.list_constants()],
        body=[*writer.head(), *writer.emitter.scopes[0].lines], grid=expression("({programs},)", programs=groups * parts),
        stores=stores, warps=writer.tiling.warps,
    )  # fmt: skip


def _write_join(
    region: RowRegion, name: str, anchors: list[Anchor], titles: dict[int, str], buffers: dict[str, Buffer], chunk: int, parts: int
) -> Kernel:
    """One program for each row reads its parts."""
    arguments = Arguments()
    block = max(2, round_up(parts))
    exists = expression("part < {parts}", parts=parts) if parts % block else None
    bounds = {ROW: None, _PART: exists}
    emitter = Emitter(arguments, lambda one: id(one) in region.reads or isinstance(one, Buffer), bounds, frozenset((ROW, _PART)))
    emitter.line(*(statements("row = tl.program_id(0)") if region.space.rows > 1 else ()), statement("part = tl.arange(0, BLOCK)"))
    part = variable(_PART, parts)
    if any(anchor.kind == "moments" for anchor in anchors):
        emitter.line(statement(
            "count = tl.minimum(tl.maximum({length} - part.to(tl.int64) * {chunk}, 0), {chunk}).to(tl.float32)",
            length=region.space.length, chunk=chunk,
        ))  # fmt: skip
    for anchor in anchors:
        title = titles[id(anchor)]
        arguments.used.add(title)
        for which, suffix in enumerate(list_suffixes(anchor)):
            buffer = buffers[f"{title}{suffix}"]
            address = emitter.address(buffer, region.space.row * parts + part)
            emitter.line(assign(f"{title}{suffix}_parts", load(address, exists, pick_other(anchor, suffix))))
            emitter.outcomes[id(anchor), which] = f"{title}{suffix}"
            emitter.names[f"{title}{suffix}"] = frozenset((ROW,))
        emitter.line(*(fill_line(line, Terms(title, number(region.space.length))) for line in list_joins(anchor)))
        if anchor.kind in ("any", "all"):
            emitter.line(statement("{n} = {n} != 0", n=title))
    numbers = list_row_stores(region)
    for value, at, index in numbers:
        emitter.store(value, index, emitter.read(value, at), frozenset((ROW,)))
    return Kernel(
        name=name, does=f"What all parts of a row found, put together: {parts} parts of {chunk} places.",
        arguments=arguments.list(), sizes=[], constants=[("BLOCK", block)],
        body=emitter.scopes[0].lines, grid=expression("({rows},)", rows=region.space.rows),
        stores=[value for value, _, _ in numbers], warps=4 if block >= 128 else 1,
    )  # fmt: skip
