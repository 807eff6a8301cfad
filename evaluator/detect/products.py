"""Products that a kernel sums element by element: a recurrent product over hidden units, a convolution over its taps."""

from __future__ import annotations

from tritonsmith.evaluator.detect.records import Trait, TraitHit
from tritonsmith.evaluator.source.forms import Polynomial
from tritonsmith.evaluator.source.values import KernelWalk, Loop, Product, Value

_SHORT_TRIPS = 11
"""A loop of at most so many iterations may run over the taps of a filter; hidden units are more."""
_FEWEST_TAPS = 3
"""Fewer products in a row are no convolution."""
_MOST_STRIDE = 8
"""The largest stride of a convolution."""


def find_serial_product(walk: KernelWalk) -> tuple[TraitHit | None, frozenset[int]]:
    """A product summed by single inner indices (scalar times vector, column times row) in a loop without tl.dot, and its loop."""
    written = {product.target for product in _find_written_taps(walk)}
    for product in walk.products:
        if product.target in written:
            continue
        loops = [walk.loops[around] for around in product.loops if not walk.loops[around].polls]
        if not loops or _find_taps(walk, product):
            continue
        loop = loops[-1]
        if loop.has_dot or not _steps_by_one(loop) or (loop.trips is not None and loop.trips <= _SHORT_TRIPS):
            continue
        sides = (product.left, product.right)
        depends = all(loop.id in side.loops and not any(owner == loop.id for owner, *_ in side.carried) for side in sides)
        ranks = sorted(side.rank for side in sides)
        kind = "column times row" if product.outer else "scalar times vector" if ranks[-1] else "scalar times scalar"
        crossed = _cross_programs(*sides) if ranks == [0, 0] else ranks == [1, 1] and _cross_places(*sides, loop)
        if depends and (ranks[0] == 0 < ranks[1] or product.outer or crossed):
            text = f"line {product.line} adds {kind} in each iteration of the loop over {loop.bound or '...'} (line {loop.line})"
            return _make_hit(walk, product, text, loop), frozenset({loop.id})
    return None, frozenset()


def _cross_programs(left: Value, right: Value) -> bool:
    """Whether each factor belongs to a program axis of its own, so that the programs together make a matrix product."""
    return bool(left.pids - right.pids) and bool(right.pids - left.pids)


def _cross_places(left: Value, right: Value, loop: Loop) -> bool:
    """Whether each factor follows a part of the output's place of its own, as in an element's row and column."""
    first, second = (
        {symbol for origin in side.origins for symbol in origin.symbols() if _is_place(symbol.all_deps, loop)} for side in (left, right)
    )
    return bool(first - second) and bool(second - first)


def _make_hit(walk: KernelWalk, product: Product, text: str, loop: Loop) -> TraitHit:
    evidence = f"{walk.name}: {text}; tl.dot over tiles would do it on tensor cores"
    nearest = "" if loop.trips or loop.seen else f"a few terms that no tile would fill, if {loop.bound or 'the bound'} is small"
    return TraitHit(name=Trait.SERIAL_HIDDEN_LOOP, line=product.line, evidence=evidence, nearest=nearest)


def _steps_by_one(loop: Loop) -> bool:
    return loop.step is not None and loop.step.constant in (1, -1)


def find_direct_convolution(walk: KernelWalk) -> tuple[TraitHit | None, frozenset[int]]:
    """Input times filter, summed in loops over the filter's taps, without tl.dot; and these loops."""
    for product in walk.products:
        taps = _find_taps(walk, product)
        if taps and not any(loop.has_dot for loop in taps):
            lines = ", ".join(str(loop.line) for loop in taps)
            around = frozenset(product.loops)
            hit = TraitHit(
                name=Trait.DIRECT_CONVOLUTION,
                line=taps[0].line,
                evidence=f"{walk.name}: line {product.line} adds input times filter in loops over the taps (lines {lines}) without tl.dot",
                nearest="" if len(taps) > 1 else "a sum over a short axis",
            )
            return hit, around
    if written := _find_written_taps(walk):
        lines = f"{written[0].line} to {written[-1].line}"
        return TraitHit(
            name=Trait.DIRECT_CONVOLUTION,
            line=written[0].line,
            evidence=f"{walk.name}: lines {lines} add input times filter for {len(written)} taps without tl.dot",
            nearest="a stencil whose factors are loaded",
        ), frozenset(loop for product in written for loop in product.loops)
    return None, frozenset()


