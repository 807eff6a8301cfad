"""What a kernel's loops carry: time steps or work that other designs would launch (persistent), or a reduction or scan (row loop)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tritonsmith.evaluator.texts.detect.algorithms import find_flash_loops
from tritonsmith.evaluator.texts.detect.convolutions import passes_over_window
from tritonsmith.evaluator.texts.detect.records import Trait, TraitHit
from tritonsmith.evaluator.texts.source.forms import Polynomial, find_multiple
from tritonsmith.evaluator.texts.source.loop_heads import is_multiple_of_programs
from tritonsmith.evaluator.texts.source.values import AccessSite, KernelWalk, Loop, Use

_FEW_TRIPS = 11
"""A loop of at most so many iterations is unrolled code rather than a pass over a row."""


_OTHER_WORK = ("a row loop, if the grid has a program for every tile", "a loop over tiles of one row")
"""What work in turn may be besides."""


@dataclass(frozen=True, order=True)
class Reason:
    """Why a loop is what it is; the outermost one is told."""

    depth: int
    line: int
    text: str
    nearest: str = ""
    loop: int = 0
    in_turn: bool = False
    """It says that a program takes several pieces of work."""


def find_loop_traits(
    walk: KernelWalk, explained: frozenset[int], transform: TraitHit | None = None
) -> tuple[TraitHit | None, TraitHit | None]:
    """The persistent loop and the row loop of a kernel.

    Args:
        walk: the kernel.
        explained: loops that another label describes better, such as a serial product's.
        transform: an algorithm of high complexity, whose own loop is no recurrence and whose passes over rows are its own.
    """
    persistent, rows = [], []
    described = _find_described_loops(walk, transform) if transform is not None else set()
    reducing = {loop.bound for loop in walk.loops.values() if _explain_row(walk, loop)}
    for loop in walk.loops.values():
        if loop.polls or loop.trips is not None and loop.trips <= 1:
            continue
        depth = len(loop.outer)
        found = [
            Reason(depth, loop.line, text, nearest, loop.id, nearest in _OTHER_WORK)
            for text, nearest in _explain_persistence(walk, loop, reducing, loop.id in described)
        ]
        persistent += found[:1]
        row = _explain_row(walk, loop)
        many = loop.trips > _FEW_TRIPS if loop.trips is not None else not passes_over_window(walk, loop)
        if not found and row and loop.id not in explained and many and (not loop.has_dot or _passes_beside_dot(walk, loop)):
            rows.append(Reason(depth, loop.line, *row, loop.id))
    if not persistent:
        persistent = [Reason(0, poll.line, "waits for other programs") for poll in walk.polls_in(0)]
    around = {reason.loop for reason in persistent}
    rows = [reason for reason in rows if not around & set(walk.loops[reason.loop].outer)]
    return (
        _make_hit(walk, Trait.PERSISTENT, persistent, "stays in the kernel"),
        _make_hit(walk, Trait.ROW_LOOP, rows, "passes over a row") if transform is None else None,
    )


def _find_described_loops(walk: KernelWalk, transform: TraitHit) -> set[int]:
    """Loops of an algorithm of high complexity: those of Flash Attention, or the innermost around its line that hands something on."""
    if lines := {loop.line for loop, _ in find_flash_loops(walk)}:
        return {loop.id for loop in walk.loops.values() if loop.line in lines}
    around = [walk.loops[number] for number in reversed(walk.loops_at.get(transform.line or 0, ()))]
    return set([loop.id for loop in around if any((*_explain_registers(walk, loop), *_explain_memory(walk, loop)))][:1])


def _make_hit(walk: KernelWalk, name: Trait, reasons: list[Reason], what: str) -> TraitHit | None:
    if not reasons:
        return None
    first = min(reasons)
    text = f"{walk.name}: the loop in line {first.line} {what}: {first.text}"
    seen = walk.loops[first.loop].seen if first.loop in walk.loops else None
    if seen is not None:
        text += f"; a program made at most {seen} iteration{'s' if seen > 1 else ''} in the forward that was run"
    return TraitHit(name=name, line=first.line, evidence=text, nearest=_choose_nearest(first, seen))


def _choose_nearest(reason: Reason, seen: int | None) -> str:
    """The nearest other explanation, as far as a forward that was run has not ruled it out."""
    if not reason.in_turn or seen is None:
        return reason.nearest
    return "" if seen > 1 else "ordinary tiles: each program had one in the forward that was run"


def _explain_persistence(walk: KernelWalk, loop: Loop, reducing: set[str], described: bool) -> Iterator[tuple[str, str]]:
    if walk.polls_in(loop.id):
        yield "every iteration waits for other programs", ""
    if loop.queue:
        yield "each program takes tiles from a counter until none is left", ""
    if _strides_over_programs(walk, loop):
        yield "each program takes several tiles, as far apart as there are programs", _OTHER_WORK[0]
    if not described:
        yield from _explain_registers(walk, loop)
        yield from _explain_memory(walk, loop)
    if _moves_on_from_share(walk, loop) or _divides_share(walk, loop):
        yield "each program goes from one piece of work to the next in a share of its own", _OTHER_WORK[1]
    if _takes_share(walk, loop) or loop.bound not in reducing and not loop.updates and _takes_several_rows(walk, loop):
        yield f"each program takes {loop.bound} pieces of work in turn", _OTHER_WORK[1]


def _explain_registers(walk: KernelWalk, loop: Loop) -> Iterator[tuple[str, str]]:
    """A recurrence: a name is what the iteration before left, multiplied or put through a function."""
    moving = [access for access in walk.accesses if loop.id in access.loops and loop.name in access.address.form.deps]
    moves = bool(moving)
    loads = [access.address for access in moving if access.kind == "load"]
    if loop.kind == "static" and not any(loop.id in access.loops for access in walk.accesses):
        return  # stages of a network in registers, such as a sort
    shared = bool(loads) and not any(address.rank > 0 or address.pids for address in loads)  # only numbers that all elements share
    outer = {total for product in walk.products if product.outer for total in product.totals}
    for name, use in sorted(loop.updates.items()):
        stored = next((store for store in _stores(walk, loop) if _holds(store, loop, name)), None)
        where = f" and is stored in line {stored.line}" if stored else ""
        if use >= Use.EXPONENT and (moves and not shared or loop.has_dot or name in loop.mixed):
            yield f"{name} is computed from its value of the iteration before{where}", ""
        elif use is Use.LINEAR and (stored or name in loop.gated and not shared) and moves:
            yield f"{name} is scaled and added to in each iteration{where}", "a row loop: a scan by an associative rule"
        elif use <= Use.SUM and name in loop.moved and moves and not shared:
            yield f"{name} is computed from other elements of the iteration before{where}", ""
        elif use <= Use.SUM and stored and moves and (name in loop.dotted or (loop.id, name) in outer):
            yield f"{name} grows from one iteration to the next{where}", "a row loop: a prefix sum of products"


def _explain_row(walk: KernelWalk, loop: Loop) -> tuple[str, str] | None:
    """A sum, maximum or scan over the iterations; None for other loops."""
    if loop.polls:
        return None
    moving = [access for access in walk.accesses if loop.id in access.loops and _moves_with(access, loop)]
    own = any(access.address.rank > 0 or access.address.pids for access in moving)
    for name, use in sorted(loop.updates.items()):
        if use <= Use.LINEAR and moving and (own or name not in loop.tiles):  # else over numbers that all elements share: no row of theirs
            stored = any(_holds(store, loop, name) for store in _stores(walk, loop))
            nearest = "persistent, if an iteration is a time step" if stored else ""
            return f"{name} is a {'scan' if stored else 'reduction'} over its iterations", nearest
    for store, _, use in _find_memory_state(walk, loop):
        if use <= Use.SUM:
            return f"line {store.line} adds to what an earlier iteration stored", "persistent, if an iteration is a time step"
    return None


def _passes_beside_dot(walk: KernelWalk, loop: Loop) -> bool:
    """Whether a loop with tl.dot passes over a row as well.

    It keeps no more of each product than sums or maxima along an axis, or it adds up plain numbers and stores them as it goes on: a prefix
    sum that uses tl.dot within tiles.
    """
    if loop.reduced and loop.reduced == loop.dotted:
        return True
    plain = [name for name, use in loop.updates.items() if use <= Use.SUM and name not in loop.dotted]
    return bool(plain) and any(_holds(store, loop, name) for store in _stores(walk, loop) for name in plain)


def _moves_with(access: AccessSite, loop: Loop) -> bool:
    """Whether an address changes from one iteration to the next."""
    return any(dep == loop.name or dep.startswith(f"carried:{loop.id}:") for dep in access.address.form.deps)


def _explain_memory(walk: KernelWalk, loop: Loop) -> Iterator[tuple[str, str]]:
    for store, load, use in _find_memory_state(walk, loop):
        if use > Use.SUM or use is Use.SUM and _moves_elements(store.address.form, load.address.form, loop):
            root = min(store.address.roots & load.address.roots)
            yield f"an iteration loads from {root} (line {load.line}) what an earlier one stored (line {store.line})", ""


def _moves_elements(stored: Polynomial, loaded: Polynomial, loop: Loop) -> bool:
    """Whether each element of a tile rests on its neighbour of an earlier iteration, as in a table that is filled by diagonals."""
    shift = dict((loaded - stored).terms).get((), 0)
    units = [stored.coefficient(symbol.name).constant for symbol in stored.symbols() if symbol.kind == "range"]
    steady = loop.name in loaded.deps and not any(dep.startswith("carried:") for dep in loaded.deps)
    return steady and not stored.coefficient(loop.name).constant and any(unit and shift and shift % unit == 0 for unit in units)


def _holds(store: AccessSite, loop: Loop, name: str) -> bool:
    """Whether what is stored rests on a name that the loop carries."""
    return any((owner, key) == (loop.id, name) for owner, key, _ in store.value.carried)


def _stores(walk: KernelWalk, loop: Loop) -> list[AccessSite]:
    return [access for access in walk.accesses if access.kind == "store" and loop.id in access.loops]


def _find_memory_state(walk: KernelWalk, loop: Loop) -> Iterator[tuple[AccessSite, AccessSite, Use]]:
    """Stores and loads of one buffer by which a later iteration reads what an earlier one wrote."""
    stores = _stores(walk, loop)
    polls = {inner.id for inner in walk.loops.values() if inner.polls}
    loads = [access for access in walk.accesses if access.kind == "load" and loop.id in access.loops and not polls & set(access.loops)]
    inner = {f"loop:{other.id}" for other in walk.loops.values() if loop.id in other.outer}
    for store in stores:
        for load in loads:
            shared = store.address.roots & load.address.roots
            uses = [use for root, use in store.value.reads if root in shared]
            if not uses and shared:
                uses = [Use.FULL] if _goes_around(stores, store, shared) else []
            if uses and _reaches_later(store.address.form, load.address.form, loop, inner):
                yield store, load, max(uses)


def _goes_around(stores: list[AccessSite], store: AccessSite, shared: frozenset[str]) -> bool:
    """Whether the store's value comes from a buffer into which another store puts what comes from this one."""
    sources = {root for root, _ in store.value.reads}
    return any(other.address.roots & sources and shared & {root for root, _ in other.value.reads} for other in stores)


