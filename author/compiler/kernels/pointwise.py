"""The kernels of elementwise values, and of elements that meet others at places of a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.regions import PointwiseRegion, ScatterRegion
from tritonsmith.author.compiler.fusing.space import ACROSS, DOWN, OFFSET, PLACE, ROW, Walk, list_addresses
from tritonsmith.author.compiler.ir.code import Compare, Expression, Group, Name, Statement, number
from tritonsmith.author.compiler.ir.indices import Digit, Index, evaluate, loaded, ravel, unravel, variable
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import Lookup, Tensor
from tritonsmith.author.compiler.ir.walk import names_in
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.kernel import Kernel, share_quotients
from tritonsmith.author.compiler.kernels.pieces import assign, join_tests, widen
from tritonsmith.author.compiler.kernels.rows import INSIDE
from tritonsmith.author.compiler.kernels.tiling import round_up
from tritonsmith.author.recipe import Settings

_BIG = 2**31
_PROGRAM = expression("tl.program_id(0)")
_FIRST = "first"
"""The name of the place of a program's first element."""
_WORTH = 1 / 32
"""A shared operand is worth turns from this share of a row's bytes on."""
_MOST_HELD, _LEAST_BLOCK = 128, 128
"""Registers of a thread for rows of several tables that are read ahead of all stores, and elements of a program that reads so many."""
_MOST_BINS = 1024
"""Places of which each program counts its own elements first."""
_COUNTED = 4
"""Blocks of elements of a program that counts: so many fewer atomic additions to the same places."""

_SIDE, _LEAST_SIDE, _EACH = 64, 16, 32
"""Elements of a tile's side at most, and elements that a thread has, where a result lies in another order than an operand. A side of 64
elements of 16 bits is one line of memory, and smaller ones share lines."""
_NARROW = 2
"""Bytes of an element of which a side has so many."""
_LARGE_SHARE = 4
"""An operand in another order is worth tiles from one element for so many of the result on."""


def write_pointwise(region: PointwiseRegion, name: str, settings: Settings, in_memory: Callable[[Tensor], bool]) -> list[Kernel]:
    """One program for each block of elements, or for each tile where an operand lies in another order than the result."""
    row = _find_shared_row(region, in_memory)
    turn = None if row else find_turn(region, in_memory)
    if turn is not None:
        return [_write_turned(region, name, turn, in_memory)]
    length = row or region.size
    block, warps = int(settings["block"]), int(settings["num_warps"])
    while block >= 2 * length and block > 16:
        block //= 2
    looked_up = len(region.stores) > 1 and any(isinstance(one, Lookup) for one in region.evaluated.values())
    while looked_up and block > _LEAST_BLOCK and block * len(region.stores) > 32 * warps * _MOST_HELD:
        block //= 2
    rows, blocks = region.size // length, -(-length // block)
    place = PLACE if row else OFFSET
    index = variable(ROW, rows) * length + variable(place, length)
    free = region.free and bool(index.names)
    ragged = length % block != 0 or (free and not row)
    arguments = Arguments()
    arguments.used.add(_FIRST)
    emitter = Emitter(arguments, in_memory, {place: INSIDE if ragged else None}, index.names)
    emitter.rounded = region.rounded
    if looked_up:  # a load behind a store waits for it, and these wait for a place besides
        for value in region.stores:
            emitter.read(value, unravel(index, value.shape))
    for value in region.stores:
        emitter.store(value, index, emitter.read(value, unravel(index, value.shape)), index.names)
    lines = emitter.scopes[0].lines if row or ragged else share_quotients(emitter.scopes[0].lines, OFFSET, _FIRST, block)
    big = arguments.largest >= _BIG
    head: list[Statement] = []
    if index.names:
        turns = Name("rows") if free else number(rows)
        head = _take_turns(turns, big) if row else _list_places(big, any(_FIRST in names_in(line) for line in lines))
        if ragged:
            end = Name("size") if free and not row else number(length)
            head.append(statement("inside = {place} < {end}", place=place, end=end))
    grid = expression("({programs},)", programs=blocks * rows)
    if free and not row:
        grid = expression("lambda c: (triton.cdiv({size}, c['BLOCK']),)", size=region.size)
    return [
        Kernel(
            name=name, does="", arguments=arguments.list(),
            sizes=[("rows", number(rows)) if row else ("size", number(region.size))] if free else [],
            constants=[("BLOCK", block)] if index.names else [], body=[*head, *lines], grid=grid, stores=list(region.stores),
            warps=warps,
        )
    ]  # fmt: skip


