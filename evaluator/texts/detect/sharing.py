"""Programs that read what other programs write, with nobody waiting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import permutations, product

from tritonsmith.evaluator.texts.detect.records import Trait, TraitHit
from tritonsmith.evaluator.texts.detect.waits import is_covered, is_locked, is_overwritten, keep_time
from tritonsmith.evaluator.texts.source.forms import ZERO, Polynomial, Symbol, find_multiple, make_symbol
from tritonsmith.evaluator.texts.source.values import AccessSite, KernelWalk, Use

Extents = tuple[int | None, int | None, int | None]
_STEPS_BACK = (0, 1, -1, 2, -2)
"""Iterations between a store and the load that reads it."""


def find_unsynchronised_sharing(walk: KernelWalk, extents: Extents) -> TraitHit | None:
    """A buffer that one program loads and another one writes, in one loop or one after the other, without a wait between them.

    Args:
        walk: the kernel.
        extents: programs per axis where known.
    """
    if extents == (1, 1, 1):
        return None
    waiting = {loop.id for loop in walk.loops.values() if loop.polls}
    loads = [access for access in walk.accesses if access.kind == "load" and not waiting & set(access.loops) and not access.after_arrival]
    stores = [access for access in walk.accesses if access.kind != "load" and not waiting & set(access.loops)]
    for store in stores:
        for load in loads:
            shared = store.address.roots & load.address.roots
            if not shared or any(-side in load.sides for side in store.sides):
                continue
            waited = is_covered(walk, store, load)
            if waited and not is_overwritten(walk, store, load) or _swaps(walk, store, load):
                continue
            how = next(_explain_crossing(walk, store, load, extents, waited), None)
            if how is not None:
                common = [loop for loop in store.loops if loop in load.loops]
                where = f", in the loop of line {walk.loops[common[0]].line}," if common else ""
                places = f"{how[0]} in line {store.line} and {how[1]} in line {load.line}"
                missing = "no wait stands between that load and the next store" if waited else "nobody waits"
                return TraitHit(
                    name=Trait.UNSYNCHRONISED_SHARING,
                    line=load.line,
                    evidence=f"{walk.name}: {min(shared)} is {places}{where} and {missing}",
                    nearest=_find_nearest(how[0], bool(common)),
                )
    return None


def _swaps(walk: KernelWalk, store: AccessSite, load: AccessSite) -> bool:
    """Whether a program changes two parts of a buffer over: it loads both and stores both, for some elements or in some programs."""
    pair = {store.address.form, load.address.form}
    same = [access for access in walk.accesses if access.address.roots == store.address.roots and access.kind != "atomic"]
    loads = {access.address.form for access in same if access.kind == "load"}
    stores = {access.address.form for access in same if access.kind == "store" and (access.mask is not None or access.guards)}
    regrouped = any(_moves_a_little(walk, form, store.loops) for form in pair)
    return len(pair) == 2 and loads == stores == pair and not regrouped


def _find_nearest(how: str, repeated: bool) -> str:
    if "from memory" in how:
        return "safe, if no place is met twice"
    return "" if repeated else "safe if programs that store end before others load, which a grid does not promise"


def _explain_crossing(walk: KernelWalk, store: AccessSite, load: AccessSite, extents: Extents, waited: bool) -> Iterator[tuple[str, str]]:
    tiles = {part for part in store.address.pids if _covers_programs(part, extents)}
    beside, locked = _find_axes_beside(walk, store, extents), is_locked(walk, store)
    missing = [part for part in tiles if not _stays_in_tile(part, load.address.pids) or _bounds_only(part, load.address.form)]
    if missing:
        axis = re.split(r"//|%", min(missing))[0]
        how = "stored" if store.kind == "store" else "changed by atomics"
        yield f"{how} by tile of program_id({axis})", "loaded across all tiles"
    elif any(_turns_around(store.address.form, load.address.form, part) for part in tiles if part.isdigit()):
        yield "stored by tile of each program", "loaded from another program's tile"
    elif store.kind == "atomic" and (not tiles or beside and store.address.form == load.address.form and not locked):
        yield "added to by all programs", "loaded by all programs"
    elif beside & store.value.pids and store.address.form == load.address.form and _differs(walk, store):
        yield "stored by several programs, each with a value of its own,", "loaded by them"
    elif not tiles and any(guard > 0 for guard in store.guards - load.guards) and load.guards <= store.guards and not locked:
        yield "stored by some programs only", "loaded by others too"
    elif not tiles and store.address.form == load.address.form and _differs(walk, store):
        yield "stored by all programs, each with a value of its own,", "loaded by all programs"
    elif _meet_in_pairs(store):
        yield "stored by two programs each", "loaded by them"
    elif _takes_turns(walk, store, load, beside):
        yield "stored by some programs", "loaded by the others"
    elif any(_looks_up(store.address.form, load.address.form, part) for part in tiles if part.isdigit()):
        yield "stored by tile of each program", "loaded at places that come from memory"
    elif _adds_at_loaded_places(store, load):
        yield "added to by load and store, at places that come from memory,", "loaded for it"
    elif _counts_at_loaded_places(walk, store):
        yield "changed by atomics at places that come from memory", "loaded"
    elif tiles and _reads_neighbours(walk, store, load) and not _takes_other_colour(store, load, waited):
        yield "stored by tile of each program", "loaded beyond the tile's edge"


def _find_axes_beside(walk: KernelWalk, store: AccessSite, extents: Extents) -> set[str]:
    """Axes of the grid whose programs meet at one place: the address rests neither on the whole of their number nor on an atomic."""
    if store.address.atomic:
        return set()
    known = store.address.pids
    whole = {axis for axis in walk.program_axes if axis in known or {part[: len(axis) + 1] for part in known} >= {f"{axis}/", f"{axis}%"}}
    return {axis for axis in walk.program_axes - whole if axis.isdigit() and _covers_programs(axis, extents)}


def _turns_around(stored: Polynomial, loaded: Polynomial, axis: str) -> bool:
    """Whether programs load in another order than they store: mirrored, or with rows and columns swapped."""
    unit, other = stored.coefficient(f"program:{axis}"), loaded.coefficient(f"program:{axis}")
    if unit.terms and not other.terms:
        partners = (symbol for symbol in set(loaded.symbols()) - set(stored.symbols()) if _is_partner(symbol, axis))
        return any(loaded.coefficient(symbol.name) == unit for symbol in partners)
    if not unit.terms or unit == other:
        return False
    rest = (loaded - stored).split("program", "range", "loop", "carried")[1]
    return unit == other.scaled(-1) or not rest.terms


def _is_partner(symbol: Symbol, axis: str) -> bool:
    """Whether it is another program's number: `p ^ distance`, or `(p + 1) % n`."""
    own = f"program:{axis}"
    if not symbol.key.startswith(("BitXor", "Mod")) or own not in symbol.deps or any(dep.startswith("range:") for dep in symbol.deps):
        return False
    return symbol.key.startswith("BitXor") or symbol.parts[0].coefficient(own).constant == 1 and len(symbol.parts[0].terms) > 1