def _reaches_later(store: Polynomial, load: Polynomial, loop: Loop, inner: set[str]) -> bool:
    """Whether a later iteration loads what this one stores."""
    stored, loaded = (_drop(form, inner) for form in (store, load))
    pointers = f"carried:{loop.id}:"
    if any(dep.startswith(pointers) for dep in stored.deps | loaded.deps):
        return True
    step, other = stored.coefficient(loop.name), loaded.coefficient(loop.name)
    apart = loaded - stored
    if loop.name not in store.deps and loop.name not in load.deps:
        return True  # one place, again and again
    if step == other and loop.name not in apart.deps:
        return bool(apart.terms) and find_multiple(apart, step) is not None
    rest = Polynomial(frozenset((part, number) for part, number in apart.terms if all(loop.name not in symbol.all_deps for symbol in part)))
    opaque = any(symbol.kind == "opaque" and loop.name in symbol.deps for symbol in (*stored.symbols(), *loaded.symbols()))
    return opaque or not rest.terms


def _drop(form: Polynomial, inner: set[str]) -> Polynomial:
    """The part of an address that programs, elements of a tile and inner loops share."""
    kept = form.split("range", "program")[1]
    return Polynomial(frozenset((part, number) for part, number in kept.terms if not any(inner & symbol.all_deps for symbol in part)))


