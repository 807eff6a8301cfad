"""The kernels of a product: tiles of the result, with elementwise work on operands as they are read and on sums before the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tritonsmith.author.compiler.fusing.operands import find_fresh
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import ACROSS, COLUMN, DOWN, LINE, TAP
from tritonsmith.author.compiler.ir.code import (
    Binary,
    Compare,
    Evaluate,
    Expression,
    For,
    Function,
    Group,
    Module,
    Name,
    Statement,
    number,
)  # fmt: skip
from tritonsmith.author.compiler.ir.precedence import tidy
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import Tensor
from tritonsmith.author.compiler.ir.walk import names_in, rename
from tritonsmith.author.compiler.kernels.differences import OF_DIFFERENCES, find_distances, sum_differences
from tritonsmith.author.compiler.kernels.emitter import Arguments, Scope
from tritonsmith.author.compiler.kernels.kernel import Buffer, KeptParts, Kernel, make_function
from tritonsmith.author.compiler.kernels.pieces import add, assign, join_tests, load, loop, times
from tritonsmith.author.compiler.kernels.product_described import DescribedWriter, DoubleWriter, WindowWriter
from tritonsmith.author.compiler.kernels.product_grid import (
    BLOCK_M,
    BLOCK_N,
    INNER,
    OUTER,
    SIZES,
    TileEmitter,
    TileGrid,
    count_tiles,
    is_below,
    write_head,
    write_places,
)
from tritonsmith.author.compiler.kernels.product_integers import IntegerWriter
from tritonsmith.author.compiler.kernels.product_parts import FreshParts, watch_places, write_fresh, write_parts
from tritonsmith.author.compiler.kernels.product_stores import StoreWriter
from tritonsmith.author.compiler.kernels.product_tiles import STEP, ProductTile, choose_tile
from tritonsmith.author.compiler.kernels.schemes import SPLIT, accumulate, finish_sums, start_sums
from tritonsmith.author.recipe import Settings

_BIG = 2**31
"""Elements from which on places need numbers of 64 bits."""
_EXACT_STEP = 16
"""Places of the depth at once where values are multiplied one by one."""
_WHOLE = 64
"""Rows that the tensor cores of sm_90 multiply at once."""
_PARTS = {"fp16x3": ("high", "low"), "fp16": ("high",)}
"""By scheme: the parts of an operand that it multiplies."""
_WEIGHTS = {"large": 2, "high": 0, "low": 1}
"""The parts of weights that a program holds, and where they lie: high parts times 2^11, high parts, low ones."""
_NAMES = (*OUTER, *INNER, *SIZES.values(), "above", "beside", "every", "left_wide", "right_wide",
          "total", "total_rest", "total_block", "left", "right", "left_high", "left_low", "right_high", "right_low",
          "left_largest", "right_largest", "rough", "pid", "apart", "inside", "group", "height", "position", "exponent",
          "flat", "column")  # fmt: skip
"""Names of the kernel's own."""


def write_product(region: ProductRegion, name: str, settings: Settings, made: dict[tuple[int, int], FreshParts]) -> list[Kernel]:
    """One program for each tile of the result, behind the kernels that split operands.

    made: by value and axis: parts that forward has already; what is added here is added to it.
    """
    tile = choose_tile(region, settings)
    fresh: dict[str, FreshParts] = {}
    kernels: list[Kernel] = []
    twins = [find_fresh(twin) if tile.ahead else {} for twin in region.twins or (region, region)]
    for side, operand in (find_fresh(region) if tile.ahead else {}).items():
        key = id(operand.base), operand.axis
        if key not in made:
            title = f"split_{operand.base.name or side}_of_{name}"
            usual, other = (twin.get(side, operand) for twin in twins)
            free = usual.others != other.others
            programs = region.card.busy_programs
            made[key] = write_fresh(operand, usual.places, free, tile.scheme, title, lambda value: id(value) in region.reads, programs)
            kernels.append(made[key].kernel)
        fresh[side] = replace(made[key], operand=operand)
    if tile.integers or tile.described:
        form = IntegerWriter if tile.integers else WindowWriter if tile.boxes else DoubleWriter if tile.second else DescribedWriter
        return [form(region, tile, name).write()]
    return [*kernels, (OnceWriter if tile.at_once else ProductWriter)(region, tile, name, fresh).write()]