def _meet_in_pairs(store: AccessSite) -> bool:
    """Whether programs store where the smaller and the larger one of two of their numbers say, so that each two of them meet."""
    symbols = [symbol for symbol in store.address.form.symbols() if any(dep.startswith("program:") for dep in symbol.all_deps)]
    ends = {symbol.key[:3] for symbol in symbols if sum(dep.startswith("program:") for dep in symbol.deps) == 2}
    return not store.guards and ends == {"min", "max"} and all(symbol.key.startswith(("min", "max")) for symbol in symbols)


def _takes_turns(walk: KernelWalk, store: AccessSite, load: AccessSite, beside: set[str]) -> bool:
    """Whether some programs store where those on the other side of a condition load, which share the place or only read the buffer."""
    if is_locked(walk, store) or not any(-guard in load.guards for guard in store.guards):
        return False
    writing = (access for access in walk.accesses if access.kind != "load" and access.address.roots & load.address.roots)
    return bool(beside) and store.address.form == load.address.form or not any(load.guards <= access.guards for access in writing)


def _looks_up(stored: Polynomial, loaded: Polynomial, axis: str) -> bool:
    """Whether a program stores its own tile and loads where numbers say that it has loaded, which may lie in any tile."""
    own, other = stored.coefficient(f"program:{axis}"), loaded.coefficient(f"program:{axis}")
    chased = [symbol for symbol in loaded.symbols() if symbol.key.startswith("loaded") and symbol.is_place()]
    return bool(own.terms and chased) and not other.terms


