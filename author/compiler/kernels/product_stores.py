"""What a product's kernel does with its sums: elementwise work, reductions along neighbouring columns, and the stores."""

from __future__ import annotations

from dataclasses import replace

from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import (
    COLUMN,
    LINE,
    ColumnSpace,
    GroupSpace,
    LastSpace,
    Misfit,
    ProductSpace,
    TileSpace,
    Walk,
)
from tritonsmith.author.compiler.ir.code import Assign, Expression, Name, Statement, Tuple, number
from tritonsmith.author.compiler.ir.indices import Coordinates, ravel
from tritonsmith.author.compiler.ir.template import expression, statement
from tritonsmith.author.compiler.ir.values import Reduction, Tensor, TensorView
from tritonsmith.author.compiler.kernels.anchors import EXTREMES, HELPER, TITLES, Terms, fill_line, find_kind, find_neutral
from tritonsmith.author.compiler.kernels.emitter import Arguments, Scope, locate_store
from tritonsmith.author.compiler.kernels.kernel import Buffer
from tritonsmith.author.compiler.kernels.pieces import assign, choose, divide, is_name, join_tests, store, times
from tritonsmith.author.compiler.kernels.product_grid import BLOCK_M, BLOCK_N, OUTER, TileEmitter, TileGrid, unfold_sums, write_places

_NAMES = {"max": "most", "min": "least", "sum": "part"}


AnySpace = ProductSpace | LastSpace | TileSpace | ColumnSpace | GroupSpace