def takes_work_in_turn(walk: KernelWalk) -> bool:
    """Whether programs take several pieces of work each, so that their number is free."""
    return any(
        loop.queue or _strides_over_programs(walk, loop) or _takes_share(walk, loop) or _divides_share(walk, loop)
        or not loop.updates and not any(_explain_memory(walk, loop)) and _takes_several_rows(walk, loop)
        # else time steps, which lie side by side in memory as rows do
        for loop in walk.loops.values()
    )


def _strides_over_programs(walk: KernelWalk, loop: Loop) -> bool:
    """Whether the work of a program lies as far apart as there are programs."""
    written = any(access.kind != "load" and loop.id in access.loops for access in walk.accesses)
    if loop.dotted and not written:
        return False  # the inner dimension of a product, of which each program takes a part
    extents = list(walk.ranges.values())
    addresses = [access.address.form for access in walk.accesses if loop.id in access.loops]
    if any(is_multiple_of_programs(form.coefficient(loop.name)) for form in loop.variables):
        return True
    if loop.last is not None and loop.step is not None and loop.step.constant is None and loop.step not in extents:
        starts, ends = (any(dep.startswith("program:") for dep in form.deps) for form in (loop.first, loop.last))
        if starts and not ends:
            return True
    if _stores(walk, loop) and (_leaps_from_program(loop) or any(_counts_through_pool(form, loop) for form in addresses)):
        return True
    if any(_starts_at_program(form, loop) for form in loop.leaps) and _stores(walk, loop):
        return True
    if not loop.updates and any(_starts_at_program(form, loop) and form.coefficient(loop.name) not in extents for form in loop.counters):
        return bool(_stores(walk, loop))
    unrolled = loop.trips is not None and loop.trips <= _FEW_TRIPS
    return not unrolled and any(_continues_programs(walk, form, loop) for form in addresses)


