"""Products that a kernel sums element by element, by single inner indices: a recurrent product over hidden units."""

from __future__ import annotations

from tritonsmith.evaluator.texts.detect.convolutions import SHORT_TRIPS, find_sliding, find_taps, find_written_taps
from tritonsmith.evaluator.texts.detect.records import Trait, TraitHit
from tritonsmith.evaluator.texts.source.forms import Polynomial, Symbol
from tritonsmith.evaluator.texts.source.values import KernelWalk, Loop, Product, Use, Value

_MOST_UNROLLED = 32
"""So many products of one iteration, at most, may stand for as many iterations of one."""


def find_serial_product(walk: KernelWalk) -> tuple[TraitHit | None, frozenset[int]]:
    """A product summed by single inner indices (scalar times vector, column times row) in a loop without tl.dot, and the loops of such."""
    written = {product.target for product in find_written_taps(walk)}
    hits: list[TraitHit] = []
    explained: set[int] = set()
    for product in walk.products:
        if product.target in written or find_taps(walk, product):
            continue
        loops = [walk.loops[around] for around in product.loops if not walk.loops[around].polls]
        kind = _name_kind(product, loops[-1]) if loops else ""
        if not kind or not _is_serial(walk, product, loops[-1], loops[-2] if _is_split(product, loops) else None):
            continue
        text = f"line {product.line} adds {kind} in each iteration of the loop over {loops[-1].bound or '...'} (line {loops[-1].line})"
        hits.append(_make_hit(walk, product, text, loops[-1]))
        explained |= {loop.id for loop in loops if loop is loops[-1] or loop.updates.keys() <= {name for _, name in product.totals}}
    return hits[0] if hits else None, frozenset(explained)


def _name_kind(product: Product, loop: Loop) -> str:
    """What is multiplied in an iteration that sums by single inner indices; empty for tiles, and where a factor stays the same."""
    sides = (product.left, product.right)
    if not all(loop.id in side.loops and not any(owner == loop.id for owner, *_ in side.carried) for side in sides):
        return ""
    if not all(side.reads or side.carried for side in sides):
        return ""  # a weight that is computed from a place, say
    if any(_is_gathered(form, loop) for side in sides for form in side.origins):
        return ""
    if any(side.rank and _is_elementwise(side, loop) for side in sides):
        return ""
    ranks = sorted(side.rank for side in sides)
    crossed = _cross_programs(*sides) if ranks == [0, 0] else ranks == [1, 1] and _cross_places(*sides, loop)
    if not (ranks[0] == 0 < ranks[1] or product.outer or crossed):
        return ""
    return "column times row" if product.outer else "scalar times vector" if ranks[-1] else "scalar times scalar"


def _is_elementwise(side: Value, loop: Loop) -> bool:
    """Whether a factor is itself made of several tensors at one place, such as a gradient and what it was taken at."""
    roots = {("parameter", root) for root, _ in side.reads}
    moving = [form for form in side.origins if loop.name in form.deps]
    places = {frozenset(term for term in form.terms if not _is_root(term[0], roots)) for form in moving}
    return len(places) < len(moving)


def _is_root(symbols: tuple[Symbol, ...], roots: set[tuple[str, str]]) -> bool:
    return len(symbols) == 1 and (symbols[0].kind, symbols[0].key) in roots


def _is_gathered(form: Polynomial, loop: Loop) -> bool:
    """Whether an address lies where a number says that each iteration loads, as rows of a table do."""
    return any(symbol.kind == "opaque" and symbol.key.startswith("loaded") and loop.name in symbol.deps for symbol in form.symbols())


def _is_split(product: Product, loops: list[Loop]) -> bool:
    """Whether the two innermost loops go through one inner index: the outer one moves on by what the inner one passes over."""
    outer, inner = loops[-2:] if len(loops) > 1 else (None, None)
    if outer is None or inner is None or inner.trips is None or (inner.step.constant if inner.step else None) != 1:
        return False
    forms = [form for side in (product.left, product.right) for form in side.origins if outer.name in form.deps]
    steps = [(form.coefficient(outer.name), form.coefficient(inner.name)) for form in forms]
    packed = [step for step, piece in steps if not piece.terms]  # several numbers in one
    joined = [step for step, piece in steps if piece.terms and step == piece.scaled(inner.trips)]
    return bool(joined) and len(packed) + len(joined) == len(forms)


def _is_serial(walk: KernelWalk, product: Product, loop: Loop, around: Loop | None) -> bool:
    """Whether a loop runs over single inner indices, none of them of a window, and only adds to the total, which nobody needs before the
    loop ends. `around` is the other loop of an index that is split over two.
    """
    if around is not None:
        onward = any(around.updates.get(name, Use.SUM) > Use.SUM for _, name in product.totals)
        stores = (access for access in walk.accesses if access.kind == "store" and around.id in access.loops)
        named = {(around.id, name) for _, name in product.totals}
        if onward or around.has_dot or any(named & {item[:2] for item in store.value.carried} for store in stores):
            return False
    symbols = [{symbol for form in side.origins for symbol in form.symbols()} for side in (product.left, product.right)]
    for side, other in ((product.left, symbols[1]), (product.right, symbols[0])):
        if any(find_sliding(walk, form, over) & other for form in side.origins for over in (loop, around) if over is not None):
            return False
    trips = loop.trips if around is None else around.trips
    if product.summed or loop.has_dot or trips is not None and trips <= SHORT_TRIPS:
        return False
    if not product.totals or any(loop.updates.get(name, Use.SUM) > Use.SUM for _, name in product.totals):
        return False
    stores = (access for access in walk.accesses if access.kind == "store" and loop.id in access.loops)
    if any((owner, name) in product.totals for store in stores for owner, name, _ in store.value.carried):
        return False
    step = loop.step.constant if loop.step is not None else None
    if step in (1, -1):
        return True
    beside = {(other.left.signature, other.right.signature) for other in walk.products if other.loops == product.loops}
    return step is not None and step <= _MOST_UNROLLED and step == len(beside)


def _cross_programs(left: Value, right: Value) -> bool:
    """Whether each factor belongs to a program axis of its own, so that the programs together make a matrix product."""
    return bool(left.pids - right.pids) and bool(right.pids - left.pids)


def _cross_places(left: Value, right: Value, loop: Loop) -> bool:
    """Whether each factor follows a part of the output's place of its own, as in an element's row and column."""
    first, second = (
        {symbol for origin in side.origins for symbol in origin.symbols() if symbol.is_place(loop.name)} for side in (left, right)
    )
    return bool(first - second) and bool(second - first)


def _make_hit(walk: KernelWalk, product: Product, text: str, loop: Loop) -> TraitHit:
    evidence = f"{walk.name}: {text}; tl.dot over tiles would do it on tensor cores"
    nearest = "" if loop.trips or loop.seen else f"a few terms that no tile would fill, if {loop.bound or 'the bound'} is small"
    return TraitHit(name=Trait.SERIAL_HIDDEN_LOOP, line=product.line, evidence=evidence, nearest=nearest)