def _adds_at_loaded_places(store: AccessSite, load: AccessSite) -> bool:
    """Whether a program adds to places whose numbers are loaded, which another program may meet as well.

    So it may where each of its elements has a place, where it also reads at another place from memory, or where a sum with the old value is
    stored: a row that is given to one program alone, such as a slot of a cache, is seldom added to.
    """
    if store.kind != "store" or not any(root in store.address.roots and use is Use.SUM for root, use in store.value.reads):
        return False
    forms = store.address.form, load.address.form
    chased, others = ({symbol for symbol in form.symbols() if symbol.key.startswith("loaded")} for form in forms)
    own = {symbol.name for symbol in store.address.form.symbols() if symbol.kind == "program"}  # a row of its own, say
    apart = [symbol.deps - own for symbol in chased if any(dep.startswith("program:") for dep in symbol.deps - own)]
    by_element = any(dep.startswith("range:") for deps in apart for dep in deps)
    same = store.address.form == load.address.form and (by_element or _is_sum_with_old(store))
    return bool(apart) and (same or bool(others - chased))


def _is_sum_with_old(store: AccessSite) -> bool:
    """Whether what is stored is what lay there, loaded, plus something."""
    terms = store.value.form.terms
    olds = (part[0] for part, _ in terms if len(part) == 1 and part[0].key.startswith("loaded"))
    return len(terms) > 1 and any(f"parameter:{root}" in old.deps for old in olds for root in store.address.roots)


def _counts_at_loaded_places(walk: KernelWalk, store: AccessSite) -> bool:
    """Whether atomics change places whose numbers each element loads, so that other programs meet them; a lock's word aside."""
    chased = (symbol for symbol in store.address.form.symbols() if symbol.kind == "opaque" and symbol.key.startswith("loaded"))
    apart = (symbol.deps for symbol in chased)
    meet = any(any(dep.startswith("range:") for dep in deps) and any(dep.startswith("program:") for dep in deps) for deps in apart)
    return store.kind == "atomic" and meet and store.swaps is None and not is_locked(walk, store)


def _differs(walk: KernelWalk, store: AccessSite) -> bool:
    """Whether programs store different values at one place, outside of a lock and not one program alone."""
    return bool(store.value.pids) and not store.guards and not store.address.atomic and not is_locked(walk, store)


def _covers_programs(part: str, extents: Extents) -> bool:
    axis = re.split(r"//|%", part)[0]
    return not axis.isdigit() or int(axis) > 2 or extents[int(axis)] != 1


def _stays_in_tile(part: str, others: frozenset[str]) -> bool:
    """Whether an address that depends on `others` stays within the tile that `part` selects."""
    axis = re.split(r"//|%", part)[0]
    if part in others or axis in others:
        return True
    halves = {other[len(axis)] for other in others if other.startswith((f"{axis}//", f"{axis}%"))}
    return part == axis and halves == {"/", "%"}


def _bounds_only(part: str, form: Polynomial) -> bool:
    """Whether a program id says only how far a loop goes that moves the address, as in a sum over all programs before the own one."""
    return part.isdigit() and f"program:{part}" not in form.deps and not any(dep.startswith("carried:") for dep in form.deps)


def _reads_neighbours(walk: KernelWalk, store: AccessSite, load: AccessSite) -> bool:
    """Whether the load lies some elements, or some programs, beside the place that the program itself stores."""
    stored, loaded = _open_ring(store.address.form), _open_ring(load.address.form)
    loops = {f"loop:{loop}" for loop in store.loops if loop in load.loops}
    apart = keep_time(loaded - stored, loops)
    bent = {symbol for symbol in loaded.symbols() if symbol.kind == "opaque" and symbol.key.startswith(("Mod", "maximum", "minimum"))}
    if any(_is_place(symbol.all_deps) for symbol in bent - set(stored.symbols())):
        return True
    units = [stored.coefficient(symbol.name) for symbol in set(stored.symbols()) if _is_number(symbol)]
    tiled = _find_tiled(walk, stored)
    steps = [stored.coefficient(name) for name in sorted(loops)]
    moved_by = [apart] + [apart - step.scaled(times) for step in steps if step.terms for times in _STEPS_BACK if times]
    if _moves_a_little(walk, stored, tuple(loop for loop in store.loops if loop in load.loops)):
        return True
    if stored == loaded and _overlaps(walk, store):
        return True
    elements = [stored.coefficient(symbol.name) for symbol in tiled]
    if any(_lies_beside(apart, symbol, stored.coefficient(symbol.name), walk.ranges[symbol.name]) for symbol in tiled):
        return True
    same = any(not rest.terms for rest in moved_by)
    if same and not _reaches_by_steps(loaded - stored, elements):
        return False
    if any(_is_kept_inside(load, loaded - stored, symbol, walk.ranges[symbol.name]) for symbol in tiled):
        return False
    if any(_shares_a_bound(store, load, apart, unit) for unit in elements):
        return True
    return same or any(find_multiple(rest, unit) for rest in moved_by for unit in (*units, *elements) if unit.terms)


