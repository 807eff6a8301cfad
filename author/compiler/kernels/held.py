"""One kernel for rows that no program can hold: several programs hold a row together, so that it is read once and written once.

Each program keeps its part of a row in registers, leaves what it found of it, waits for the others of its row, and puts all parts together.
All programs of a launch are on the card at once, so none waits for one that has not begun: the launch is cooperative and fails otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.regions import RowRegion, WorkRegion
from tritonsmith.author.compiler.fusing.space import PLACE, ROW, anchor_coordinates
from tritonsmith.author.compiler.ir.values import BYTES, Anchor, Reduction
from tritonsmith.author.compiler.kernels.anchors import LEAST
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel, share_quotients
from tritonsmith.author.compiler.kernels.rows import RowWriter, list_row_stores, order_passes
from tritonsmith.author.compiler.kernels.split import JOINED, find_part_type, list_suffixes, pick_other
from tritonsmith.author.compiler.kernels.tiling import RowLayout, Tiling, choose_tiling, round_up
from tritonsmith.author.recipe import Settings

_KINDS = ("moments", "exponentials", "sum", "prod", "max", "min")
_PER_THREAD = 32
"""Places of a row that a thread keeps, one register each."""
_LEAST_USED = 0.9
"""Whole blocks are taken where so many of the programs get one."""
_OWN = frozenset(("part", "begin", "end", "each", "count", "turn"))
"""Names that its lines give to numbers of their own."""
_LINE = 64
"""Places that a part has a multiple of, so that reads are as wide as they can be."""


@dataclass(frozen=True)
class Sharing:
    """How programs share rows."""

    groups: int
    """Rows at once."""
    parts: int
    """Programs of a row."""
    chunk: int
    """Places of a program."""
    block: int
    """The same as a power of two."""
    warps: int
    registers: int
    """Of a thread, at most, so that all programs are on the card at once."""


def choose_sharing(region: RowRegion, settings: Settings) -> Sharing | None:
    """How programs share rows; None where a row is too long for all of them together."""
    resident, block = int(settings["held"]), int(settings["held_block"])
    programs, length = resident * int(settings["processors"]), region.space.length
    least = -(-length // block)
    if least > programs:
        return None
    groups = min(region.rows, programs // least)
    whole = length % block == 0 and (groups * least >= _LEAST_USED * programs or groups == region.rows)
    chunk = block if whole else -(-length // min(programs // groups, -(-length // _LINE)))
    chunk = min(block, -(-chunk // _LINE) * _LINE)
    warps = max(1, min(32, block // (32 * _PER_THREAD)))
    registers = min(255, region.card.registers // (32 * warps * resident) // 8 * 8)
    return Sharing(groups, -(-length // chunk), chunk, block, warps, registers)


def is_held(region: WorkRegion, settings: Settings) -> bool:
    """Whether programs hold the rows of a region together: they are long, read twice by one program, and large in sum."""
    if not settings.get("held") or not isinstance(region, RowRegion) or region.split:
        return False
    kinds = all(isinstance(one, Reduction) and one.kind in _KINDS for one in region.anchors)
    if not kinds or list_row_stores(region) or region.rows * region.space.length * BYTES["float32"] <= region.card.lost_bytes:
        return False
    passes = order_passes(region)
    if len(passes) != 2 or passes[1][0]:
        return False
    tiling = choose_tiling(region, settings)
    if region.space.length <= int(settings["held_block"]):  # one program holds it
        return False
    return tiling.looped and tiling.layout is RowLayout.ROW and choose_sharing(region, settings) is not None


def write_held(region: RowRegion, name: str, settings: Settings) -> list[Kernel]:
    """The kernel of a region for which `is_held` is true."""
    sharing = choose_sharing(region, settings)
    assert sharing is not None, "asked of is_held"
    return [HeldRowWriter(region, sharing).write(name)]


class HeldRowWriter(RowWriter):
    """Writes the kernel of a region whose rows several programs hold together."""

    def __init__(self, region: RowRegion, sharing: Sharing) -> None:
        super().__init__(region, Tiling(RowLayout.ROW, 1, sharing.block, False, sharing.warps), sharing.chunk)
        self.sharing = sharing
        self.arguments.used |= _OWN
        self.free = region.free and region.space.rows > 1
        self.ragged = sharing.chunk != sharing.block or self.space.length % sharing.block != 0
        self.emitter.bounds[PLACE] = "valid" if self.ragged else ""

    def write(self, name: str) -> Kernel:
        """The kernel."""
        (anchors, early), (_, late) = order_passes(self.region)
        sharing, emitter = self.sharing, self.emitter
        for anchor in anchors:
            self.entitle(anchor)
            emitter.read(anchor.source, anchor_coordinates(anchor)[0])
        known = dict(emitter.scopes[0].known)
        for anchor in anchors:
            assert isinstance(anchor, Reduction), "asked of is_held"
            self.reduce_whole(anchor)
        emitter.scopes[0].known = known  # what was computed from a part's own numbers is not that of the row
        buffers = [self._leave(anchor, suffix) for anchor in anchors for suffix in list_suffixes(anchor)]
        arrived = Buffer(shape=(self.space.rows,), dtype="int32", name="arrived", zeroed=True)
        counter = f"{self.arguments.take(arrived)} + row" if self.space.rows > 1 else self.arguments.take(arrived)
        emitter.line("tl.debug_barrier()  # every warp's stores before the release of one thread")
        emitter.line(f'tl.atomic_add({counter}, 1, sem="release", scope="gpu")')
        emitter.line(f"wait_until({counter}, PARTS)")
        self._join(anchors, buffers)
        ahead = len(emitter.scopes[0].lines)
        self.store_places([*early, *late])
        if not self.ragged:
            body = emitter.scopes[0].lines
            body[ahead:] = share_quotients(body[ahead:], PLACE, "begin", sharing.chunk)
        return Kernel(
            name=name, does="",
            arguments=[(self.arguments.names[id(one)], one) for one in self.arguments.values],
            sizes=[("rows", str(self.space.rows))] if self.free else [], constants=[("PARTS", sharing.parts), ("BLOCK", sharing.block)],
            lines=self._wrap(self.arguments.largest >= 2**31), grid=f"({sharing.groups * sharing.parts},)",
            stores=[*buffers, arrived, *self.region.stores], warps=sharing.warps, registers=sharing.registers, cooperative=True,
        )  # fmt: skip

    def reduce_whole(self, anchor: Reduction) -> None:
        """Make one number of all places at once; a part of a row may hold nothing but -inf, which has no distance from itself."""
        lines = self.emitter.scopes[0].lines
        before = len(lines)
        super().reduce_whole(anchor)
        if anchor.kind == "exponentials":
            title = self.titles[id(anchor)]
            place = next(number for number in range(before, len(lines)) if lines[number].startswith(f"{title} = tl.max("))
            lines.insert(place + 1, f"{title} = tl.maximum({title}, {LEAST})")

    def _leave(self, anchor: Anchor, suffix: str) -> Buffer:
        """Store what a program found of its part of a row."""
        title = f"{self.titles[id(anchor)]}{suffix}"
        buffer = Buffer(shape=(self.space.rows, self.sharing.parts), dtype=find_part_type(anchor, suffix), name=f"{title}_parts")
        self.emitter.line(f"tl.store({self.arguments.take(buffer)} + {self._row}part, {title})")
        return buffer

    @property
    def _row(self) -> str:
        return "row * PARTS + " if self.space.rows > 1 else ""

    def _join(self, anchors: list[Anchor], buffers: list[Buffer]) -> None:
        """Read what all programs of a row found, past L1, and put it together."""
        emitter, parts, left = self.emitter, self.sharing.parts, iter(buffers)
        spread = max(2, round_up(parts))
        emitter.line(f"each = tl.arange(0, {spread})")
        if any(anchor.kind == "moments" for anchor in anchors):
            chunk, length = self.sharing.chunk, self.space.length
            emitter.line(f"count = tl.minimum(tl.maximum({length} - each * {chunk}, 0), {chunk}).to(tl.float32)")
        for anchor in anchors:
            title = self.titles[id(anchor)]
            for suffix in list_suffixes(anchor):
                pointer = self.arguments.take(next(left))
                mask = f", mask=each < PARTS, other={pick_other(anchor, suffix)}" if parts != spread else ""
                emitter.line(f'{title}{suffix}_parts = tl.load({pointer} + {self._row}each{mask}, cache_modifier=".cg")')
            for line in JOINED[anchor.kind]:
                emitter.line(line.format(n=title, length=self.space.length))

    def _wrap(self, big: bool) -> list[str]:
        """The body in a loop over the rows of a group."""
        chunk, length = self.sharing.chunk, self.space.length
        wide = ".to(tl.int64)" if big else ""
        lines = ["part = tl.program_id(0) % PARTS", f"begin = part * {chunk}", f"end = tl.minimum(begin + {chunk}, {length})"]
        lines += ["k = begin + tl.arange(0, BLOCK)", *(["valid = k < end"] if self.ragged else [])]
        body = self.emitter.scopes[0].lines
        if not any(re.search(r"\bend\b", line) for line in (*body, *lines[3:])):
            lines.pop(2)
        lines.insert(0, "# PARTS programs hold a row together, each its part in registers; all are on the card at once.")
        if self.space.rows == 1:
            return [*lines, *body]
        turn = "turn" if wide else ROW
        head = f"for {turn} in range(tl.program_id(0) // PARTS, {'rows' if self.free else self.space.rows}, tl.num_programs(0) // PARTS):"
        return [*lines, head, *([f"    row = turn{wide}"] if wide else []), *(f"    {line}" for line in body)]

