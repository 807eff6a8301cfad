"""Labels that rest on one Triton kernel's code: persistence, sharing without waiting, serial products, direct convolution, attention."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from tritonsmith.evaluator.detect.records import Trait, TraitHit
from tritonsmith.evaluator.schema import KernelFacts
from tritonsmith.evaluator.source.kernel_file import KernelSource
from tritonsmith.evaluator.source.parse import parse_expression
from tritonsmith.evaluator.source.values import KernelWalk, Loop, Product

_SHORT_TRIPS = 11
"""A loop of at most so many iterations may run over the taps of a filter; hidden units are more."""
_TAP_BOUND = re.compile(r"(?i)\b(k_?[hwd]|f_?[hw]|r|s|kernel\w*|k_?size\w*|filter\w*|taps?)\b")
"""Bounds of loops over the taps of a filter."""
_TAP_PRODUCTS = (9, 25, 49)
"""Taps of square filters."""
_WINOGRAD_MATRICES = (
    "[[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]",
    "[[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]",
    "[[1, 1, 1, 0], [0, 1, -1, -1]]",
)
"""Input, filter and output transforms of F(2x2, 3x3), Lavin and Gray 2015."""


def find_persistence(walk: KernelWalk) -> TraitHit | None:
    """The outermost loop that carries state in registers or memory, walks over tiles, or waits for other programs."""
    reasons: list[tuple[int, int, str]] = []
    for loop in walk.loops.values():
        if loop.kind == "while" and loop.polls:
            continue
        if walk.waits_in(loop.id):
            reasons.append((len(loop.outer), loop.line, "every iteration waits for other programs"))
        else:
            reasons.extend((len(loop.outer), loop.line, reason) for reason in _explain_state(walk, loop))
    if not reasons:
        waiting = [loop.line for loop in walk.loops.values() if loop.polls and not loop.lock]
        reasons = [(0, line, "waits for other programs") for line in waiting]
    if not reasons:
        return None
    _, line, reason = min(reasons)
    return TraitHit(name=Trait.PERSISTENT, line=line, evidence=f"{walk.name}: the loop in line {line} stays in the kernel: {reason}")


def _explain_state(walk: KernelWalk, loop: Loop) -> Iterator[str]:
    stores = [access for access in walk.accesses if access.kind == "store" and loop.id in access.loops]
    for store in stores:
        names = sorted(name for owner, name in store.value.carried if owner == loop.id)
        if names:
            yield f"{names[0]} goes from one iteration to the next and is stored in line {store.line}"
    if stores and loop.strided_by_programs:
        yield "each program takes several tiles"
    loads = [access for access in walk.accesses if access.kind == "load" and loop.id in access.loops]
    for store in stores:
        for load in loads:
            shared = store.address.roots & load.address.roots
            moves = loop.id in store.address.loops and loop.id in load.address.loops
            if shared and moves and store.address.signature != load.address.signature:
                yield f"an iteration loads from {min(shared)} (line {load.line}) what an earlier one stored (line {store.line})"


def find_unsynchronised_sharing(walk: KernelWalk, extents: tuple[int | None, int | None, int | None]) -> TraitHit | None:
    """A buffer that several programs store by tile and load across tiles, in one loop in which nobody waits.

    Args:
        walk: the kernel.
        extents: programs per axis where known.
    """
    for loop in walk.loops.values():
        if walk.waits_in(loop.id):
            continue
        stores = [access for access in walk.accesses if access.kind == "store" and loop.id in access.loops]
        loads = [access for access in walk.accesses if access.kind == "load" and loop.id in access.loops]
        for store in stores:
            tiles = {part for part in store.address.pids if _covers_programs(part, extents)}
            for load in loads:
                shared = store.address.roots & load.address.roots
                missing = [part for part in tiles if not _stays_in_tile(part, load.address.pids)]
                if shared and missing:
                    axis = re.split(r"//|%", min(missing))[0]
                    return TraitHit(
                        name=Trait.UNSYNCHRONISED_SHARING,
                        line=load.line,
                        evidence=f"{walk.name}: {min(shared)} is stored by tile of program_id({axis}) in line {store.line} and "
                        f"loaded across all tiles in line {load.line}, in the loop of line {loop.line}, and nobody waits",
                    )
    return None


def _covers_programs(part: str, extents: tuple[int | None, int | None, int | None]) -> bool:
    axis = re.split(r"//|%", part)[0]
    return not axis.isdigit() or int(axis) > 2 or extents[int(axis)] != 1


def _stays_in_tile(part: str, others: frozenset[str]) -> bool:
    """Whether an address that depends on `others` stays within the tile that `part` selects."""
    axis = re.split(r"//|%", part)[0]
    if part in others or axis in others:
        return True
    halves = {other[len(axis)] for other in others if other.startswith((f"{axis}//", f"{axis}%"))}
    return part == axis and halves == {"/", "%"}


def find_serial_product(walk: KernelWalk, constants: Mapping[str, object]) -> TraitHit | None:
    """A product summed by single inner indices (scalar times vector, column times row) in a loop without tl.dot."""
    for product in walk.products:
        loops = [walk.loops[around] for around in product.loops if walk.loops[around].kind == "for"]
        if not loops or _find_taps(walk, product, constants):
            continue
        loop = loops[-1]
        trips = _count_trips(loop, constants)
        if loop.has_dot or not loop.unit_step or (trips is not None and trips <= _SHORT_TRIPS):
            continue
        sides = (product.left, product.right)
        depends = all(loop.id in side.loops and not any(owner == loop.id for owner, _ in side.carried) for side in sides)
        ranks = sorted(side.rank for side in sides)
        if depends and (ranks[0] == 0 < ranks[1] or product.outer):
            kind = "column times row" if product.outer else "scalar times vector"
            return TraitHit(
                name=Trait.SERIAL_HIDDEN_LOOP,
                line=product.line,
                evidence=f"{walk.name}: line {product.line} adds {kind} in each iteration of the loop over {loop.bound or '...'} "
                f"(line {loop.line}); tl.dot over tiles would do it on tensor cores",
            )
    return None


def find_direct_convolution(walk: KernelWalk, constants: Mapping[str, object]) -> TraitHit | None:
    """Input times filter, summed in loops over the filter's taps, without tl.dot."""
    for product in walk.products:
        taps = _find_taps(walk, product, constants)
        if taps and not any(loop.has_dot for loop in taps):
            lines = ", ".join(str(loop.line) for loop in taps)
            return TraitHit(
                name=Trait.DIRECT_CONVOLUTION,
                line=taps[0].line,
                evidence=f"{walk.name}: line {product.line} adds input times filter in loops over the taps (lines {lines}) without tl.dot",
            )
    return None


