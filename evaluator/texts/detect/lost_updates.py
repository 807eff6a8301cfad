"""Updates that get lost: programs load one place, change what they loaded and store it there, with nobody between them kept out."""

from __future__ import annotations

import operator

from tritonsmith.evaluator.texts.detect.records import Trait, TraitHit
from tritonsmith.evaluator.texts.detect.waits import find_places, is_for_one
from tritonsmith.evaluator.texts.source.forms import Polynomial, Symbol
from tritonsmith.evaluator.texts.source.values import AccessSite, KernelWalk, Use, Value

Extents = tuple[int | None, int | None, int | None]
_FOLDS = ("min", "max", "BitAnd", "RShift", "Mod", "FloorDiv", "Compare")
"""Operations that give several programs one number, by the names that polynomials have for them."""
_ORDERS = (("LtE", operator.le), ("GtE", operator.ge), ("Lt", operator.lt), ("Gt", operator.gt))
"""Comparisons of order, by the names that polynomials have for them."""
_FIRST_PROGRAMS = range(4)
"""Numbers of programs that any larger grid has."""
_SETTLING = ("max", "min", "BitOr", "BitAnd")
"""Operations that change nothing when they are done again."""


def find_lost_update(walk: KernelWalk, extents: Extents) -> TraitHit | None:
    """A place that more than one program reaches, loads and stores again with a change, outside of a lock and not in turn.

    Args:
        walk: the kernel.
        extents: programs per axis where known.
    """
    if extents == (1, 1, 1) or walk.foreign:
        return None
    waiting = {loop.id for loop in walk.loops.values() if loop.polls}
    for store in walk.accesses:
        if store.kind != "store" or store.elected or store.address.atomic or waiting & set(store.loops):
            continue
        load = _find_old(walk, store)
        if load is None or not _changes(store) or not _find_shared_axes(walk, store, extents) or _is_ordered(walk, load, store):
            continue
        shared = min(store.address.roots & load.address.roots)
        places = f"loaded in line {load.line} and stored with a change in line {store.line}"
        evidence = f"{walk.name}: {shared} is {places} at one place by several programs, whose updates get lost where they overlap"
        nearest = "safe, if a launch has one program for each such place"
        return TraitHit(name=Trait.UNSYNCHRONISED_SHARING, line=load.line, evidence=evidence, nearest=nearest)
    return None


def _find_old(walk: KernelWalk, store: AccessSite) -> AccessSite | None:
    """The last load of the place before a store whose value rests on it."""
    if store.address.form not in store.value.origins:
        return None
    before = walk.accesses[: walk.accesses.index(store)]
    same = [access for access in before if access.kind == "load" and access.address.form == store.address.form]
    found = [load for load in same if load.address.roots & store.address.roots and not any(-side in load.sides for side in store.sides)]
    return found[-1] if found and not found[-1].elected else None


def _changes(store: AccessSite) -> bool:
    """Whether what is stored is more than what lay there, and another program's turn would change it once more."""
    if all(use is Use.COPY for root, use in store.value.reads if root in store.address.roots):
        return False
    symbols = list(store.value.form.symbols())
    if len(symbols) != 1 or not symbols[0].key.startswith(_SETTLING):
        return True
    others = [part for part in symbols[0].parts if not _is_loaded_from(part, store.address.form)]
    return len(others) == len(symbols[0].parts) or any(part.split("program")[0].terms for part in others)


def _is_loaded_from(part: Polynomial, place: Polynomial) -> bool:
    """Whether a number is what one load of a place gives."""
    symbols = list(part.symbols())
    return len(part.terms) == len(symbols) == 1 and symbols[0].key.startswith("loaded") and symbols[0].parts == (place,)


def _find_shared_axes(walk: KernelWalk, store: AccessSite, extents: Extents) -> set[str]:
    """Axes of the grid along which more than one program stores at one place."""
    if store.mask is not None and any(_is_owned(symbol) for symbol in store.mask.all_symbols()):
        return set()
    settled: frozenset[str] = frozenset()
    for guard in store.guards:
        if guard not in walk.conditions:
            return set()
        settled |= _settle(*walk.conditions[guard])
    axes = {axis for axis in walk.program_axes if axis.isdigit() and int(axis) < 3 and extents[int(axis)] != 1}
    return {axis for axis in axes if not _is_told_apart(axis, store.address, settled)}


