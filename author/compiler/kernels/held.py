"""One kernel for rows that no program can hold: several programs hold a row together, so that it is read once and written once.

Each program keeps its part of a row in registers, leaves what it found of it, waits for the others of its row, and puts all parts together.
All programs of a launch are on the card at once, so none waits for one that has not begun: the launch is cooperative and fails otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.regions import RowRegion, WorkRegion
from tritonsmith.author.compiler.fusing.space import PLACE, ROW, anchor_coordinates
from tritonsmith.author.compiler.ir.code import Assign, Expression, Name, Statement, number
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import BYTES, EXPONENTIALS, Anchor, Reduction
from tritonsmith.author.compiler.ir.walk import names_in
from tritonsmith.author.compiler.kernels.anchors import (
    LEAST,
    Terms,
    fill_line,
    find_part_type,
    list_joins,
    list_suffixes,
    pick_other,
)
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel, share_quotients
from tritonsmith.author.compiler.kernels.pieces import assign, load, loop, options, store, widen
from tritonsmith.author.compiler.kernels.rows import VALID, RowWriter, list_row_stores, order_passes
from tritonsmith.author.compiler.kernels.tiling import RowLayout, Tiling, choose_tiling, round_up
from tritonsmith.author.recipe import Settings

_KINDS = ("moments", "exponentials", "logsumexp", "sum", "prod", "max", "min")
_PER_THREAD = 32
"""Places of a row that a thread keeps, one register each."""
_LEAST_USED = 0.9
"""Whole blocks are taken where so many of the programs get one."""
_OWN = frozenset(("part", "begin", "end", "each", "count", "turn"))
"""Names that its lines give to numbers of their own."""
_ROW_NAME = Name(ROW)
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
        self.emitter.bounds[PLACE] = VALID if self.ragged else None

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
        counter = self._address(arrived, _ROW_NAME if self.space.rows > 1 else None)
        emitter.line(*statements(
            """
            tl.debug_barrier()  # every warp's stores before the release of one thread
            tl.atomic_add({counter}, 1, sem="release", scope="gpu")
            wait_until({counter}, PARTS)
            """,
            counter=counter,
        ))  # fmt: skip
        self._join(anchors, buffers)
        ahead = len(emitter.scopes[0].lines)
        self.store_places([*early, *late])
        if not self.ragged:
            body = emitter.scopes[0].lines
            body[ahead:] = share_quotients(body[ahead:], PLACE, "begin", sharing.chunk)
        return Kernel(
            name=name, does="",
            arguments=self.arguments.list(), sizes=[("rows", number(self.space.rows))] if self.free else [],
            constants=[("PARTS", sharing.parts), ("BLOCK", sharing.block)], body=self._wrap(self.arguments.largest >= 2**31),
            grid=expression("({programs},)", programs=sharing.groups * sharing.parts),
            stores=[*buffers, arrived, *self.region.stores], warps=sharing.warps, registers=sharing.registers, cooperative=True,
        )  # fmt: skip

    def add_line(self, line: Statement, anchor: Reduction) -> None:
        """Add a line of a reduction; a part of a row may hold nothing but -inf, which has no distance from itself."""
        super().add_line(line, anchor)
        title = self.titles[id(anchor)]
        if anchor.kind in EXPONENTIALS and isinstance(line, Assign) and line.targets == (Name(title),):
            self.emitter.line(assign(title, _raise_to_least(anchor.kind, Name(title))))

    def _leave(self, anchor: Anchor, suffix: str) -> Buffer:
        """Store what a program found of its part of a row."""
        title = f"{self.titles[id(anchor)]}{suffix}"
        buffer = Buffer(shape=(self.space.rows, self.sharing.parts), dtype=find_part_type(anchor, suffix), name=f"{title}_parts")
        self.emitter.line(store(self._address(buffer, *self._place(Name("part"))), Name(title), None))
        return buffer

    def _place(self, part: Expression) -> tuple[Expression, ...]:
        """The terms of the place of a part among those of all rows."""
        return (expression("row * PARTS"), part) if self.space.rows > 1 else (part,)

    def _address(self, buffer: Buffer, *terms: Expression | None) -> Expression:
        """A place in memory between the programs."""
        address: Expression = Name(self.arguments.take(buffer))
        for term in terms:
            address = address if term is None else expression("{a} + {b}", a=address, b=term)
        return address

    def _join(self, anchors: list[Anchor], buffers: list[Buffer]) -> None:
        """Read what all programs of a row found, past L1, and put it together."""
        emitter, parts, left, length = self.emitter, self.sharing.parts, iter(buffers), self.space.length
        spread = max(2, round_up(parts))
        emitter.line(statement("each = tl.arange(0, {spread})", spread=spread))
        if any(anchor.kind == "moments" for anchor in anchors):
            emitter.line(statement(
                "count = tl.minimum(tl.maximum({length} - each * {chunk}, 0), {chunk}).to(tl.float32)",
                length=length, chunk=self.sharing.chunk,
            ))  # fmt: skip
        mask = expression("each < PARTS") if parts != spread else None
        for anchor in anchors:
            title = self.titles[id(anchor)]
            for suffix in list_suffixes(anchor):
                address = self._address(next(left), *self._place(Name("each")))
                loaded = load(address, mask, pick_other(anchor, suffix), options(cache_modifier=".cg"))
                emitter.line(assign(f"{title}{suffix}_parts", loaded))
            emitter.line(*(fill_line(line, Terms(title, number(length))) for line in list_joins(anchor)))

    def _wrap(self, big: bool) -> list[Statement]:
        """The body in a loop over the rows of a group."""
        body = self.emitter.scopes[0].lines
        head = [*statements(
            """
            # PARTS programs hold a row together, each its part in registers; all are on the card at once.
            part = tl.program_id(0) % PARTS
            begin = part * {chunk}
            """,
            chunk=self.sharing.chunk,
        )]  # fmt: skip
        if self.ragged or any("end" in names_in(line) for line in body):
            head.append(statement("end = tl.minimum(begin + {chunk}, {length})", chunk=self.sharing.chunk, length=self.space.length))
        head += statements("k = begin + tl.arange(0, BLOCK)")
        head += [statement("valid = k < end")] if self.ragged else []
        if self.space.rows == 1:
            return [*head, *body]
        turn = "turn" if big else ROW
        inner = [assign(ROW, widen(Name(turn), True))] if big else []
        first, last = expression("tl.program_id(0) // PARTS"), Name("rows") if self.free else number(self.space.rows)
        return [*head, loop(turn, first, last, expression("tl.num_programs(0) // PARTS"), body=[*inner, *body])]


def _raise_to_least(kind: str, most: Expression) -> Expression:
    """A maximum of exponentials that is LEAST at least; that of a `logsumexp` keeps NaN."""
    keeps = "" if kind == "exponentials" else ", propagate_nan=tl.PropagateNan.ALL"
    return expression(f"tl.maximum({{x}}, {{y}}{keeps})", x=most, y=LEAST)
