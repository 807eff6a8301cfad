"""The kernel of a product: tiles of the result, with elementwise work on operands as they are read and on sums before the store."""

from __future__ import annotations

import re

from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.fusing.space import ACROSS, COLUMN, DOWN, LINE
from tritonsmith.author.compiler.ir.values import Tensor
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.kernel import Buffer, KeptParts, Kernel, fold, wrap
from tritonsmith.author.compiler.kernels.product_parts import FreshParts, watch_places, write_parts
from tritonsmith.author.compiler.kernels.product_stores import StoreWriter
from tritonsmith.author.compiler.kernels.product_tiles import (
    INNER,
    OUTER,
    SIZES,
    SPLIT,
    ProductTile,
    TileEmitter,
    TileGrid,
    write_head,
)
from tritonsmith.author.compiler.kernels.texts import list_texts, show
from tritonsmith.author.recipe import load_macros

BIG = 2**31
"""Elements from which on places need numbers of 64 bits."""
_EXACT_STEP = 16
"""Places of the depth at once where values are multiplied one by one."""
_WHOLE = 64
"""Rows that the tensor cores of sm_90 multiply at once."""
_PARTS = {"fp16x3": ("high", "low"), "fp16": ("high",)}
"""By scheme: the parts of an operand that it multiplies."""
_NAMES = (*OUTER, *INNER, *SIZES.values(), "above", "beside", "every", "left_wide", "right_wide",
          "total", "total_rest", "total_block", "left", "right", "left_high", "left_low", "right_high", "right_low",
          "left_largest", "right_largest", "rough", "pid", "apart", "inside", "group", "height", "position", "exponent",
          "flat", "column")  # fmt: skip
"""Names of the kernel's own."""