class StoreWriter:
    """Writes the lines behind the loop, which start from `total`.

    Args:
        region: the product's.
        grid: its tiles.
        arguments: gets what is read and stored.
        big: whether places need numbers of 64 bits.
        sums: the name of the sums of a tile.
    """

    shape: Expression = Tuple((BLOCK_M, BLOCK_N))
    """Of the sums."""

    def __init__(self, region: ProductRegion, grid: TileGrid, arguments: Arguments, big: bool, sums: str = "total") -> None:
        self.region, self.grid, self.arguments, self.big = region, grid, arguments, big
        self.found: dict[tuple[int, int], str] = {}
        """By reduction and number: the name of its result."""
        self.ahead: list[Statement] = []
        """Lines that are the same for all tiles of a program which has several beside each other."""
        self.emitter = self._open(region.product.folded)
        self.emitter.outcomes[id(region.product), 0] = sums
        self.emitter.names[sums] = frozenset((LINE, COLUMN))

    def _open(self, folded: int = 1, size: int = 1) -> TileEmitter:
        bounds = self.grid.list_bounds(folded, size)
        emitter = TileEmitter(self.arguments, lambda one: id(one) in self.region.reads or isinstance(one, Buffer), bounds, OUTER)
        emitter.rounded = self.region.rounded
        if self.grid.tile.at_once:
            emitter.scopes = [Scope(frozenset((LINE,)), self.ahead), Scope(frozenset((COLUMN,)))]
        return emitter

    def write(self) -> list[Statement]:
        """The statements."""
        folded = self.region.product.folded
        self.emitter.line(*unfold_sums(self.grid, self.big))
        for anchor in self.region.tiled:
            if not anchor.tile:
                self._reduce_group(anchor) if anchor.group else self._reduce_rows(anchor)
        by_size: dict[int, list[tuple[Tensor, AnySpace, Coordinates]]] = {}
        for value in self.region.stores:
            space, at = self._locate(value)
            by_size.setdefault(space.anchor.tile if isinstance(space, TileSpace) else 0, []).append((value, space, at))
        shape = Tuple((divide(BLOCK_M, folded), times(BLOCK_N, folded))) if folded > 1 else self.shape
        for value, space, at in by_size.pop(0, []):
            self._store(self.emitter, value, space, at, shape)
        for anchor in sorted(self.region.tiled, key=lambda one: one.tile):
            if anchor.tile:
                self._reduce(anchor)
        lines = self.emitter.scopes[-1].lines
        for size, stores in sorted(by_size.items()):
            emitter = self._open(size=size)
            emitter.outcomes |= self.found
            emitter.names |= dict.fromkeys(self.found.values(), frozenset((LINE, COLUMN)))
            emitter.line(write_places(self.grid, self.big, BLOCK_M, divide(BLOCK_N, size))[1])
            for value, space, at in stores:
                self._store(emitter, value, space, at, Tuple((BLOCK_M, divide(BLOCK_N, size))))
            lines += emitter.scopes[-1].lines
        return lines

    def _locate(self, value: Tensor) -> tuple[AnySpace, Coordinates]:
        """Where a value's elements are known: with the sums, or with what a reduction finds."""
        for space in self.region.spaces:
            found = space.find(value.shape)
            if found is None:
                continue
            try:
                Walk(lambda one: id(one) in self.region.reads, allowed=self.region.results).visit(value, found[0])
            except Misfit:
                continue
            return space, found[0]
        raise AssertionError("the cut lets no other value in")

    def _store(self, emitter: TileEmitter, value: Tensor, space: AnySpace, at: Coordinates, shape: Expression) -> None:
        element = emitter.read(value, at, space.guards)
        target, index = locate_store(value, ravel(at, value.shape))
        own = OUTER - {LINE} if isinstance(space, ColumnSpace) else OUTER
        if isinstance(space, GroupSpace) and self._is_whole(space.anchor) and COLUMN not in emitter.depends(element) | index.names:
            own = OUTER - {COLUMN}  # one number for each row of the tile
        mask, address = emitter.mask(own, space.guards), emitter.address(target, index, stored=True)
        if own is OUTER and not {LINE, COLUMN} <= index.names:
            address = expression("tl.broadcast_to({address}, {shape})", address=address, shape=shape)
        emitter.line(store(address, element, mask))

    def _choose_title(self, anchor: Reduction) -> str:
        """The name of a reduction's first result."""
        return self.arguments.name(anchor.name or TITLES.get(anchor.kind, anchor.kind))

    def _note_results(self, anchor: Reduction, title: str, *names: str) -> None:
        """Have what follows use a reduction's results, which differ along these variables."""
        for which, part in enumerate(find_kind(anchor.kind, anchor.source.dtype).parts[:2]):
            self.emitter.outcomes[id(anchor), which] = f"{title}{part}"
            self.emitter.names[f"{title}{part}"] = frozenset(names)

    def _reduce_rows(self, anchor: Reduction) -> None:
        """One number for each column, of all channels."""
        space, place = self._locate(anchor.source)
        guards = space.guards
        channels, kind = self.region.product.shape[1], find_kind(anchor.kind, anchor.source.dtype)
        title, valid = self._choose_title(anchor), self.emitter.bounds[LINE]
        value = self.emitter.read(anchor.source, place, guards)
        terms = Terms(title, number(channels), value, Name(LINE), keep=True, valid=valid)
        for line in kind.whole:
            if line is HELPER:
                assert anchor.helper is not None
                terms = replace(terms, helper=self.emitter.read(anchor.helper, place, guards))
            else:
                self.emitter.line(fill_line(line, terms))
            self._note_results(anchor, title, COLUMN)

    def _reduce_group(self, anchor: Reduction) -> None:
        """Numbers of each few neighbouring columns, for each of these."""
        space, place = self._locate(anchor.source)
        kind, size = find_kind(anchor.kind, anchor.source.dtype), anchor.group
        title = self._choose_title(anchor)
        if self._is_whole(anchor):
            self._reduce_lines(anchor, Terms(title, number(size), self.emitter.read(anchor.source, place, space.guards), axis=1, keep=True))
            return
        shape = Tuple((BLOCK_M, divide(BLOCK_N, size), number(size)))
        terms = Terms(title, number(size), _reshape(self.emitter.read(anchor.source, place, space.guards), shape), axis=2, keep=True)
        for line in kind.whole:
            if line is HELPER:
                assert anchor.helper is not None
                helper = self.arguments.name("apart")
                self.emitter.line(assign(helper, _reshape(self.emitter.read(anchor.helper, place, space.guards), shape)))
                terms = replace(terms, helper=Name(helper))
                continue
            taken = fill_line(line, terms)
            assert isinstance(taken, Assign), "such lines are assignments"
            name = taken.targets[0]
            spread = statement("{n} = tl.reshape(tl.broadcast_to({n}, {shape}), {tile})", n=name, shape=shape, tile=_TILE)
            self.emitter.line(replace(taken, comment=f"# of each {size} columns"), spread)
            self._note_results(anchor, title, LINE, COLUMN)

    def _is_whole(self, anchor: Reduction) -> bool:
        """Whether a tile has one group of columns and the product no more: its numbers are those of the tile's rows."""
        return anchor.group == self.grid.tile.columns == self.region.product.sizes[2] and self.region.product.folded == 1

    def _reduce_lines(self, anchor: Reduction, terms: Terms) -> None:
        """A number for each row of a tile that has all columns."""
        space, place = self._locate(anchor.source)
        for line in find_kind(anchor.kind, anchor.source.dtype).whole:
            if line is HELPER:
                assert anchor.helper is not None
                terms = replace(terms, helper=self.emitter.read(anchor.helper, place, space.guards))
                continue
            self.emitter.line(fill_line(line, terms))
            self._note_results(anchor, terms.title, LINE)

    def _reduce(self, anchor: Reduction) -> None:
        """One number for each window or block of a tile's rows."""
        assert isinstance(anchor.source, TensorView)
        space, order = self.region.space, self.region.product.order
        value = self.emitter.read(anchor.reduced, space.place, space.guards)
        inside = join_tests(() if anchor.source.windows else [test for guard in space.guards for test in guard.list_tests()])
        if anchor.kind == "moments":
            self._find_moments(anchor, value, inside)
            return
        if anchor.kind in ("argmax", "argmin"):
            self._find_places(anchor, value, inside)
            return
        counted = choose(inside, value, find_neutral(anchor))
        name = self.found[id(anchor), 0] = self.arguments.name(_NAMES[anchor.kind])
        in_strips = anchor.source.windows and order is not None and order.strip > 1
        taken = self._take_in_strips(anchor.kind, counted) if in_strips else self._take(anchor.kind, counted, anchor.tile)
        what = "window" if anchor.source.windows else "block of columns"
        self.emitter.line(replace(assign(name, taken), comment=f"# of each {what}"))

    def _find_places(self, anchor: Reduction, value: Expression, inside: Expression | None) -> None:
        """The extreme of each block of columns, and its first column."""
        size, title = anchor.tile, self.arguments.name(_NAMES[anchor.kind[3:]])
        whole, valid = size == self.grid.tile.columns, None
        shape = Tuple((BLOCK_M, divide(BLOCK_N, size), number(size)))

        def lay(given: Expression) -> Expression:
            return given if whole else _reshape(expression("tl.broadcast_to({x}, {tile})", x=given, tile=_TILE), shape)

        if inside is not None:
            valid = Name("inside")
            self.emitter.line(assign("inside", lay(inside)))
        if not whole or not is_name(value):
            self.emitter.line(assign("compared", lay(value)))
            value = Name("compared")
        kind = find_kind(anchor.kind, anchor.source.dtype)
        place = Name(COLUMN)
        if not whole:
            self.emitter.line(assign("column", lay(place)))
            place = Name("column")
        terms = Terms(title, number(size), value, place, axis=1 if whole else 2, keep=True, valid=valid)
        for line in kind.whole:
            self.emitter.line(replace(fill_line(line, terms), comment="# of each block of columns"))
        for which, part in enumerate(kind.parts):
            name = self.found[id(anchor), which] = f"{title}{part}"
            if not whole:
                rows = Tuple((BLOCK_M, divide(BLOCK_N, size)))
                self.emitter.line(assign(name, _reshape(Name(name), rows)))

    def _take(self, kind: str, value: Expression, size: int, rows: Expression = BLOCK_M) -> Expression:
        """A number for each few neighbours of a row; all of a tile need no other shape, which would move them between threads."""
        if size == self.grid.tile.columns:
            return _write_reduction(kind, value, 1, keep=True)
        shape = Tuple((rows, divide(BLOCK_N, size), number(size)))
        return _write_reduction(kind, _reshape(value, shape), 2)

    def _take_in_strips(self, kind: str, value: Expression) -> Expression:
        """A number for each window of strips: first of what lies above each other, which a thread has, then of neighbours."""
        order = self.region.product.order
        assert order is not None
        whole, high = order.area * order.strip == self.grid.tile.columns, order.window[:-1]
        blocks = [] if whole else [divide(BLOCK_N, order.area * order.strip)]
        axis = 1 + len(blocks)
        taken = _reshape(value, Tuple((BLOCK_M, *blocks, *map(number, (*high, order.strip, order.window[-1])))))
        for along in (*(axis for _ in high), axis + 1):
            taken = _write_reduction(kind, taken, along)
        return taken if whole else _reshape(taken, Tuple((BLOCK_M, divide(BLOCK_N, order.area))))

    def _find_moments(self, anchor: Reduction, value: Expression, inside: Expression | None) -> None:
        """Sum, squares about the mean, and the number of values of each block."""
        total, squares, count = (self.arguments.name(hint) for hint in ("part", "squares", "counted"))
        self.found |= {(id(anchor), 0): total, (id(anchor), 1): squares, (id(anchor), 2): count}
        emitter, size = self.emitter, anchor.tile
        terms: Expression = number(float(size))
        valid = None
        if inside is not None:
            valid = Name("inside")
            counted = self._take("sum", expression("inside.to(tl.float32)"), size, number(1))
            emitter.line(assign("inside", inside), assign(count, counted))
            terms = expression("tl.maximum({count}, 1.0)", count=count)
        taken = self._take("sum", choose(valid, value, number(0.0)), size)
        emitter.line(replace(assign(total, taken), comment="# of each block of columns"))
        mean = expression("{total} / {terms}", total=total, terms=terms)
        if size != self.grid.tile.columns:
            shape = Tuple((BLOCK_M, divide(BLOCK_N, size), number(size)))
            emitter.line(statement("apart = tl.broadcast_to({mean}[:, :, None], {shape})", mean=mean, shape=shape))
            mean = _reshape(Name("apart"), _TILE)
        emitter.line(statement("apart = {x} - {mean}", x=value, mean=mean))
        emitter.line(assign(squares, self._take("sum", choose(valid, expression("apart * apart"), number(0.0)), size)))


_TILE = Tuple((BLOCK_M, BLOCK_N))


def _reshape(value: Expression, shape: Expression) -> Expression:
    return expression("tl.reshape({x}, {shape})", x=value, shape=shape)


def _write_reduction(kind: str, value: Expression, axis: int, *, keep: bool = False) -> Expression:
    """A sum or an extreme along an axis; an extreme is NaN if one value is."""
    options = ", keep_dims=True" if keep else ""
    if kind in EXTREMES:
        return expression(f"tl.reduce({{x}}, {axis}, combine_fn={EXTREMES[kind]}{options})", x=value)
    return expression(f"tl.{kind}({{x}}, {axis}{options})", x=value)