def _leaps_from_program(loop: Loop) -> bool:
    """Whether a loop begins at a program's number and goes on by a number that is given, which then is that of all programs."""
    step, last = loop.step.constant if loop.step else None, loop.last
    begins = any(loop.first.coefficient(dep).constant == 1 for dep in loop.first.deps if dep.startswith("program:"))
    return begins and step is not None and step > 1 and last is not None and not any(dep.startswith("program:") for dep in last.deps)


def _counts_through_pool(address: Polynomial, loop: Loop) -> bool:
    """Whether places are a program's number plus iterations times a number of programs, by which the work was divided for the bound."""
    quotients = [symbol for symbol in (loop.last.symbols() if loop.last else ()) if symbol.key.startswith(("FloorDiv", "cdiv"))]
    pools = [symbol.parts[1] for symbol in quotients if len(symbol.parts) == 2]
    for form in (address, *(part for symbol in address.all_symbols() for part in symbol.parts)) if pools else ():
        step, units = form.coefficient(loop.name), [form.coefficient(dep) for dep in form.deps if dep.startswith("program:")]
        if any(unit.terms and step == unit * pool for unit in units for pool in pools):
            return True
    return False


def _starts_at_program(form: Polynomial, loop: Loop) -> bool:
    """Whether a counter begins with a program's number and grows by a size that no constant is: that of a pool of programs."""
    ones = [dep for dep in form.deps if dep.startswith("program:") and form.coefficient(dep).constant == 1]
    return bool(ones) and form.coefficient(loop.name).constant is None


def _continues_programs(walk: KernelWalk, form: Polynomial, loop: Loop) -> bool:
    """Whether an iteration moves an address on by all programs, and not by a tile whose elements lie as far apart.

    What adds up goes on to another tile only where something is stored for each, or where tiles fill the space between programs and each
    program has one number in the end. Else the number of programs is the length of a row.
    """
    step = form.coefficient(loop.name)
    tiles = [form.coefficient(symbol.name) * walk.ranges[symbol.name] for symbol in form.symbols() if symbol.kind == "range"]
    if not is_multiple_of_programs(step) or step in tiles:
        return False
    units = [form.coefficient(dep) for dep in form.deps if dep.startswith("program:")]
    numbers = all(access.address.rank == 0 for access in walk.accesses if access.kind != "load")
    return not loop.updates or bool(_stores(walk, loop)) or numbers and any(unit in tiles for unit in units)