class ProductWriter:
    """Writes the kernel of a region.

    A parameter is split ahead, so its tiles go from memory to the tensor cores as they are. The other operand is split in registers, from
    which tensor cores take a left operand only: where the parameter is on the left, the tile is computed transposed. Where the kernel goes
    along neighbouring columns it is not, if tensor cores multiply so many rows at once: a thread has neighbours in its registers then.
    """

    def __init__(self, region: ProductRegion, tile: ProductTile, name: str, fresh: dict[str, FreshParts]) -> None:
        self.region, self.tile, self.name, self.fresh = region, tile, name, fresh
        self.arguments = Arguments()
        self.arguments.used |= set(_NAMES)
        self.batch, self.rows, self.columns, self.taps, self.depth = region.product.sizes
        self.grid = TileGrid(region.product, tile, region.free_axis)
        self.macros = load_macros("_products.py.j2")
        self.parts: KeptParts | None = write_parts(region, tile, name) if tile.kept else None
        along = bool(region.tiled) and not region.product.reduced
        self.turned = tile.kept == "left" and not (fresh and (along or tile.at_once) and tile.rows >= _WHOLE)
        self.carried = bool(fresh) and tile.scheme == "fp16x3"

    def write(self) -> Kernel:
        """The kernel."""
        body = self._sum(self.tile.scheme, "BLOCK_K")
        ahead, split = "", self.tile.scheme in SPLIT
        if split:
            lines, test = self._check()
            self._take_operands()
            body += [*lines, f"rough = {test}  # rare: fp16 parts would lose digits"]
        arguments = self.arguments
        largest = max(arguments.largest, *(one.holder.size for one in self.region.stores))
        tail = StoreWriter(self.region, self.grid, arguments, largest >= BIG).write()
        constants = {"BLOCK_M": self.tile.rows, "BLOCK_N": self.tile.columns, "BLOCK_K": self.tile.depth}
        head = write_head(self.grid, arguments.largest >= BIG)
        if split:
            ahead, call = self._write_again(head, [*self._sum_exactly(), *tail])
            tail += ["if rough:", "    tl.debug_barrier()  # the stores above come first", *call]
        lines = [*head, *body, *tail]
        if any("GROUP" in line for line in lines):
            constants["GROUP"] = self.tile.group
        return Kernel.from_text(
            name=self.name, does="", arguments=[(arguments.names[id(one)], one) for one in arguments.values],
            sizes=self.grid.list_sizes(lines), constants=list(constants.items()), lines=lines, grid=f"({self.grid.launched},)",
            stores=list(self.region.stores), warps=self.tile.warps, stages=self.tile.stages, registers=self.tile.registers,
            ahead=ahead, parts=self.parts,
        )  # fmt: skip

    def _in_memory(self, value: Tensor) -> bool:
        return id(value) in self.region.reads or isinstance(value, Buffer)

    def _lines(self, macro: str, *given: object) -> list[str]:
        text: str = getattr(self.macros, macro)(*given)
        return [line for line in text.splitlines() if line.strip()]

    def _sum(self, scheme: str, step: str) -> list[str]:
        """The loop over taps and depth; for any scheme but the tile's own, over the values themselves."""
        own = scheme == self.tile.scheme
        block = self.tile.depth if own else _EXACT_STEP
        ragged = self.depth % block != 0
        parts = self.parts if own else None
        turned = self.turned and own
        fresh, carried = (self.fresh, self.carried) if own else ({}, False)
        ends = {one: _find_end(fresh.get(side), self.depth) for one, side in ((ACROSS, "left"), (DOWN, "right"))}
        bounds = self.grid.list_bounds() | {one: f"({one} < {end})" if end % block else "" for one, end in ends.items()}
        emitter = TileEmitter(self.arguments, self._in_memory, bounds, OUTER)
        for one in fresh.values():
            watch_places(emitter, one, self.region.product.sizes)
        shape = "(BLOCK_N, BLOCK_M)" if turned else "(BLOCK_M, BLOCK_N)"
        for line in self._lines("zeros", scheme, "total", shape, carried):
            emitter.line(line)
        shapes = {"left": ("BLOCK_M", step), "right": (step, "BLOCK_N")}
        watched = [side for side in shapes if scheme in SPLIT and side != self.tile.kept and side not in fresh]
        for side in watched:
            shown = shapes[side][::-1] if turned else shapes[side]
            emitter.line(f"{side}_largest = tl.zeros(({', '.join(shown)}), tl.int32)")
        emitter.open(INNER)
        head = self._open_loop(emitter, block, step)
        for side in shapes:
            if parts is not None and side == self.tile.kept:
                self._read_parts(emitter, parts)
                continue
            source = self.region.product.source if side == "left" else self.region.product.right
            wanted = [(side, source)]
            if side in fresh:
                wanted = [(f"{side}_{name}", fresh[side].view(source, part)) for part, name in enumerate(_PARTS[scheme])]
            for name, value in wanted:
                tile = self._read(emitter, side, value, shapes[side], ragged)
                emitter.line(f"{name} = {f'tl.trans({tile})' if turned else tile}")
        for side in watched:
            emitter.line(f"{side}_largest = tl.maximum({side}_largest, magnitude({side}))")
        order = ("right", "left") if turned else ("left", "right")
        ready = [side in fresh or parts is not None and side == self.tile.kept for side in order]
        for line in self._lines("accumulate", scheme, *order, "total", *ready, carried, self.region.usual.chained):
            emitter.line(line)
        emitter.close(head)
        for line in self._lines("finish", scheme, "total", carried):
            emitter.line(line)
        return list_texts(emitter.scopes[0].lines)

    def _open_loop(self, emitter: Emitter, block: int, step: str) -> str:
        """The first lines of the loop, and its head."""
        chunks = -(-self.depth // block)
        if self.taps > 1 and chunks > 1:
            emitter.line(f"tap = position // {chunks}")
            start, head = f"position % {chunks} * {step} + ", f"for position in range({self.taps * chunks}):"
        elif self.taps > 1:
            start, head = "", f"for tap in range({self.taps}):"
        else:
            start, head = "start + ", f"for start in range(0, {self.depth}, {step}):"
        for name, axis in ((ACROSS, "[None, :]"), (DOWN, "[:, None]")):
            places = f"tl.arange(0, {step})"
            emitter.line(f"{name} = {f'({start}{places})' if start else places}{axis}")
        return head

    def _read(self, emitter: TileEmitter, side: str, value: Tensor, shape: tuple[str, str], ragged: bool) -> str:
        """A tile of an operand."""
        if side == "left":
            return emitter.read_tile(value, self.region.left, shape, (LINE, ACROSS), self.depth, ragged)
        return emitter.read_tile(value, self.region.right, shape, (DOWN, COLUMN), self.depth, ragged)

    def _read_parts(self, emitter: TileEmitter, parts: KeptParts) -> None:
        """Tiles of the parts of a parameter, which are filled up with zeros along the depth."""
        line, along = (LINE, ACROSS) if self.tile.kept == "left" else (COLUMN, DOWN)
        pointer = self.arguments.take(parts.parts)
        count, _, lines, places = parts.parts.shape
        first = f"(batch * {lines} + {line})" if self.batch > 1 else line
        start = show(emitter.keep(f"{pointer} + {first} * {places}", OUTER, "parts_at"))
        tap = f"tap * {places // self.taps} + " if self.taps > 1 else ""
        mask = emitter.bounds[line]
        for number, name in enumerate(("high", "low")[:count]):
            apart = f"{parts.apart} + " if number else ""
            tile = f"tl.load({start} + {apart}{tap}{along}{f', mask={mask}, other=0.0' if mask else ''})"
            emitter.line(f"{self.tile.kept}_{name} = {f'tl.trans({tile})' if self.turned else tile}")

    def _check(self) -> tuple[list[str], str]:
        """What follows the loop: lines for the powers of two, and the condition under which parts do not do."""
        lines, tests = (["total = tl.trans(total)"] if self.turned else []), []
        for side, axis in (("left", "0" if self.turned else "1"), ("right", "1" if self.turned else "0")):
            if side in self.fresh:
                tests.append(f"{side}_wide")
            elif side != self.tile.kept:
                tests.append(f"leaves_range({side}_largest, {axis})")
        test = f"({' | '.join(tests)}) > 0" if len(tests) > 1 else f"{tests[0]} > 0"
        if self.parts is not None:
            left = self.tile.kept == "left"
            line = LINE if left else COLUMN
            pointer, bound = self.arguments.take(self.parts.exponents), self.grid.list_bounds()[line]
            where = f"batch * {self.parts.exponents.shape[1]} + {line}" if self.batch > 1 else line
            lines.append(f"exponent = tl.load({pointer} + {where}{f', mask={bound}, other=0' if bound else ''})")
            lines.append("total = shift(total, -exponent)")
            test = f"({test}) | is_rough(tl.max(exponent, {1 if left else 0}))"
        return lines, test

    def _take_operands(self) -> None:
        """Have the kernel take what the values themselves are read from."""
        kept, self.arguments = self.arguments, Arguments()
        self._sum("ieee", "STEP")
        needed, self.arguments = self.arguments.values, kept
        for one in needed:
            kept.take(one)

    def _sum_exactly(self) -> list[str]:
        """The loop over the values themselves, for a function that has the kernel's arguments."""
        kept, names = self.arguments, dict(self.arguments.names)
        self.arguments = Arguments(names=names, values=list(kept.values), used={*names.values(), *_NAMES})
        lines, self.arguments = self._sum("ieee", "STEP"), kept
        return lines

    def _write_again(self, head: list[str], rest: list[str], *more: str) -> tuple[str, list[str]]:
        """A function that does the whole tile with the values themselves, and its call; `more`: other names that it may take."""
        lines = [*head, *rest]
        text = "\n".join(lines)
        sizes = [name for name, _ in self.grid.list_sizes(lines)]
        offered = [*self.arguments.names.values(), *sizes, *more, "BLOCK_M", "BLOCK_N", "GROUP"]
        names = [one for one in offered if re.search(rf"\b{one}\b", text)]
        does = f"A tile of {self.name}, one multiply-add after the other: right for all values that fp32 has."
        function = _write_function(f"{self.name}_exactly", [*names, "STEP"], does, lines, self.tile.apart)
        return function, wrap(f"{self.name}_exactly(", [*names, str(_EXACT_STEP)], ")", "    ")


def _write_function(name: str, names: list[str], does: str, lines: list[str], apart: bool) -> str:
    """A device function; `apart` where its registers shall not count in the kernel that calls it."""
    given = [f"{one}: tl.constexpr" if one.isupper() else one for one in names]
    head = wrap(f"def {name}(", given, "):", "")
    marked = "@triton.jit(noinline=True)" if apart else "@triton.jit"
    return "\n".join([marked, *head, *(one for line in [f'"""{does}"""', *lines] for one in fold(f"    {line}"))])


def _find_end(fresh: FreshParts | None, depth: int) -> int:
    """Where the depth of an operand ends; parts that are made ahead have zeros behind it, up to whole loads, but not behind each group."""
    whole = fresh is not None and fresh.operand.steps == 1 and fresh.operand.depth == depth
    return fresh.operand.padded if fresh is not None and whole else depth
