"""Convolutions that a kernel sums over the taps of a filter, without tl.dot."""

from __future__ import annotations

from collections import Counter

from tritonsmith.evaluator.texts.detect.records import Trait, TraitHit
from tritonsmith.evaluator.texts.source.forms import Monomial, Polynomial, Symbol, find_multiple
from tritonsmith.evaluator.texts.source.values import KernelWalk, Loop, Product, Use, Value

SHORT_TRIPS = 11
"""A loop of at most so many iterations may run over the taps of a filter; hidden units are more."""
_FEWEST_TAPS = 3
"""Fewer products in a row are no convolution."""
_MOST_STRIDE = 8
"""The largest stride of a convolution."""


def find_direct_convolution(walk: KernelWalk) -> tuple[TraitHit | None, frozenset[int]]:
    """Input times filter, summed in loops over the filter's taps, without tl.dot; and these loops."""
    for product in walk.products:
        taps = find_taps(walk, product)
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
    if written := find_written_taps(walk):
        lines = f"{written[0].line} to {written[-1].line}"
        return TraitHit(
            name=Trait.DIRECT_CONVOLUTION,
            line=written[0].line,
            evidence=f"{walk.name}: lines {lines} add input times filter for {len(written)} taps without tl.dot",
            nearest="a stencil whose factors are loaded",
        ), frozenset(loop for product in written for loop in product.loops)
    return None, frozenset()


def _is_filter(weight: Value, image: Value) -> bool:
    """Whether a factor may be a filter's: numbers of another buffer, at most scaled and shifted."""
    own = {root for root, _ in weight.reads}
    return bool(own) and not own & {root for root, _ in image.reads} and all(use <= Use.LINEAR for _, use in weight.reads)


def find_written_taps(walk: KernelWalk) -> list[Product]:
    """Products of one sum whose input moves along the output's places from one to the next, and whose filter moves by even steps."""
    targets = dict.fromkeys((product.target, product.sides) for product in walk.products if product.target)
    for target, sides in targets:
        same = [product for product in walk.products if product.target == target and product.sides <= sides]
        for image, weight in (("left", "right"), ("right", "left")):
            pairs = [(_only(getattr(product, image)), _only(getattr(product, weight)), product) for product in same]
            known = [(image_at, weight_at, product) for image_at, weight_at, product in pairs if image_at and weight_at]
            if len(known) < _FEWEST_TAPS or not all(_is_filter(getattr(each, weight), getattr(each, image)) for _, _, each in known):
                continue
            first, start, _ = known[0]
            taps = [product for at, key, product in known if _is_shift(at, first) and _is_step(key - start)]
            along = _find_units(first) & {monomial for at, _, _ in known for monomial, _ in (at - first).terms}
            moved = {at for at, _, _ in known}
            sources = {frozenset(root for root, _ in getattr(product, image).reads) for product in taps}
            whole = len(taps) == len(known) == len(moved) and len({key for _, key, _ in known}) == len(known)
            if along and len(sources) == 1 and whole:
                return taps
    return []


def _only(side: Value) -> Polynomial | None:
    """The one address that a factor is loaded from."""
    origins = list(side.origins)
    return origins[0] if len(origins) == 1 else None


def _is_step(form: Polynomial) -> bool:
    """Whether it is a number, or a number of rows."""
    return len(form.terms) <= 1 and all(symbol.kind == "parameter" and len(symbols) == 1 for symbols, _ in form.terms for symbol in symbols)


def _is_shift(form: Polynomial, other: Polynomial) -> bool:
    """Whether two addresses of tiles lie a fixed number of elements, or of rows, apart."""
    apart = form - other
    place = any(dep.startswith("range:") for dep in form.deps)
    sizes = all(symbol.kind == "parameter" and len(symbols) == 1 for symbols, _ in apart.terms for symbol in symbols)
    return place and sizes and all(abs(number) <= _MOST_STRIDE for _, number in apart.terms)


def _find_units(form: Polynomial) -> set[Monomial]:
    """How far apart neighbours lie along each place of the output: one element, or one row."""
    return {
        tuple(symbol for symbol in symbols if symbol is not place)
        for symbols, _ in form.terms
        for place in symbols
        if place.is_place()
    }  # fmt: skip