def _find_taps(walk: KernelWalk, product: Product, constants: Mapping[str, object]) -> list[Loop]:
    """Short loops over which both factors move: two of them, or one over all taps of a square filter."""
    both = product.left.loops & product.right.loops
    loops = [walk.loops[around] for around in product.loops if around in both and walk.loops[around].kind == "for"]
    short = [loop for loop in loops if _is_short(loop, constants)]
    if len(short) >= 2:
        return short
    return [loop for loop in loops if _count_trips(loop, constants) in _TAP_PRODUCTS][:1]


def _is_short(loop: Loop, constants: Mapping[str, object]) -> bool:
    trips = _count_trips(loop, constants)
    return trips <= _SHORT_TRIPS if trips is not None else bool(_TAP_BOUND.search(loop.bound))


def _count_trips(loop: Loop, constants: Mapping[str, object]) -> int | None:
    value = constants.get(loop.bound)
    return value if loop.trips is None and isinstance(value, int) and not isinstance(value, bool) else loop.trips


def find_flash_attention(walk: KernelWalk) -> TraitHit | None:
    """Online softmax around tl.dot: a running maximum by whose change earlier totals are scaled."""
    for loop in walk.loops.values():
        marks = {mark.kind: mark.line for mark in walk.rescales if mark.loops and mark.loops[-1] == loop.id}
        if loop.has_dot and {"maximum", "exponential", "scaling"} <= marks.keys():
            return TraitHit(
                name=Trait.HIGH_COMPLEXITY,
                line=loop.line,
                evidence=f"{walk.name}: online softmax as in Flash Attention: running maximum in line {marks['maximum']}, "
                f"totals scaled by its change in line {marks['scaling']}",
            )
    return None


def find_winograd(index: KernelSource) -> TraitHit | None:
    """A kernel that is called Winograd, or the transform matrices of F(2x2, 3x3) as literals."""
    for name, node in index.jit.items():
        if "winograd" in name.lower():
            return TraitHit(name=Trait.HIGH_COMPLEXITY, line=node.lineno, evidence=f"{name}: a Winograd convolution by its name")
    matrices = {ast.dump(_normalize_matrix(parse_expression(matrix))) for matrix in _WINOGRAD_MATRICES}
    for literal in ast.walk(index.tree):
        if isinstance(literal, ast.List | ast.Tuple) and literal.elts and ast.dump(_normalize_matrix(literal)) in matrices:
            text = f"line {literal.lineno}: a transform matrix of Winograd F(2x2, 3x3)"
            return TraitHit(name=Trait.HIGH_COMPLEXITY, line=literal.lineno, evidence=text)
    return None


def _normalize_matrix(node: ast.expr) -> ast.expr:
    """A literal matrix as nested lists of floats; any other expression as it is.

    So 1 and 1.0, lists and tuples compare equal.
    """
    try:
        rows = ast.literal_eval(node)
        values = [[float(value) for value in row] for row in rows]
    except (ValueError, TypeError):
        return node
    return parse_expression(repr(values))


def extents_of(facts: KernelFacts | None) -> tuple[int | None, int | None, int | None]:
    """Programs per axis as launched; unknown without facts."""
    return facts.grid if facts is not None else (None, None, None)