def _find_written_taps(walk: KernelWalk) -> list[Product]:
    """Products of one sum whose input moves along the output's places from one to the next, and whose filter moves by elements."""
    targets = dict.fromkeys(product.target for product in walk.products if product.target)
    for target in targets:
        same = [product for product in walk.products if product.target == target]
        for image, weight in (("left", "right"), ("right", "left")):
            pairs = [(_only(getattr(product, image)), _only(getattr(product, weight)), product) for product in same]
            known = [(image_at, weight_at, product) for image_at, weight_at, product in pairs if image_at and weight_at]
            if len(known) < _FEWEST_TAPS:
                continue
            first, start, _ = known[0]
            taps = [product for at, key, product in known if _is_shift(at, first) and _is_number(key - start)]
            moved = {at for at, _, _ in known}
            sources = {frozenset(root for root, _ in getattr(product, image).reads) for product in taps}
            if len(sources) == 1 and len(taps) == len(known) == len(moved) and len({key for _, key, _ in known}) == len(known):
                return taps
    return []


def _only(side: Value) -> Polynomial | None:
    """The one address that a factor is loaded from."""
    origins = list(side.origins)
    return origins[0] if len(origins) == 1 else None


def _is_number(form: Polynomial) -> bool:
    return form.constant is not None


def _is_shift(form: Polynomial, other: Polynomial) -> bool:
    """Whether two addresses of tiles lie a fixed number of elements, or of rows, apart."""
    apart = form - other
    place = any(dep.startswith("range:") for dep in form.deps)
    sizes = all(symbol.kind == "parameter" and len(symbols) == 1 for symbols, _ in apart.terms for symbol in symbols)
    return place and sizes and all(abs(number) <= _MOST_STRIDE for _, number in apart.terms)


def _find_taps(walk: KernelWalk, product: Product) -> list[Loop]:
    """Loops over taps: the input's address slides with the output's place and with the tap alike, and the filter's with the tap alone."""
    loops = [walk.loops[around] for around in product.loops if not walk.loops[around].polls]
    for image, weight in ((product.left, product.right), (product.right, product.left)):
        sliding = [loop for loop in loops if any(_slides(form, loop) for form in image.origins)]
        moved = [loop for loop in sliding if any(loop.name in form.deps for form in weight.origins)]
        fixed = [loop for loop in moved if not any(_slides(form, loop) for form in weight.origins)]
        short = [loop for loop in fixed if loop.trips is None or loop.trips <= _SHORT_TRIPS**2]
        if short:
            both = [form for side in (image, weight) for form in side.origins]
            also = [loop for loop in loops if (loop.trips or 0) in range(2, _SHORT_TRIPS) and all(loop.name in form.deps for form in both)]
            return [loop for loop in loops if loop in short or loop in also]
    return []


def _slides(form: Polynomial, loop: Loop) -> bool:
    """Whether an address moves with a loop as it moves with the output's place: x[row * W + i * W + place + j].

    The tap's factor then divides the factor of a place up to a stride, and this stride is not the length of the loop: where it is,
    the loop runs along an axis of its own. A stride by a name counts only where the tap has a factor too, or it may be a row's length.
    """
    inside = (part for symbol in form.symbols() if symbol.kind == "opaque" and loop.name in symbol.deps for part in symbol.parts)
    if any(_slides(part, loop) for part in inside if _mixes(part, loop)):
        return True  # a quotient by the stride, as in a transposed convolution
    taps = [(symbols, number) for symbols, number in form.terms if any(loop.name in symbol.all_deps for symbol in symbols)]
    places = [(symbols, number) for symbols, number in form.terms if any(_is_place(symbol.all_deps, loop) for symbol in symbols)]
    bound = {symbol for symbol in (loop.last or Polynomial()).symbols()}
    for symbols, number in taps:
        factor = [symbol for symbol in symbols if loop.name not in symbol.all_deps]
        for others, times in places:
            rest = list(others)
            if any(symbol not in rest for symbol in factor) or times % number and number % times:
                continue
            for symbol in factor:
                rest.remove(symbol)
            strides = [symbol for symbol in rest if not _is_place(symbol.all_deps, loop)]
            ratio = max(abs(times // number), abs(number // times))
            if ratio <= _MOST_STRIDE and ratio != loop.trips and (not strides or factor and len(strides) == 1 and not bound & set(strides)):
                return True
    return False


def _mixes(form: Polynomial, loop: Loop) -> bool:
    """Whether a polynomial holds the loop and a place of the output in terms of their own."""
    own = [frozenset().union(*(symbol.all_deps for symbol in symbols)) for symbols, _ in form.terms]
    return any(loop.name in deps for deps in own) and any(_is_place(deps, loop) for deps in own)


def _is_place(deps: frozenset[str], loop: Loop) -> bool:
    """Whether a symbol is a place of the output: it differs between elements or programs, and not with the loop."""
    return loop.name not in deps and any(dep.startswith(("range:", "program:")) for dep in deps)