class ProductWriter:
    """Writes the kernel of a region.

    A parameter is split ahead, so its tiles go from memory to the tensor cores as they are. The other operand is split in registers, from
    which tensor cores take a left operand only: where the parameter is on the left, the tile is computed transposed. Where the kernel goes
    along neighbouring columns it is not, if tensor cores multiply so many rows at once: a thread has neighbours in its registers then.
    """

    def __init__(self, region: ProductRegion, tile: ProductTile, name: str, fresh: dict[str, FreshParts]) -> None:
        self.region, self.tile, self.name, self.fresh = region, tile, name, fresh
        self.arguments = Arguments()
        self.reserved = {*_NAMES, *(OF_DIFFERENCES if region.product.differences else ())}
        self.arguments.used |= self.reserved
        self.batch, self.rows, self.columns, self.taps, self.depth = region.product.sizes
        self.grid = TileGrid(region.product, tile, region.free_axis)
        self.parts: KeptParts | None = write_parts(region, tile, name) if tile.kept else None
        along = bool(region.tiled) and not region.product.reduced
        self.turned = tile.kept == "left" and not (fresh and (along or tile.at_once) and tile.rows >= _WHOLE)
        self.carried = bool(fresh) and tile.scheme == "fp16x3"

    def write(self) -> Kernel:
        """The kernel."""
        product, ahead = self.region.product, None
        if product.differences and not product.squares:
            body = sum_differences(self.region, self._open(), self._read)
        else:
            body = self._sum(self.tile.scheme, "BLOCK_K")
        if split := self.tile.scheme in SPLIT:
            more, test = self._check()
            self._take_operands()
            body += [*more, *statements("rough = {test}  # rare: fp16 parts would lose digits", test=test)]
        if product.squares:
            body += find_distances(self.region, self._open(), split)
            if not split:
                self._take_operands()
        tail = StoreWriter(self.region, self.grid, self.arguments, self._has_many()).write()
        head = write_head(self.grid, self.arguments.largest >= _BIG)
        if split or product.squares:
            ahead, call = self._write_again([*head, *self._sum_exactly(), *tail])
            tail += statements("if rough:\n    tl.debug_barrier()  # the stores above come first\n    {call}", call=call)
        constants = [("BLOCK_M", self.tile.rows), ("BLOCK_N", self.tile.columns), ("BLOCK_K", self.tile.depth)]
        return self._finish([*head, *body, *tail], constants, self.grid.launched, ahead)

    def _finish(
        self, body: Sequence[Statement], constants: list[tuple[str, int]], programs: Expression, ahead: Function | None
    ) -> Kernel:
        tile, used = self.tile, _list_names(body)
        return Kernel(
            name=self.name, does="", arguments=self.arguments.list(), sizes=self.grid.list_sizes(used),
            constants=[*constants, *([("GROUP", tile.group)] if "GROUP" in used else [])], body=body,
            grid=expression("({programs},)", programs=programs), stores=list(self.region.stores), warps=tile.warps,
            stages=tile.stages, registers=tile.registers, ahead=ahead, parts=self.parts,
        )  # fmt: skip

    def _has_many(self) -> bool:
        """Whether a tensor has so many elements that their places need 64 bits."""
        return max(self.arguments.largest, *(value.holder.size for value in self.region.stores)) >= _BIG

    def _in_memory(self, value: Tensor) -> bool:
        return id(value) in self.region.reads or isinstance(value, Buffer)

    def _turn(self, tile: Expression) -> Expression:
        """A tile as the product takes it."""
        return expression("tl.trans({tile})", tile=tile) if self.turned else tile

    def _sum(self, scheme: str, step: str) -> list[Statement]:
        """The loop over taps and depth; for any scheme but the tile's own, over the values themselves."""
        own = scheme == self.tile.scheme
        block = self.tile.depth if own else _EXACT_STEP
        kept = self.tile.kept if own else ""
        turned = self.turned and own
        fresh, carried = (self.fresh, self.carried) if own else ({}, False)
        ends = {axis: _find_end(fresh.get(side), self.depth) for axis, side in ((ACROSS, "left"), (DOWN, "right"))}
        bounds = self.grid.list_bounds() | {axis: is_below(axis, end) if end % block else None for axis, end in ends.items()}
        emitter = TileEmitter(self.arguments, self._in_memory, bounds, OUTER)
        for parts in fresh.values():
            watch_places(emitter, parts, self.region.product.sizes)
        emitter.line(*start_sums(scheme, expression("(BLOCK_N, BLOCK_M)" if turned else "(BLOCK_M, BLOCK_N)"), carried))
        shapes = {"left": ("BLOCK_M", step), "right": (step, "BLOCK_N")}
        watched = [side for side in shapes if scheme in SPLIT and side != self.tile.kept and side not in fresh]
        for side in watched:
            rows, columns = shapes[side][::-1] if turned else shapes[side]
            zeros = expression("tl.zeros(({rows}, {columns}), tl.int32)", rows=rows, columns=columns)
            emitter.line(assign(f"{side}_largest", zeros))
        emitter.open(INNER)
        head = self._open_loop(emitter, block, step)
        for side, shape in shapes.items():
            if side == kept:
                self._read_parts(emitter)
                continue
            source = self.region.product.source if side == "left" else self.region.product.right
            wanted = [(side, source)]
            if side in fresh:
                wanted = [(f"{side}_{name}", fresh[side].view(source, part)) for part, name in enumerate(_PARTS[scheme])]
            for name, value in wanted:
                tile = self._read(emitter, side, value, shape, self.depth % block != 0)
                emitter.line(assign(name, self._turn(tile) if own else tile))
        for side in watched:
            emitter.line(statement("{most} = tl.maximum({most}, magnitude({v}))", most=f"{side}_largest", v=side))
        order = ("right", "left") if turned else ("left", "right")
        ready = order[0] in (*fresh, kept), order[1] in (*fresh, kept)
        emitter.line(*accumulate(scheme, order, ready, carried, self.region.usual.chained))
        emitter.close(head)
        emitter.line(*finish_sums(scheme, carried))
        return emitter.scopes[0].lines

    def _open_loop(self, emitter: TileEmitter, block: int, step: str) -> For:
        """The loop without its body, whose first lines it gets."""
        chunks = -(-self.depth // block)
        start: Expression | None = None
        if self.taps > 1 and chunks > 1:
            emitter.line(statement("tap = position // {chunks}", chunks=chunks))
            start = expression("position % {chunks} * {step}", chunks=chunks, step=step)
            head = loop("position", self.taps * chunks)
        elif self.taps > 1:
            head = loop(TAP, self.taps)
        else:
            start, head = Name("start"), loop("start", 0, self.depth, Name(step))
        places = add(start, expression("tl.arange(0, {step})", step=step))
        emitter.line(*statements("across = {places}[None, :]\ndown = {places}[:, None]", places=places))
        return head

    def _read(self, emitter: TileEmitter, side: str, value: Tensor, shape: tuple[str | int, str | int], ragged: bool) -> Expression:
        """A tile of an operand."""
        if side == "left":
            return emitter.read_tile(value, self.region.left, shape, (LINE, ACROSS), self.depth, ragged)
        return emitter.read_tile(value, self.region.right, shape, (DOWN, COLUMN), self.depth, ragged)

    def _read_parts(self, emitter: TileEmitter) -> None:
        """Tiles of the parts of a parameter, which are filled up with zeros along the depth."""
        assert self.parts is not None
        line, along = (LINE, ACROSS) if self.tile.kept == "left" else (COLUMN, DOWN)
        count, _, lines, places = self.parts.parts.shape
        pointer = Name(self.arguments.take(self.parts.parts))
        first = expression("batch * {lines} + {line}", lines=lines, line=line) if self.batch > 1 else Name(line)
        start = emitter.keep(add(pointer, times(first, places)), OUTER, "parts_at")
        tap = times(Name(TAP), places // self.taps) if self.taps > 1 else None
        mask = self.grid.list_bounds()[line]
        for part, name in enumerate(("high", "low")[:count]):
            tile = load(add(start, part * self.parts.apart, tap, Name(along)), mask, number(0.0))
            emitter.line(assign(f"{self.tile.kept}_{name}", self._turn(tile)))

    def _check(self) -> tuple[tuple[Statement, ...], Expression]:
        """What follows the loop: statements for the powers of two, and the condition under which parts do not do."""
        tests: list[Expression] = []
        for side, axis in (("left", 0 if self.turned else 1), ("right", 1 if self.turned else 0)):
            if side in self.fresh:
                tests.append(Name(f"{side}_wide"))
            elif side != self.tile.kept:
                tests.append(expression("leaves_range({largest}, {axis})", largest=f"{side}_largest", axis=axis))
        wide = Group(tidy(Binary(tests[0], "|", tests[1]))) if len(tests) > 1 else tests[0]
        test: Expression = Compare((">",), (wide, number(0)))
        turn = statements("total = tl.trans(total)") if self.turned else ()
        if self.parts is None:
            return turn, test
        rough = expression("is_rough(tl.max(exponent, {axis}))", axis=1 if self.tile.kept == "left" else 0)
        return (*turn, self._load_exponents(), *_SHIFT), tidy(Binary(Group(test), "|", rough))

    def _load_exponents(self) -> Statement:
        """What loads the powers of two of a parameter's lines."""
        assert self.parts is not None
        line = LINE if self.tile.kept == "left" else COLUMN
        first = expression("batch * {lines}", lines=self.parts.exponents.shape[1]) if self.batch > 1 else None
        address = add(Name(self.arguments.take(self.parts.exponents)), first, Name(line))
        return assign("exponent", load(address, self.grid.list_bounds()[line], number(0)))

    def _open(self) -> TileEmitter:
        """What reads tiles of operands."""
        return TileEmitter(self.arguments, self._in_memory, self.grid.list_bounds(), OUTER)

    def _sum_values(self) -> list[Statement]:
        """The loop over the values themselves, right for all of them."""
        return sum_differences(self.region, self._open(), self._read) if self.region.product.differences else self._sum("ieee", "STEP")

    def _take_operands(self) -> None:
        """Have the kernel take what the values themselves are read from."""
        kept, self.arguments = self.arguments, Arguments()
        self._sum_values()
        needed, self.arguments = self.arguments.values, kept
        for value in needed:
            kept.take(value)

    def _sum_exactly(self) -> list[Statement]:
        """The loop over the values themselves, for a function that has the kernel's arguments."""
        kept, names = self.arguments, dict(self.arguments.names)
        self.arguments = Arguments(names=names, values=list(kept.values), used={*names.values(), *self.reserved})
        body, self.arguments = self._sum_values(), kept
        return body

    def _write_again(self, body: list[Statement], *more: str) -> tuple[Function, Statement]:
        """A function that does the whole tile with the values themselves, and its call; `more`: other names that it may take."""
        used, name = _list_names(body), f"{self.name}_exactly"
        sizes = [size for size, _ in self.grid.list_sizes(used)]
        names = [argument for argument in (*self.arguments.names.values(), *sizes, *more) if argument in used]
        constants = [constant for constant in ("BLOCK_M", "BLOCK_N", "GROUP") if constant in used]
        does = f"A tile of {self.name}, one multiply-add after the other: right for all values that fp32 has."
        apart = self.tile.apart or self.region.product.differences
        function = make_function(name, names, [*constants, "STEP"], does, body, inlined=not apart)
        given = [*names, *constants, _EXACT_STEP]
        return function, Evaluate(expression("{name}({*given})", name=name, given=given))


_SHIFT = statements("total = shift(total, -exponent)")


def _list_names(body: Iterable[Statement]) -> set[str]:
    """The variables of statements."""
    return names_in(Module(tuple(body)))


def _find_end(fresh: FreshParts | None, depth: int) -> int:
    """Where the depth of an operand ends; parts that are made ahead have zeros behind it, up to whole loads, but not behind each group."""
    whole = fresh is not None and fresh.operand.steps == 1 and fresh.operand.depth == depth
    return fresh.operand.padded if fresh is not None and whole else depth


class OnceWriter(ProductWriter):
    """Writes the kernel of a convolution whose depth is so short that a program multiplies all of it at once.

    A program holds the parts of all weights, and takes tiles of columns in turn. The large products are of high parts times 2^11, so all
    three products share one sum. The small ones come first: what tensor cores round off them is small.
    """

    def write(self) -> Kernel:
        """The kernel."""
        weights, sums = self._load_weights(), self._sum_blocks()
        self._take_operands()
        stores = StoreWriter(self.region, self.grid, self.arguments, big := self._has_many())
        tail = stores.write()
        rows, columns = write_places(self.grid, big, BLOCK_M, BLOCK_N)
        same = [rows, self._load_exponents(), *stores.ahead]
        turned = statements("total = tl.trans(total)") if self.turned else ()
        watch = [columns, statement("right_wide = tl.zeros((BLOCK_N,), tl.int32)"), *self._watch().scopes[0].lines]
        ahead, call = self._write_again([
            *same, *(rename(line, {COLUMN: "column"}) for line in watch),  # no name may change its shape below
            *statements("if {test}:\n    {again}", test=_IS_ROUGH, again=[columns, *self._sum_exactly(), *tail]),
        ], "pid")  # fmt: skip
        beside = [count_tiles(self.grid)] if self.grid.free == COLUMN else []
        turns = expression("range(tl.program_id(0), {beside}, tl.num_programs(0))", beside=self.grid.beside)
        body = statements(
            """
            {head}
            for pid in {turns}:
                {tile}
            if {test}:  # rare: fp16 parts would lose digits
                tl.debug_barrier()  # the stores above come first
                for pid in {turns}:
                    {call}
            """,
            head=[*beside, *same, *weights, watch[1]], turns=turns, tile=[columns, *sums, *turned, *_SHIFT, *tail], test=_IS_ROUGH,
            call=call,
        )  # fmt: skip
        return self._finish(body, [("BLOCK_M", self.tile.rows), ("BLOCK_N", self.tile.columns)], self.grid.programs, ahead)

    def _list_blocks(self) -> list[tuple[int, str]]:
        """First place of each block of the depth, and the suffix of its names."""
        return [(block * STEP, f"_{block}" if block else "") for block in range(self.tile.at_once)]

    def _load_weights(self) -> list[Statement]:
        """Statements that load the parts of all weights."""
        assert self.parts is not None
        pointer, whole = Name(self.arguments.take(self.parts.parts)), self.taps * self.depth
        bound, body = self.grid.list_bounds()[LINE], list[Statement]()
        for start, suffix in self._list_blocks():
            body.append(assign(ACROSS, add(start, expression("tl.arange(0, {step})[None, :]", step=STEP))))
            end = is_below(ACROSS, whole) if start + STEP > whole else None
            mask = join_tests(test for test in (bound, end) if test)
            for name, part in _WEIGHTS.items():
                address = add(pointer, part * self.parts.apart, times(Name(LINE), whole), Name(ACROSS))
                body.append(assign(f"left_{name}{suffix}", self._turn(load(address, mask, number(0.0)))))
        return body

    def _watch(self) -> TileEmitter:
        """What reads columns, with the lines that find whether parts do for what each of them reads."""
        emitter = TileEmitter(self.arguments, self._in_memory, self.grid.list_bounds(), OUTER)
        emitter.scopes = [Scope(frozenset((COLUMN,)))]
        watch_places(emitter, self.fresh["right"], self.region.product.sizes, by_column=True)
        return emitter

    def _sum_blocks(self) -> list[Statement]:
        """The sums of a tile."""
        emitter, whole = self._watch(), self.taps * self.depth
        views = {part: self.fresh["right"].view(self.region.product.right, which) for which, part in enumerate(("high", "low"))}
        small, large = list[tuple[str, str]](), list[tuple[str, str]]()
        for start, suffix in self._list_blocks():
            emitter.open(INNER)
            emitter.bounds |= {DOWN: is_below("flat", whole) if start + STEP > whole else None, ACROSS: None}
            emitter.line(assign("flat", add(start, expression("tl.arange(0, {step})[:, None]", step=STEP))))
            if self.taps > 1:
                emitter.line(*statements("tap = flat // {depth}\ndown = flat % {depth}", depth=self.depth))
            else:
                emitter.line(statement("down = flat"))
            for part, view in views.items():
                tile = self._read(emitter, "right", view, (STEP, "BLOCK_N"), False)
                emitter.line(assign(f"right_{part}{suffix}", self._turn(tile)))
            block = emitter.scopes.pop()
            emitter.scopes[0].lines += block.lines
            small += [(f"left_high{suffix}", f"right_low{suffix}"), (f"left_low{suffix}", f"right_high{suffix}")]
            large.append((f"left_large{suffix}", f"right_high{suffix}"))
        for place, pair in enumerate([*small, *large]):
            given = [*(pair[::-1] if self.turned else pair), *(["total"] if place else [])]
            emitter.line(statement("total = tl.dot({*given})", given=given))
        return emitter.scopes[0].lines


_IS_ROUGH = expression("(tl.max(right_wide, 0) > 0) | is_rough(tl.max(exponent, 1))")