def _takes_share(walk: KernelWalk, loop: Loop) -> bool:
    """Whether a program goes from its own first piece of work to its own last one, and stores something for each that rests on no other."""
    if loop.last is None or loop.step is None or loop.step.constant != 1:
        return False
    if not loop.updates and _reads_share(loop) and any(loop.name in store.address.form.deps for store in _stores(walk, loop)):
        return any(store.address.form.coefficient(loop.name).constant != 1 for store in _stores(walk, loop))
    starts = [f"program:{axis}" for axis in walk.program_axes if _is_share(loop.first.coefficient(f"program:{axis}"))]
    again = any(other.id != loop.id and other.bound == loop.bound for other in walk.loops.values())  # passes over one row's pieces
    if again or not any(name in loop.last.deps for name in starts):
        return False
    return any(
        store.address.form.coefficient(loop.name).constant not in (0, 1)
        and not any((owner, name) == (loop.id, name) and name in loop.updates for owner, name, _ in store.value.carried)
        for store in _stores(walk, loop)
    )


def _reads_share(loop: Loop) -> bool:
    """Whether a program loads the numbers of its first and of its last piece of work."""
    ends = [list(form.symbols()) for form in (loop.first, loop.last or Polynomial())]
    return all(
        len(symbols) == 1 and symbols[0].key.startswith("loaded") and any(dep.startswith("program:") for dep in symbols[0].deps)
        for symbols in ends
    )


def _moves_on_from_share(walk: KernelWalk, loop: Loop) -> bool:
    """Whether a number that begins at a program's share, and grows unevenly, says where an iteration's results go, as in stream-K."""
    shares = {
        f"carried:{loop.id}:{name}" for name, entry in loop.entries.items()
        if not entry.roots and any(_is_share(entry.form.coefficient(f"program:{axis}")) for axis in walk.program_axes)
    }  # fmt: skip
    written = [access for access in walk.accesses if access.kind != "load" and loop.id in access.loops]
    return any(shares & access.address.form.deps for access in written)


def _divides_share(walk: KernelWalk, loop: Loop) -> bool:
    """Whether a loop goes through a share of its own, of which a quotient says where an iteration's results go, as in stream-K."""
    ends = loop.last.deps if loop.last is not None else frozenset()
    if not any(_is_share(loop.first.coefficient(name)) and name in ends for name in (f"program:{axis}" for axis in walk.program_axes)):
        return False
    written = [access.address.form for access in walk.accesses if access.kind != "load" and loop.id in access.loops]
    parts = (symbol for form in written for symbol in form.symbols() if symbol.kind == "opaque")
    return any(symbol.key.startswith(("FloorDiv", "Mod")) and loop.name in symbol.deps for symbol in parts)


def _is_share(form: Polynomial) -> bool:
    """Whether the pieces of work from one program to the next are more than a constant number, which would be a larger tile."""
    return bool(form.terms) and form.constant is None


def _loads_by_pieces(walk: KernelWalk, loop: Loop, axis: str, count: Polynomial) -> bool:
    """Whether what is loaded is shared out among programs as the results are; the pixels under a window, say, are not."""
    forms = [access.address.form for access in walk.accesses if access.kind == "load" and loop.id in access.loops]
    moving = ((form.coefficient(f"program:{axis}"), form.coefficient(loop.name)) for form in forms)
    return all(share == piece * count for share, piece in moving if share.terms and piece.terms)


def _counts_over_shares(store: AccessSite, loop: Loop) -> bool:
    """Whether a mask compares places counted over the shares of all programs, so that these are no rows of their own."""
    sums = [part for symbol in (store.mask.all_symbols() if store.mask else ()) for part in symbol.parts]
    return any(form.coefficient(loop.name).terms and any(dep.startswith("program:") for dep in form.deps) for form in sums)


def _takes_several_rows(walk: KernelWalk, loop: Loop) -> bool:
    """Whether programs have equal shares of the work, and each iteration stores a piece of its own."""
    if loop.last is None or loop.last.constant is not None or (loop.step.constant if loop.step else None) != 1:
        return False
    for store in _stores(walk, loop):
        piece = store.address.form.coefficient(loop.name)
        if piece.constant in (0, 1) or piece in walk.ranges.values() and not _counts_over_shares(store, loop):
            continue
        for axis in walk.program_axes:
            share = store.address.form.coefficient(f"program:{axis}")
            counts = (loop.last, loop.last - loop.first)
            if share.terms and any(share == piece * count and _loads_by_pieces(walk, loop, axis, count) for count in counts):
                return True
            if _is_share(loop.first.coefficient(f"program:{axis}")) and f"program:{axis}" in loop.last.deps:
                return True
    return False
