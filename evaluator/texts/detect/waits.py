"""Waits of programs for each other, and what they order: a load behind a store, and a store behind a load."""

from __future__ import annotations

from collections.abc import Iterable

from tritonsmith.evaluator.texts.source.forms import Polynomial
from tritonsmith.evaluator.texts.source.values import AccessSite, KernelWalk, Loop


def is_covered(walk: KernelWalk, store: AccessSite, load: AccessSite) -> bool:
    """Whether whoever loads has waited before: in the loop around both, or anywhere where there is none."""
    common = next((loop for loop in store.loops if loop in load.loops), 0)
    if common in walk.foreign:
        return True
    if _is_awaited(walk, load):
        return True  # a first look at what is then waited for
    polls = [poll for poll in walk.polls_in(common) if not _waits_for_itself(walk, poll)]
    if common:
        polls = [poll for poll in polls if _stands_between(walk, poll, store, load) and _is_published(walk, poll, store, common)]
    else:
        polls = [poll for poll in polls if _hands_over(walk, poll, store, load)]
    return _meets_everybody(polls, load)


def is_overwritten(walk: KernelWalk, store: AccessSite, load: AccessSite) -> bool:
    """Whether a fast program stores the next step's values where a slow one still loads those of this step.

    So it may where the loop around both has only waits for all programs, none of them stands between the load and the next store, and
    both lie in one part of the buffer. A second buffer for every other step is another part.
    """
    around = [loop for loop in store.loops if loop in load.loops]
    if not around or set(around) & walk.foreign or _is_awaited(walk, load):
        return False
    polls = walk.polls_in(around[-1])
    if not polls or any(not find_places(walk, poll) or is_for_one(walk, poll) for poll in polls):
        return False
    return _share_a_part(walk, store, load, around) and not _meets_everybody(
        [poll for poll in polls if _stands_between(walk, poll, load, store)], store
    )


def is_locked(walk: KernelWalk, store: AccessSite) -> bool:
    """Whether a store stands behind a lock that is taken, and not behind its release."""
    place = walk.accesses.index(store)
    for lock in (loop for loop in walk.loops.values() if loop.lock):
        taken = find_places(walk, lock)
        words = {root for number in taken for root in walk.accesses[number].address.roots}
        behind = [number for number, access in enumerate(walk.accesses) if taken and number > taken[-1] and access.kind != "load"]
        freed = [number for number in behind if walk.accesses[number].address.roots & words]
        if not taken or taken[0] < place and (not freed or place < freed[-1]):
            return True
    return False


def keep_time(form: Polynomial, loops: Iterable[str], *, changing: bool = False) -> Polynomial:
    """The terms that do not change from one iteration of these loops to the next, or with `changing` the others."""
    names = set(loops)
    kept = (
        (part, number)
        for part, number in form.terms
        if changing == any(names & symbol.all_deps or any(dep.startswith("carried:") for dep in symbol.all_deps) for symbol in part)
    )
    return Polynomial(frozenset(kept))


def _is_awaited(walk: KernelWalk, load: AccessSite) -> bool:
    """Whether some wait looks at what is loaded."""
    waiting = (access for access in walk.accesses if any(walk.loops[loop].polls for loop in access.loops))
    return load.address.roots <= {root for access in waiting for root in access.address.roots}


def _meets_everybody(polls: list[Loop], access: AccessSite) -> bool:
    """Whether all programs that come to an access have met one of these waits."""
    guards = [poll.guards for poll in polls]
    if any(guard <= access.guards for guard in guards):
        return True
    return any(frozenset({-number}) == other for guard in guards if len(guard) == 1 for number in guard for other in guards)


def _stands_between(walk: KernelWalk, poll: Loop, first: AccessSite, second: AccessSite) -> bool:
    """Whether a wait in a loop around both stands on the way from the one to the other, which may be in the next iteration."""
    places = find_places(walk, poll)
    if not places:
        return True
    begin, end = walk.accesses.index(first), walk.accesses.index(second)
    return begin < places[0] < end if begin < end else places[0] > begin or places[0] < end


def _is_published(walk: KernelWalk, poll: Loop, store: AccessSite, common: int) -> bool:
    """Whether what a wait looks at is set behind a store, as far as the loop sets it: there, or in the next iteration before the wait."""
    place, signals = walk.accesses.index(store), [at for at in _find_signals(walk, poll) if common in walk.accesses[at].loops]
    waits = find_places(walk, poll)
    return not signals or any(at >= place or at < waits[0] < place for at in signals)


def _hands_over(walk: KernelWalk, poll: Loop, store: AccessSite, load: AccessSite) -> bool:
    """Whether a wait outside of loops orders a store and a load.

    Where all wait for all, or for a turn or place of their own, the store comes before the signal and the wait before the load. Or the
    load comes before the signal, and the wait before the store.
    """
    places, signals = find_places(walk, poll), _find_signals(walk, poll)
    if not places:
        return True
    stored, loaded, wait = walk.accesses.index(store), walk.accesses.index(load), places[0]
    if loaded < wait < stored and any(loaded < at < wait for at in signals):
        return True
    before = wait < loaded or bool(set(walk.accesses[wait].loops) & set(load.loops))
    told = not signals or any(at >= stored for at in signals)
    return before and told and (is_for_one(walk, poll) or stored < wait)


def is_for_one(walk: KernelWalk, poll: Loop) -> bool:
    """Whether each program waits for a turn or place of its own, and not all for the same."""
    return poll.by_program or any(walk.accesses[place].address.pids for place in find_places(walk, poll))


def _waits_for_itself(walk: KernelWalk, poll: Loop) -> bool:
    """Whether each program waits for a word that it alone sets."""
    places, signals = find_places(walk, poll), _find_signals(walk, poll)
    forms = {walk.accesses[place].address.form for place in (*places, *signals)}
    own = {f"program:{axis}" for axis in walk.program_axes}
    return bool(places and signals and own) and len(forms) == 1 and all(own <= {symbol.name for symbol in form.symbols()} for form in forms)


def find_places(walk: KernelWalk, poll: Loop) -> list[int]:
    """Where among the accesses a wait looks at memory."""
    return [place for place, access in enumerate(walk.accesses) if poll.id in access.loops]


def _find_signals(walk: KernelWalk, poll: Loop) -> list[int]:
    """Where among the accesses a program sets what a wait looks at."""
    words = {root for place in find_places(walk, poll) for root in walk.accesses[place].address.roots}
    writing = [(place, access) for place, access in enumerate(walk.accesses) if access.kind != "load" and poll.id not in access.loops]
    return [place for place, access in writing if access.address.roots & words]


def _share_a_part(walk: KernelWalk, store: AccessSite, load: AccessSite, around: list[int]) -> bool:
    """Whether a load and the next store behind it lie in one part of a buffer, as far as the steps move that part."""
    names = [f"loop:{loop}" for loop in around]
    stored, loaded = (keep_time(access.address.form, names, changing=True) for access in (store, load))
    if not stored.terms or stored != loaded:
        return stored == loaded
    moving = names[-1] in stored.deps or any(dep.startswith("carried:") for dep in stored.deps)
    ahead = (load.address.form - store.address.form).split("program", "range", "loop", "carried")[1]
    return not ahead.terms and (not moving or walk.accesses.index(load) < walk.accesses.index(store))