def find_taps(walk: KernelWalk, product: Product) -> list[Loop]:
    """Loops over taps: the input's address slides with the output's place and with the tap alike, and the filter's with the tap alone."""
    loops = [walk.loops[around] for around in product.loops if not walk.loops[around].polls]
    for image, weight in ((product.left, product.right), (product.right, product.left)):
        if not _is_filter(weight, image):
            continue
        own = {symbol for form in weight.origins for symbol in form.symbols()}
        sliding = [loop for loop in loops if any(find_sliding(walk, form, loop) - own for form in image.origins)]
        sliding += [loop for loop in _find_windows(image, loops, own) if loop not in sliding]
        compared = _find_coordinates(walk, image.origins)
        sliding += [loop for loop in loops if loop not in sliding and any(find_sliding(walk, form, loop, True) - own for form in compared)]
        moved = [loop for loop in sliding if any(loop.name in form.deps for form in weight.origins)]
        fixed = [loop for loop in moved if not any(find_sliding(walk, form, loop) for form in weight.origins)]
        short = [loop for loop in fixed if loop.trips is None or loop.trips <= SHORT_TRIPS**2]
        if short:
            both = [form for side in (image, weight) for form in side.origins]
            also = [loop for loop in loops if (loop.trips or 0) in range(2, SHORT_TRIPS) and all(loop.name in form.deps for form in both)]
            return [loop for loop in loops if loop in short or loop in also]
    return []


def passes_over_window(walk: KernelWalk, loop: Loop) -> bool:
    """Whether a loop goes over a window whose length is a constant of the launch; of two loops of one length one may show it."""
    bound = {symbol.key for symbol in loop.last.symbols()} if loop.last is not None and loop.trips is None else set()
    beside = [each for each in walk.loops.values() if each.last == loop.last and (each.id in loop.outer or loop.id in each.outer)]
    return bool(bound) and bound <= walk.compiled and any(_slides(walk, each) for each in (loop, *beside))


def _slides(walk: KernelWalk, loop: Loop) -> bool:
    """Whether all that moves with a loop slides with the output's place, and not from one tile to the next."""
    moving = [site.address.form for site in walk.accesses if site.kind == "load" and loop.name in site.address.form.deps]
    length = set(loop.last.symbols()) if loop.last is not None else set()
    parted = any(length & set(symbols) and any(one.is_place(loop.name) for one in symbols) for form in moving for symbols, _ in form.terms)
    if parted or not moving or any(_find_tiles(walk, form, loop) for form in moving):
        return False  # the axis is parted by the length
    coordinates = ((form, _find_coordinates(walk, frozenset({form}))) for form in moving)
    return all(
        _slides_evenly(walk, form, loop) or any(find_sliding(walk, part, loop, True) for part in parts) for form, parts in coordinates
    )


def _slides_evenly(walk: KernelWalk, form: Polynomial, loop: Loop) -> bool:
    """Whether places slide by whole steps of the loop: a dilation could as well be the length of another axis."""
    steps, places = [set(symbols) for symbols, _ in form.coefficient(loop.name).terms], find_sliding(walk, form, loop)
    ways = [set(symbols) for place in places for symbols, _ in form.coefficient(place.name).terms]
    return bool(places) and (not steps or any(step <= way for step in steps for way in ways))


def _find_coordinates(walk: KernelWalk, origins: frozenset[Polynomial]) -> list[Polynomial]:
    """Sums that the masks of a factor's loads compare with an edge. Each is one coordinate, whatever place and tap are multiplied by."""
    masks = [site.mask for site in walk.accesses if site.kind == "load" and site.mask is not None and site.address.form in origins]
    return [part for mask in masks for symbol in mask.all_symbols() if symbol.kind == "opaque" for part in symbol.parts]


def _find_windows(image: Value, loops: list[Loop], own: set[Symbol]) -> list[Loop]:
    """Loops over windows that do not overlap: each place of the output is as far from the next as its loop is long, and one place lies
    between the elements of two loops, as columns of windows lie between rows.
    """
    found: list[Loop] = []
    for form in image.origins:
        for inner in loops:
            length = form.coefficient(inner.name) * (inner.last or Polynomial())
            if not length.terms or not _has_place(form, length, own):
                continue
            for outer in loops:
                row = form.coefficient(outer.name)
                between = row.terms and find_multiple(row, length) is None and find_multiple(length, row) is None
                if outer is not inner and between and _has_place(form, row * (outer.last or Polynomial()), own):
                    found += [outer, inner]
    return found