def _overlaps(walk: KernelWalk, store: AccessSite) -> bool:
    """Whether a tile is wider than the way to the next program's, and no mask keeps its elements from that."""
    form = store.address.form
    places = {symbol for symbol in form.symbols() if symbol.kind in ("range", "program")}
    units = {each.name: form.coefficient(each.name) for each in places}
    ways = [units[each.name] for each in places if each.kind == "program"]
    kept = {dep for each in (store.mask.all_symbols() if store.mask else ()) for dep in each.deps if not _is_place(each.deps)}
    wide = [units[each.name] for each in places if each.kind == "range" and each.name not in kept]
    widths = {units[each.name]: units[each.name] * walk.ranges[each.name] for each in places if each.kind == "range"}
    return any(_is_shorter(way, widths[unit], unit) for way in ways for unit in wide)


def _is_shorter(way: Polynomial, width: Polynomial, unit: Polynomial) -> bool:
    """Whether a way along a tile is less than its width."""
    if way.constant and width.constant and unit.constant:
        return way.constant % unit.constant == 0 and abs(way.constant) < abs(width.constant)
    return unit.constant == 1 and (find_multiple(width, way) or 0) > 1


def _takes_other_colour(store: AccessSite, load: AccessSite, waited: bool) -> bool:
    """Whether masks keep elements of one colour, as in a red-black sweep, and what is loaded beside them has another one.

    All programs of a launch must share the colour. One that changes in a loop needs a wait there.
    """
    if store.mask is None or load.mask is None:
        return False
    apart, places = load.address.form - store.address.form, [each for each in store.address.form.symbols() if each.is_place()]
    moves = [(place.name, find_multiple(apart, store.address.form.coefficient(place.name))) for place in places]
    whole, both = set(store.address.form.symbols()), set(load.mask.all_symbols())
    tests = [each for each in store.mask.all_symbols() if each.key.startswith("Compare") and each in both and len(each.parts) == 2]
    for number, count in _find_colours(tests, whole, () if waited else ("loop", "carried")):
        for name, steps in moves:
            changed = number.coefficient(name).constant
            if steps and changed and count.constant and steps * changed % count.constant:
                return True
    return False


def _find_colours(tests: list[Symbol], whole: set[Symbol], unfit: tuple[str, ...]) -> Iterator[tuple[Polynomial, Polynomial]]:
    """Numbers of places and counts of colours, `i` and 2 of `i % 2 == colour`; what else is in them is the same for all programs."""
    for left, right in (pair for test in tests for pair in permutations(test.parts)):
        others, _ = right.split("program", "range", *unfit)
        for symbol in left.symbols():
            if symbol.key.startswith("Mod") and len(symbol.parts) == 2 and not others.terms:
                beside = (each for each in symbol.parts[0].symbols() if each not in whole)
                if not any(Polynomial(frozenset({((each,), 1)})).split("program", *unfit)[0].terms for each in beside):
                    yield symbol.parts[0], symbol.parts[1]


def _lies_beside(apart: Polynomial, element: Symbol, unit: Polynomial, extent: Polynomial) -> bool:
    """Whether a single element is loaded that lies before the first or behind the last one of the own tile."""
    place = make_symbol(element.kind, element.key)
    first = apart + place * unit
    if element.name not in apart.deps or element.name in first.deps:
        return False
    before, behind = find_multiple(first, unit), find_multiple(first - extent * unit, unit)
    return before is not None and before < 0 or behind is not None and behind >= 0 and extent.constant is None


