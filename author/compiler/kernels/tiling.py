"""How a kernel of rows is laid out: how many rows and places a program holds at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tritonsmith.author.compiler.fusing.regions import RowRegion, count_passes, list_places
from tritonsmith.author.compiler.fusing.space import PLACE, ROW, Walk, anchor_coordinates, list_addresses
from tritonsmith.author.compiler.ir.indices import evaluate
from tritonsmith.author.compiler.ir.values import Scan
from tritonsmith.author.recipe import Settings

_WINDOW = 64
"""Places of a row that one thread goes through by itself."""
_NEAR = 8
"""Elements between neighbouring rows up to which such threads still read whole lines of memory together."""
_LEAST_THREADS = 128
_FEW_ROWS = 8
_IDLE, _LONG = 8, 1024
"""Fewer programs than one for so many processors are too few for rows of so many places, however well they read."""
_MANY_ROWS = 1024
_TOGETHER = 4
"""Rows of a program that read a shared operand together; so many rows still give a large card enough programs."""
_SORTED = 1024
"""Elements of a program that sorts rows."""
_SORTED_BY_THREAD = 8
_SHARE = 4
"""A shared operand of a row's size over this is worth it."""


class RowLayout(StrEnum):
    """What a program holds at once."""

    ROW = "row"
    """A row, or blocks of one."""
    TILE = "tile"
    """Several rows, all or blocks of them."""
    COLUMNS = "columns"
    """One place of many rows."""


@dataclass(frozen=True)
class Tiling:
    """The layout with its sizes."""

    layout: RowLayout
    rows: int
    """Of a program; 1 for a row."""
    block: int
    """Places at once; 1 for columns."""
    looped: bool
    warps: int


def round_up(number: int) -> int:
    """The next power of two."""
    return 1 << max(0, number - 1).bit_length()


def find_strides(region: RowRegion) -> tuple[int, int]:
    """How far neighbouring rows, and neighbouring places of a row, lie apart in the largest tensor that is read."""
    found = [1, 1]
    largest = -1
    for anchor in region.anchors:
        walk = Walk(lambda one: id(one) in region.reads)
        walk.visit(anchor.source, anchor_coordinates(anchor)[0])
        for size, index in list_addresses(walk):
            if size > largest:
                here = evaluate(index, {})
                largest, found = size, [evaluate(index, {name: 1}) - here for name in (ROW, PLACE)]
    return found[0], found[1]


def choose_tiling(region: RowRegion, settings: Settings, shared: bool = False) -> Tiling:
    """The layout in which neighbouring threads read neighbouring memory, with enough programs for a card."""
    space, fits = region.space, region.card.fits.rows
    near, step = (abs(one) for one in find_strides(region))
    tile, per_thread = int(settings["tile"]), int(settings["per_thread"])
    length, passes = round_up(space.length), count_passes(region)
    most = int(settings["whole_row"]) // fits.whole_over
    if any(isinstance(anchor, Scan) and anchor.whole for anchor in region.anchors):
        rows = min(round_up(region.rows), max(1, _SORTED // length))
        return Tiling(RowLayout.TILE if rows > 1 else RowLayout.ROW, rows, length, False, _count_warps(rows * length, _SORTED_BY_THREAD))
    if 0 < near < step and region.rows > 1 and not shared and passes > 1 and 32 * length <= most:
        rows = min(round_up(region.rows), max(32, min(256, most // (2 * length))))
        return Tiling(RowLayout.TILE, rows, length, False, _count_warps(rows * length, fits.apart * per_thread))
    if space.length <= _WINDOW and near <= _NEAR and (near < step or space.length < _WINDOW and near != space.length) and region.rows >= 32:
        rows = min(256, round_up(region.rows))
        return Tiling(RowLayout.COLUMNS, rows, 1, True, max(1, min(8, rows // 64)))
    if region.rows > 1 and (near and near < step or step == 0):  # neighbouring rows are neighbours in memory
        rows = min(64, round_up(region.rows))
        if _IDLE * region.rows < rows * region.card.processors and space.length >= _LONG:
            rows = max(1, round_up(region.rows // region.card.processors))
        block = min(length, max(1, tile // rows))
        if block == 1:
            return Tiling(RowLayout.COLUMNS, rows, 1, True, max(1, rows // 64))
        return Tiling(RowLayout.TILE, rows, block, block < space.length, _count_warps(rows * block, per_thread))
    if region.rows <= _FEW_ROWS or passes > 1 and _is_light(region):  # a program that is alone waits for memory once
        most = int(settings["whole_row"])
    if length > most and not shared and region.rows >= _MANY_ROWS and passes == 1 and _shares_most(region):
        return Tiling(RowLayout.TILE, _TOGETHER, tile // _TOGETHER, True, _count_warps(tile, per_thread))
    wide = passes > 1 and not shared and not any(isinstance(anchor, Scan) for anchor in region.anchors)
    if length > most or shared:
        # fewer rows are read at once where a row is gone along again, and L2 has them still
        tile, per_thread = (fits.wider * tile, per_thread // fits.wider) if wide else (tile, per_thread)
        return Tiling(RowLayout.ROW, 1, tile, True, _count_warps(tile, per_thread))
    rows = min(round_up(region.rows), max(1, 1024 // length))
    written = wide and 0 < fits.long <= length and bool(list_places(region))
    if written and space.length == fits.long and _is_light(region):  # read twice, the second time from L2: more programs fit then
        return Tiling(RowLayout.ROW, 1, length // 2, True, _count_warps(length // 2, per_thread // fits.wider))
    per_thread = per_thread // fits.wider if written else per_thread
    return Tiling(RowLayout.TILE if rows > 1 else RowLayout.ROW, rows, length, False, _count_warps(rows * length, per_thread))


def _is_light(region: RowRegion) -> bool:
    """Whether a program that holds a row has one value for each of its places: one tensor of that size is read, and one is stored."""
    size = region.rows * region.space.length
    return all(sum(value.size >= size for value in values) <= 1 for values in (region.reads.values(), region.stores))


def _shares_most(region: RowRegion) -> bool:
    """Whether rows share an operand that is not small next to a row, as those of a matrix share the vector that it multiplies."""
    own = shared = 0
    for anchor in region.anchors:
        walk = Walk(lambda one: id(one) in region.reads)
        walk.visit(anchor.source, anchor_coordinates(anchor)[0])
        for size, index in list_addresses(walk):
            if index.names == {PLACE}:
                shared += size
            else:
                own += size // region.rows
    return _SHARE * shared >= own


def _count_warps(elements: int, per_thread: int) -> int:
    """Warps of a program, so that each thread has some elements."""
    return max(1, min(32, round_up(elements // (32 * per_thread)))) if elements >= _LEAST_THREADS else 1
