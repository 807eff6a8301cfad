"""What one forward showed of a kernel, where its text alone does not decide: iterations of its loops, waits, and who read whose values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tritonsmith.evaluator.records.limits import LineFacts
from tritonsmith.evaluator.schema import KernelFacts
from tritonsmith.evaluator.texts.detect.records import Trait, TraitHit
from tritonsmith.evaluator.texts.source.values import KernelWalk


def note_iterations(walk: KernelWalk, lines: Sequence[LineFacts]) -> None:
    """Give each loop the iterations that a program made at most, as far as the visits of its loads and stores tell them."""
    around: dict[int, set[tuple[int, ...]]] = {}
    for access in walk.accesses:
        around.setdefault(access.line, set()).add(access.loops)
    visits: dict[tuple[int, ...], int] = {(): 1}
    for line in lines:
        places = around.get(line.line, set())
        if len(places) == 1:  # a line of a helper that is entered from two places counts for both
            (loops,) = places
            visits[loops] = max(line.most, visits.get(loops, 0))
    for loops, count in visits.items():
        outer = visits.get(loops[:-1])
        if loops and outer:
            walk.loops[loops[-1]].seen = -(-count // outer)


def find_observed_waits(walk: KernelWalk, known: KernelFacts) -> TraitHit | None:
    """Waits inside a function of another file, which the text does not show."""
    if not walk.foreign or walk.waits or not known.sync_rounds:
        return None
    times = f"{known.sync_rounds} time{'s' if known.sync_rounds > 1 else ''}"
    text = f"{walk.name}: a program waited for another one {times} in the forward that was run, inside a function of another file"
    return TraitHit(name=Trait.PERSISTENT, line=walk.line, evidence=text)


def compare_sharing(hit: TraitHit, walk: KernelWalk, known: KernelFacts) -> TraitHit:
    """The label that programs share without a wait, next to what the interpreter saw of the loads in question."""
    loads = list(_find_loads(hit, walk, known))
    if not loads:
        return hit
    foreign = sum(line.foreign for line in loads)
    seen = "none of them loaded what another one had written"
    if foreign:
        seen = f"line {loads[0].line} loaded {foreign} times what another one had written, each time in a defined order"
    nearest = f"safe, if every forward is like the one that was run: of {loads[0].programs} programs {seen}"
    return hit.model_copy(update={"nearest": nearest})


def _find_loads(hit: TraitHit, walk: KernelWalk, known: KernelFacts) -> Iterator[LineFacts]:
    lines = {access.line for access in walk.accesses if access.kind == "load" and access.line == hit.line}
    yield from (line for line in known.lines if line.line in lines and line.kind == "load")