def _open_ring(form: Polynomial) -> Polynomial:
    """An address with `(p + 1) % programs` as `p + 1`: the next program's place in a ring."""
    for symbol in [each for each in form.symbols() if each.key.startswith("Mod") and len(each.parts) == 2]:
        number, count = symbol.parts
        if any(dep.startswith("programs:") for dep in count.deps) and not any(dep.startswith("range:") for dep in symbol.deps):
            way = number.split("programs")[1]
            form = form + form.coefficient(symbol.name) * (way - Polynomial(frozenset({((symbol,), 1)})))
    return form


def _is_number(symbol: Symbol) -> bool:
    """Whether it is a program's number along an axis, or the quotient or remainder that stands for one of two axes."""
    parted = symbol.key.startswith(("FloorDiv", "Mod")) and not symbol.deps & symbol.parts[-1].deps
    kinds = {dep.partition(":")[0] for dep in symbol.deps}
    return symbol.kind == "program" or parted and "program" in kinds and kinds <= {"program", "programs", "parameter"}


def _find_tiled(walk: KernelWalk, form: Polynomial) -> list[Symbol]:
    """Ranges of elements that lie side by side from one program to the next."""
    symbols = set(form.symbols())
    units = [form.coefficient(symbol.name) for symbol in symbols if _is_number(symbol)]
    return [each for each in symbols if each.kind == "range" and form.coefficient(each.name) * walk.ranges[each.name] in units]


def _moves_a_little(walk: KernelWalk, form: Polynomial, loops: tuple[int, ...]) -> bool:
    """Whether tiles move to and fro by less than their elements' distance from one iteration to the next, so that their ends meet."""
    names = {f"loop:{loop}" for loop in loops}
    turning = [symbol for symbol in form.symbols() if symbol.kind == "opaque" and names & symbol.deps and not symbol.is_place()]
    amounts = [form.coefficient(symbol.name).constant for symbol in turning]
    apart = [form.coefficient(symbol.name).constant for symbol in _find_tiled(walk, form)]
    return any(moved and unit and abs(moved) <= abs(unit) for moved in amounts for unit in apart)


def _reaches_by_steps(apart: Polynomial, units: list[Polynomial]) -> bool:
    """Whether the way between two places is a number of elements that changes from one iteration to the next, such as one that doubles."""
    changing = [symbol for symbol in apart.symbols() if symbol.kind == "carried" or symbol.key.startswith(("LShift", "Pow"))]
    own = [symbol.name for symbol in changing if not symbol.is_place()]
    return any(apart.coefficient(name) in (unit, unit.scaled(-1)) for name in own for unit in units)


def _shares_a_bound(store: AccessSite, load: AccessSite, apart: Polynomial, unit: Polynomial) -> bool:
    """Whether masks keep a place and the one some elements on within the same bound: `o < n` and `o + d < n`, with d an argument."""
    if store.mask is None or load.mask is None or not apart.terms or apart.split("program", "range", "loop", "carried")[0].terms:
        return False
    own, others = (
        [each for each in mask.all_symbols() if each.key.startswith("Compare") and len(each.parts) == 2] for mask in (store.mask, load.mask)
    )
    for here, there in product(own, others):
        moved = [second - first for first, second in zip(here.parts, there.parts, strict=True)]
        (number, way), still = max(zip(here.parts, moved, strict=True), key=lambda pair: len(pair[1].terms)), ZERO in moved
        if still and here.key[:9] == there.key[:9] and _is_place(number.deps) and way * unit == apart:
            return True
    return False


def _is_kept_inside(load: AccessSite, apart: Polynomial, element: Symbol, extent: Polynomial) -> bool:
    """Whether a mask keeps elements that lie some places on within the own tile, as `i >= 1` does for `i - 1` where i begins at 0."""
    signs = {number > 0 for _, number in apart.terms}
    if load.mask is None or len(signs) != 1:
        return False
    moved = make_symbol(element.kind, element.key) + apart - (extent if signs == {True} else ZERO)
    own = [symbol for symbol in load.mask.all_symbols() if not any(dep.startswith("program:") for dep in symbol.deps)]
    sides = [pair for symbol in own if symbol.key.startswith("Compare") and len(symbol.parts) == 2 for pair in permutations(symbol.parts)]
    return any((rest := (left - right - moved).constant) is not None and abs(rest) <= 1 for left, right in sides)


def _is_place(deps: frozenset[str]) -> bool:
    return any(dep.startswith("program:") for dep in deps) and any(dep.startswith("range:") for dep in deps)