def _has_place(form: Polynomial, unit: Polynomial, own: set[Symbol]) -> bool:
    """Whether a place of the output, and not of the filter, moves an address by a unit."""
    places = {symbol for symbol in form.symbols() if symbol.is_place()} - own
    return bool(unit.terms) and any(form.coefficient(place.name) == unit for place in places)


def find_sliding(walk: KernelWalk, form: Polynomial, loop: Loop, coordinate: bool = False) -> set[Symbol]:
    """Places of the output with which an address moves as with a loop: row and place in x[row * W + i * W + place + j].

    Both then have the same factor up to a stride of the place and a dilation of the tap, and the stride is not the length of the loop:
    where it is, the loop runs along an axis of its own. Names for these count only beside a common factor, or one may be a row's length;
    and in a sum that is known to be one coordinate.
    """
    inside = (part for symbol in form.all_symbols() if symbol.kind == "opaque" and loop.name in symbol.deps for part in symbol.parts)
    found = {place for part in inside if _mixes(part, loop) for place in find_sliding(walk, part, loop, coordinate)}
    if found:
        return found  # a quotient by the stride, as in a transposed convolution, or a place that is kept within an edge
    over, tiles = _find_tiles(walk, form, loop), _find_tile_programs(walk, form)
    moving = over or {loop.name}  # taps in tiles: their elements are the taps
    taps = [(symbols, number) for symbols, number in form.terms if any(moving & symbol.all_deps for symbol in symbols)]
    tiles |= over
    places = [
        (symbols, number)
        for symbols, number in form.terms
        if any(symbol.is_place(loop.name) for symbol in symbols) and not any(symbol.name in tiles for symbol in symbols)
    ]
    bound = {symbol for form in (loop.first, loop.last or Polynomial()) for symbol in form.all_symbols()}
    for symbols, number in taps:
        factor = Counter(symbol for symbol in symbols if not moving & symbol.all_deps)
        for others, times in places:
            common = factor & Counter(others)
            rest, dilation = Counter(others) - common, factor - common
            strides = Counter({symbol: count for symbol, count in rest.items() if not symbol.is_place(loop.name)})
            ratio = max(abs(times // number), abs(number // times))
            if times % number and number % times or ratio > _MOST_STRIDE or ratio == loop.trips or bound & strides.keys():
                continue
            named = strides.total(), dilation.total()
            if named == (0, 0) or (common or coordinate) and max(named) <= 1:
                found |= {symbol for symbol in rest if symbol.is_place(loop.name)}
    return found


def _measure_ranges(walk: KernelWalk, form: Polynomial) -> dict[str, Polynomial]:
    """How far each range of elements in an address goes."""
    ranges = {symbol.name for symbol in form.symbols() if symbol.kind == "range"}
    return {name: form.coefficient(name) * walk.ranges.get(name, Polynomial()) for name in ranges}


def _find_tile_programs(walk: KernelWalk, form: Polynomial) -> set[str]:
    """Program ids that select a tile whose elements are in the same address, so that those are the places."""
    lengths = list(_measure_ranges(walk, form).values())
    programs = {symbol.name for symbol in form.symbols() if symbol.kind == "program"}
    return {name for name in programs if form.coefficient(name) in lengths}


def _find_tiles(walk: KernelWalk, form: Polynomial, loop: Loop) -> set[str]:
    """Elements of tiles over which a loop goes."""
    over = form.coefficient(loop.name)
    return {name for name, length in _measure_ranges(walk, form).items() if over.terms and length in (over, over.scaled(-1))}


def _mixes(form: Polynomial, loop: Loop) -> bool:
    """Whether a polynomial holds the loop and a place of the output in terms of their own."""
    own = [frozenset().union(*(symbol.all_deps for symbol in symbols)) for symbols, _ in form.terms]
    moved = any(loop.name in deps for deps in own)
    return moved and any(any(symbol.is_place(loop.name) for symbol in symbols) for symbols, _ in form.terms)