def _is_told_apart(axis: str, address: Value, settled: frozenset[str]) -> bool:
    """Whether programs along an axis come to places of their own, or only one of them comes by."""
    known = address.pids | settled
    if {f"{axis}/", f"{axis}%"} <= {part[: len(axis) + 1] for part in known} or axis in settled:
        return True
    if axis in address.pids and not _is_folded(axis, address.form):
        return True
    return any(_takes_round(axis, symbol) for symbol in address.form.all_symbols())


def _takes_round(axis: str, symbol: Symbol) -> bool:
    """Whether programs change places as `(p + step) % count` says, where each has one of its own."""
    if not symbol.key.startswith("Mod") or len(symbol.parts) != 2 or f"program:{axis}" not in symbol.parts[0].deps:
        return False
    beside = symbol.parts[0].split("program")[1]
    return bool(beside.terms) and beside.constant is None


def _is_folded(axis: str, form: Polynomial) -> bool:
    """Whether an address takes a program's number only through an operation that gives several programs one number."""
    name = f"program:{axis}"
    symbols = {symbol for symbol in form.symbols() if name in symbol.all_deps}
    if len(symbols) != 1:
        return False
    (symbol,) = symbols
    with_number = [part for part in symbol.parts if name in part.deps]
    alone = len(with_number) == 1 and with_number[0].coefficient(name).terms and len(symbol.parts) == 2
    return bool(alone) and symbol.key.startswith(_FOLDS) and {each.name for each in with_number[0].symbols()} == {name}


def _settle(test: Value, holds: bool) -> frozenset[str]:
    """Parts of program ids that have one value where a condition holds, or does not hold; all of them where that is not clear."""
    symbols = list(test.form.symbols())
    if len(symbols) != 1 or not symbols[0].key.startswith("Compare") or len(symbols[0].parts) != 2:
        return test.pids
    symbol = symbols[0]
    if symbol.key.startswith(("CompareEq", "CompareNotEq")):
        return test.pids if symbol.key.startswith("CompareEq") == holds else frozenset()
    compare = next((function for name, function in _ORDERS if symbol.key.startswith(f"Compare{name}")), None)
    moving, rest = (symbol.parts[0] - symbol.parts[1]).split("program")
    if compare is None:
        return test.pids
    if rest.constant is None:
        return test.pids if any(not part for part, _ in rest.terms) else frozenset()  # `p >= n - 1` may hold for the last one alone
    steps = {sum(number for _, number in moving.terms)} if all(len(part) == 1 for part, _ in moving.terms) else set()
    passed = [p for p in _FIRST_PROGRAMS for step in steps if compare(step * p + rest.constant, 0) == holds]
    return frozenset() if len(passed) > 1 else test.pids


def _is_owned(symbol: Symbol) -> bool:
    """Whether a condition picks elements by the program: each program has others."""
    kinds = {dep.partition(":")[0] for dep in symbol.all_deps}
    return symbol.key.startswith("Compare") and {"program", "range"} <= kinds


def _is_ordered(walk: KernelWalk, load: AccessSite, store: AccessSite) -> bool:
    """Whether a lock keeps others out from the load to the store, or programs come in turn."""
    begin, end = walk.accesses.index(load), walk.accesses.index(store)
    for loop in walk.loops.values():
        places = find_places(walk, loop)
        if loop.lock and (not places or _is_one_lock(walk, places, store) and _keeps_out(walk, places, begin, end)):
            return True
        if loop.polls and not loop.lock and is_for_one(walk, loop) and (not places or places[0] < begin):
            return True
    return False


def _is_one_lock(walk: KernelWalk, places: list[int], store: AccessSite) -> bool:
    """Whether all programs that store at a place take the same lock."""
    locks = frozenset().union(*(walk.accesses[place].address.pids for place in places))
    axes = {part.partition("/")[0].partition("%")[0] for part in locks - store.address.pids}
    return all(_is_told_apart(axis, store.address, frozenset()) for axis in axes)


def _keeps_out(walk: KernelWalk, places: list[int], begin: int, end: int) -> bool:
    """Whether a load and a store lie between taking a lock and its last release before it is taken again."""
    words = {root for place in places for root in walk.accesses[place].address.roots}
    takes = [number for loop in walk.loops.values() if loop.lock for number in find_places(walk, loop)]
    again = min((number for number in takes if number > places[-1]), default=len(walk.accesses))
    behind = range(places[-1] + 1, again)
    freed = [number for number in behind if walk.accesses[number].kind != "load" and walk.accesses[number].address.roots & words]
    return places[-1] < begin and end < (freed[-1] if freed else again)