@dataclass(frozen=True)
class Turn:
    """How an operand lies in another order: of [outer, down, across] places of the result, neighbours in memory are those along `down`."""

    outer: int
    down: int
    across: int


def find_turn(region: PointwiseRegion, in_memory: Callable[[Tensor], bool]) -> Turn | None:
    """The order of the largest operand whose neighbours are no neighbours of the result; None where programs read whole lines of memory."""
    best, most = None, 0
    for value in region.stores:
        walk = Walk(in_memory)
        walk.visit(value, unravel(variable(OFFSET, region.size), value.shape))
        for size, index in list_addresses(walk):
            turn = _read_turn(index, region.size)
            if turn is not None and size > most and size * _LARGE_SHARE >= region.size:
                best, most = turn, size
    return best


def _read_turn(index: Index, size: int) -> Turn | None:
    """The turn between the places of a result of so many elements and those of an operand."""
    if abs(evaluate(index, {OFFSET: 1}) - evaluate(index, {})) <= 1:
        return None
    nearest = [atom for atom, factor in index.terms if factor == 1]
    if len(nearest) != 1 or not isinstance(nearest[0], Digit):
        return None
    digit = nearest[0]
    inner = digit.of.terms[0][0] if digit.remainder and len(digit.of.terms) == 1 and not digit.of.constant else digit
    if not isinstance(inner, Digit) or inner.remainder or inner.of != variable(OFFSET, size):
        return None
    down, across = digit.by if digit.remainder else size // digit.by, inner.by
    if min(down, across) < _LEAST_SIDE or size % (down * across):
        return None
    return Turn(size // (down * across), down, across)


def _write_turned(region: PointwiseRegion, name: str, turn: Turn, in_memory: Callable[[Tensor], bool]) -> Kernel:
    """One program for each tile of [down, across]: it reads along one side and stores along the other."""
    side = _SIDE if all(value.bytes <= _NARROW * value.size for value in region.stores) else _SIDE // 2
    sides = {DOWN: min(_SIDE, round_up(turn.down)), ACROSS: min(side, round_up(turn.across))}
    sizes = {DOWN: turn.down, ACROSS: turn.across}
    blocks = {axis: -(-sizes[axis] // sides[axis]) for axis in sizes}
    arguments = Arguments()
    conditions = {axis: Name(f"in_{axis}") for axis in sizes}
    arguments.used |= {"pid", DOWN, ACROSS, *(condition.name for condition in conditions.values())}
    ragged = [axis for axis in sizes if sizes[axis] % sides[axis]]
    emitter = Emitter(
        arguments, in_memory, {axis: conditions[axis] if axis in ragged else None for axis in sizes}, frozenset((ROW, DOWN, ACROSS)),
    )  # fmt: skip
    emitter.rounded = region.rounded
    outer, down, across = variable(ROW, turn.outer), variable(DOWN, turn.down), variable(ACROSS, turn.across)
    index = outer * (turn.down * turn.across) + down * turn.across + across
    for value in region.stores:
        emitter.store(value, index, emitter.read(value, unravel(index, value.shape)), index.names)
    programs = variable("pid", turn.outer * blocks[DOWN] * blocks[ACROSS])
    row, *block = unravel(programs, (turn.outer, blocks[DOWN], blocks[ACROSS]))
    head: list[Statement] = [assign("pid", widen(_PROGRAM, arguments.largest >= _BIG))]
    head += [assign(ROW, row.code)] if turn.outer > 1 else []
    for axis, place, shown in zip(sizes, block, ("[:, None]", "[None, :]"), strict=True):
        block_side = Name(axis.upper())
        places = expression("tl.arange(0, {side})", side=block_side)
        if place.names:
            start = place.code if place.code == Name("pid") else Group(place.code)
            places = expression("({start} * {side} + {places})", start=start, side=block_side, places=places)
        head.append(assign(axis, expression(f"{{places}}{shown}", places=places)))
    head += [statement("{test} = {axis} < {size}", test=conditions[axis], axis=Name(axis), size=sizes[axis]) for axis in ragged]
    return Kernel(
        name=name, does="", arguments=arguments.list(), sizes=[], constants=[("DOWN", sides[DOWN]), ("ACROSS", sides[ACROSS])],
        body=[*head, *emitter.scopes[0].lines],
        grid=expression("({programs},)", programs=turn.outer * blocks[DOWN] * blocks[ACROSS]), stores=list(region.stores),
        warps=max(1, sides[DOWN] * sides[ACROSS] // (32 * _EACH)),
    )  # fmt: skip


def _take_turns(rows: Expression, big: bool) -> list[Statement]:
    """The lines that say which row and places a program has, where rows take turns."""
    turn = expression("tl.program_id(0) % {rows}", rows=rows)
    return [*statements(
        """
        row = {turn}  # rows take turns, so that what they share is still in L2
        k = tl.program_id(0) // {rows} * BLOCK + tl.arange(0, BLOCK)
        """,
        turn=widen(Group(turn), big) if big else turn, rows=rows,
    )]  # fmt: skip


def _list_places(big: bool, named: bool = False) -> list[Statement]:
    """The lines that say which elements a program has; `named`: with a name for the first one."""
    first = expression("{program} * BLOCK", program=widen(_PROGRAM, big))
    template = "first = {first}\noffset = first + tl.arange(0, BLOCK)" if named else "offset = {first} + tl.arange(0, BLOCK)"
    return [*statements(template, first=first)]


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
    tables = {id(one.table) for one in walk.formulas.values() if isinstance(one, Lookup)}  # of which each row reads others
    return sum(one.bytes for key, one in walk.leaves.items() if walk.depends[key] == {PLACE} and key not in tables)


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
    emitter = Emitter(arguments, in_memory, {OFFSET: INSIDE if ragged else None}, index.names)
    at = unravel(index, value.source.shape)
    found = [emitter.read(place, where) for place, where in zip(value.places, value.where(at), strict=True)]
    inside = [INSIDE] if ragged else []
    mask = join_tests([*inside, *(test for node, limit in zip(found, value.limits, strict=True) for test in _list_tests(node, limit))])
    assert mask is not None, "places have limits"
    constants = [("BLOCK", block)]
    if counting:
        emitter.line(*statements(
            """
            counts = tl.histogram({place}.to(tl.int32), BINS, mask={mask})
            slots = tl.arange(0, BINS)
            tl.atomic_add({pointer} + slots, counts, mask=(slots < {size}) & (counts > 0), sem="relaxed")
            """,
            place=found[0], mask=mask, pointer=arguments.take(value, stored=True), size=value.size,
        ))  # fmt: skip
        constants.append(("BINS", round_up(value.size)))
    else:
        element = emitter.read(value.source, at)
        big = value.size >= _BIG
        places = [
            loaded(widen(node, big and not (place.dtype == "int64" and in_memory(place))), limit, emitter.depends(node))
            for node, place, limit in zip(found, value.places, value.limits, strict=True)
        ]
        address = emitter.address(value, ravel(value.move(at, places), value.shape), stored=True)
        emitter.line(statement(
            'tl.{meet}({address}, {element}, mask={mask}, sem="relaxed")',
            meet=f"atomic_{value.meeting}", address=address, element=element, mask=mask,
        ))  # fmt: skip
    head = _list_places(max(arguments.largest, size) >= _BIG)
    head += [statement("inside = offset < {size}", size=size)] if ragged else []
    return [
        Kernel(
            name=name, does="", arguments=arguments.list(), sizes=[], constants=constants, body=[*head, *emitter.scopes[0].lines],
            grid=expression("({programs},)", programs=-(-size // block)), stores=list(region.stores),
            warps=int(settings["num_warps"]),
        )
    ]  # fmt: skip


def _list_tests(node: Expression, limit: int) -> tuple[Expression, Expression]:
    """Conditions under which a number is a place."""
    return Group(Compare((">=",), (node, number(0)))), Group(Compare(("<",), (node, number(limit))))
