"""The kernels of elementwise values, and of elements that meet others at places of a tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from tritonsmith.author.compiler.fusing.regions import PointwiseRegion, ScatterRegion
from tritonsmith.author.compiler.fusing.space import OFFSET, PLACE, ROW, Walk
from tritonsmith.author.compiler.ir.indices import Index, loaded, ravel, unravel, variable
from tritonsmith.author.compiler.ir.values import Tensor
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.kernel import Kernel, share_quotients
from tritonsmith.author.compiler.kernels.tiling import round_up
from tritonsmith.author.recipe import Settings

_BIG = 2**31
_FIRST = "first"
"""The name of the place of a program's first element."""
_WORTH = 1 / 32
"""A shared operand is worth turns from this share of a row's bytes on."""
_MOST_BINS = 1024
"""Places of which each program counts its own elements first."""
_COUNTED = 4
"""Blocks of elements of a program that counts: so many fewer atomic additions to the same places."""


def write_pointwise(region: PointwiseRegion, name: str, settings: Settings, in_memory: Callable[[Tensor], bool]) -> list[Kernel]:
    """One program for each block of elements."""
    row = _find_shared_row(region, in_memory)
    length = row or region.size
    block, warps = int(settings["block"]), int(settings["num_warps"])
    while block >= 2 * length and block > 16:
        block //= 2
    rows, blocks = region.size // length, -(-length // block)
    place = PLACE if row else OFFSET
    index = variable(ROW, rows) * length + variable(place, length)
    free = region.free and bool(index.names)
    ragged = length % block != 0 or (free and not row)
    arguments = Arguments()
    arguments.used.add(_FIRST)
    emitter = Emitter(arguments, in_memory, {place: "inside" if ragged else ""}, index.names)
    emitter.rounded = region.rounded
    for value in region.stores:
        text = emitter.read(value, unravel(index, value.shape))
        emitter.store(value, index, text, index.names)
    lines = emitter.scopes[0].lines if row or ragged else share_quotients(emitter.scopes[0].lines, OFFSET, _FIRST, block)
    wide = ".to(tl.int64)" if arguments.largest >= _BIG else ""
    count = "rows" if free else str(rows)
    turn = f"(tl.program_id(0) % {count}){wide}" if wide else f"tl.program_id(0) % {count}"
    head = [f"{place} = tl.program_id(0){wide} * BLOCK + tl.arange(0, BLOCK)"]
    if any(re.search(rf"\b{_FIRST}\b", line) for line in lines):
        head = [f"{_FIRST} = tl.program_id(0){wide} * BLOCK", f"{OFFSET} = {_FIRST} + tl.arange(0, BLOCK)"]
    if row:
        head = [
            f"row = {turn}  # rows take turns, so that what they share is still in L2",
            f"{place} = tl.program_id(0) // {count} * BLOCK + tl.arange(0, BLOCK)",
        ]
    if ragged:
        head.append(f"inside = {place} < {'size' if free and not row else length}")
    grid = f"({blocks * rows},)"
    if free and not row:
        grid = f"lambda c: (triton.cdiv({region.size}, c['BLOCK']),)"
    return [
        Kernel(
            name=name, does="", arguments=[(arguments.names[id(one)], one) for one in arguments.values],
            sizes=[("rows", str(rows)) if row else ("size", str(region.size))] if free else [],
            constants=[("BLOCK", block)] if index.names else [],
            lines=[*(head if index.names else []), *lines], grid=grid, stores=list(region.stores), warps=warps,
        )
    ]  # fmt: skip


def _find_shared_row(region: PointwiseRegion, in_memory: Callable[[Tensor], bool]) -> int:
    """Elements of a row, where rows share an operand that L2 has lost when the next row reads it; 0 where there is no such operand.

    Rows one after the other read such an operand from memory once for each row, rows in turns once. A norm's weights of many megabytes
    are an example.
    """
    for value in region.stores:
        for axes in range(len(value.shape) - 1, 0, -1):
            length, rows = math.prod(value.shape[axes:]), math.prod(value.shape[:axes])
            shared = _count_shared_bytes(region, variable(ROW, rows) * length + variable(PLACE, length), in_memory)
            moved = region.bytes // rows + shared
            if rows > 1 and length > 1 and shared >= _WORTH * moved and moved > region.card.kept_bytes:
                return length
    return 0


def _count_shared_bytes(region: PointwiseRegion, index: Index, in_memory: Callable[[Tensor], bool]) -> int:
    """Bytes of operands whose element depends on the place in a row alone."""
    walk = Walk(in_memory)
    for value in region.stores:
        walk.visit(value, unravel(index, value.shape))
    return sum(one.bytes for one in walk.leaves.values() if walk.depends[id(one)] == {PLACE})


def write_scatter(region: ScatterRegion, name: str, settings: Settings, in_memory: Callable[[Tensor], bool]) -> list[Kernel]:
    """One program for each block of elements."""
    value = region.scatter
    size = value.source.size
    counting = value.counts and value.size <= _MOST_BINS
    block = int(settings["block"]) * (_COUNTED if counting else 1)
    while block >= 2 * size and block > 16:
        block //= 2
    index = variable(OFFSET, size)
    ragged = size % block != 0
    arguments = Arguments()
    arguments.used |= {"counts", "slots"}
    emitter = Emitter(arguments, in_memory, {OFFSET: "inside" if ragged else ""}, index.names)
    at = unravel(index, value.source.shape)
    texts = [emitter.read(place, where) for place, where in zip(value.places, value.where(at), strict=True)]
    tests = [f"({text} >= 0) & ({text} < {limit})" for text, limit in zip(texts, value.limits, strict=True)]
    mask = " & ".join([*(["inside"] if ragged else []), *tests])
    constants = [("BLOCK", block)]
    if counting:
        pointer = arguments.take(value, stored=True)
        emitter.line(f"counts = tl.histogram({texts[0]}.to(tl.int32), BINS, mask={mask})")
        emitter.line("slots = tl.arange(0, BINS)")
        emitter.line(f'tl.atomic_add({pointer} + slots, counts, mask=(slots < {value.size}) & (counts > 0), sem="relaxed")')
        constants.append(("BINS", round_up(value.size)))
    else:
        element = emitter.read(value.source, at)
        big = value.size >= _BIG
        places = [
            loaded(f"{text}.to(tl.int64)" if big and place.dtype != "int64" else text, limit, emitter.depends(text))
            for text, place, limit in zip(texts, value.places, value.limits, strict=True)
        ]
        address = emitter.address(value, ravel(value.move(at, places), value.shape), stored=True)
        emitter.line(f'tl.atomic_{value.meeting}({address}, {element}, mask={mask}, sem="relaxed")')
    wide = ".to(tl.int64)" if arguments.largest >= _BIG else ""
    head = [f"{OFFSET} = tl.program_id(0){wide} * BLOCK + tl.arange(0, BLOCK)", *([f"inside = {OFFSET} < {size}"] if ragged else [])]
    return [
        Kernel(
            name=name, does="", arguments=[(arguments.names[id(one)], one) for one in arguments.values], sizes=[], constants=constants,
            lines=[*head, *emitter.scopes[0].lines], grid=f"({-(-size // block)},)", stores=list(region.stores),
            warps=int(settings["num_warps"]),
        )
    ]  # fmt: skip
