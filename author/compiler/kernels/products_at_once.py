"""The kernel of a convolution whose depth is so short that a program multiplies all of it at once.

A program holds the parts of all weights, and takes tiles of columns in turn. The large products are of high parts times 2^11, so all three
products share one sum. The small ones come first: what tensor cores round off them is small.
"""

from __future__ import annotations

import re

from tritonsmith.author.compiler.fusing.space import ACROSS, COLUMN, DOWN, LINE
from tritonsmith.author.compiler.kernels.emitter import Scope
from tritonsmith.author.compiler.kernels.kernel import Kernel
from tritonsmith.author.compiler.kernels.product_parts import watch_places
from tritonsmith.author.compiler.kernels.product_stores import StoreWriter
from tritonsmith.author.compiler.kernels.product_tiles import INNER, OUTER, SIZES, STEP, TileEmitter, write_places
from tritonsmith.author.compiler.kernels.products import BIG, ProductWriter
from tritonsmith.author.compiler.kernels.texts import list_texts

_PARTS = ("large", "high", "low")
"""Of the weights: the high part times 2^11, the high part, and the low one."""


class OnceWriter(ProductWriter):
    """Writes such a kernel."""

    def write(self) -> Kernel:
        """The kernel."""
        weights, sums = self._load_weights(), self._sum_blocks()
        self._take_operands()
        arguments = self.arguments
        big = max(arguments.largest, *(one.holder.size for one in self.region.stores)) >= BIG
        stores = StoreWriter(self.region, self.grid, arguments, big)
        tail = stores.write()
        rows, columns = write_places(self.grid, big, "BLOCK_M", "BLOCK_N")
        same = [rows, *self._load_exponents(), *list_texts(stores.ahead)]
        turned = ["total = tl.trans(total)"] if self.turned else []
        tile = [columns, *sums, *turned, "total = shift(total, -exponent)", *tail]
        wide = "right_wide = tl.zeros((BLOCK_N,), tl.int32)"
        test = "if (tl.max(right_wide, 0) > 0) | is_rough(tl.max(exponent, 1)):"
        watch = [re.sub(rf"\b{COLUMN}\b", "column", line) for line in [columns, wide, *self._watch()]]  # no name may change its shape below
        again = [columns, *self._sum_exactly(), *tail]
        ahead, call = self._write_again([*same, *watch, test], [f"    {line}" for line in again], "pid")
        beside = [f"beside = tl.cdiv({SIZES[COLUMN]}, BLOCK_N)"] if self.grid.free == COLUMN else []
        turns = f"for pid in range(tl.program_id(0), {self.grid.beside}, tl.num_programs(0)):"
        lines = [
            *beside, *same, *weights, wide, turns, *(f"    {line}" for line in tile),
            f"{test}  # rare: fp16 parts would lose digits", "    tl.debug_barrier()  # the stores above come first",
            f"    {turns}", *(f"    {line}" for line in call),
        ]  # fmt: skip
        return Kernel.from_text(
            name=self.name, does="", arguments=[(arguments.names[id(one)], one) for one in arguments.values],
            sizes=self.grid.list_sizes(lines), constants=[("BLOCK_M", self.tile.rows), ("BLOCK_N", self.tile.columns)], lines=lines,
            grid=f"({self._count_programs()},)", stores=list(self.region.stores), warps=self.tile.warps,
            stages=self.tile.stages, registers=self.tile.registers, ahead=ahead, parts=self.parts,
        )  # fmt: skip

    def _count_programs(self) -> str:
        launched, most = self.grid.launched, self.tile.programs
        return str(min(int(launched), most)) if launched.isdigit() else f"min({launched}, {most})"

    def _list_blocks(self) -> list[tuple[int, str]]:
        """First place of each block of the depth, and the suffix of its names."""
        return [(number * STEP, f"_{number}" if number else "") for number in range(self.tile.at_once)]

    def _load_weights(self) -> list[str]:
        """Lines that load the parts of all weights."""
        assert self.parts is not None
        pointer, whole = self.arguments.take(self.parts.parts), self.taps * self.depth
        bound, lines = self.grid.list_bounds()[LINE], []
        for start, suffix in self._list_blocks():
            lines.append(f"across = {f'{start} + ' if start else ''}tl.arange(0, {STEP})[None, :]")
            mask = " & ".join(text for text in (bound, f"(across < {whole})" if start + STEP > whole else "") if text)
            for name, part in zip(_PARTS, (2, 0, 1), strict=True):
                apart = f" + {part * self.parts.apart}" if part else ""
                tile = f"tl.load({pointer}{apart} + m * {whole} + across{f', mask={mask}, other=0.0' if mask else ''})"
                lines.append(f"left_{name}{suffix} = {f'tl.trans({tile})' if self.turned else tile}")
        return lines

    def _load_exponents(self) -> list[str]:
        """The line that loads the powers of two of the weights."""
        assert self.parts is not None
        bound = self.grid.list_bounds()[LINE]
        return [f"exponent = tl.load({self.arguments.take(self.parts.exponents)} + m{f', mask={bound}, other=0' if bound else ''})"]

    def _open_emitter(self) -> TileEmitter:
        emitter = TileEmitter(self.arguments, self._in_memory, dict(self.grid.list_bounds()), OUTER)
        emitter.scopes = [Scope(frozenset((COLUMN,)))]
        return emitter

    def _watch(self) -> list[str]:
        """Lines that find whether parts do for what each column reads."""
        emitter = self._open_emitter()
        watch_places(emitter, self.fresh["right"], self.region.product.sizes, by_column=True)
        return list_texts(emitter.scopes[0].lines)

    def _sum_blocks(self) -> list[str]:
        """The sums of a tile."""
        emitter = self._open_emitter()
        watch_places(emitter, self.fresh["right"], self.region.product.sizes, by_column=True)
        whole, source = self.taps * self.depth, self.region.product.right
        small, large = [], []
        for start, suffix in self._list_blocks():
            emitter.open(INNER)
            emitter.bounds |= {DOWN: f"(flat < {whole})" if start + STEP > whole else "", ACROSS: ""}
            emitter.line(f"flat = {f'{start} + ' if start else ''}tl.arange(0, {STEP})[:, None]")
            if self.taps > 1:
                emitter.line(f"tap = flat // {self.depth}")
            emitter.line(f"down = flat % {self.depth}" if self.taps > 1 else "down = flat")
            for part, name in enumerate(("high", "low")):
                value = self.fresh["right"].view(source, part)
                tile = self._read(emitter, "right", value, (str(STEP), "BLOCK_N"), False)
                emitter.line(f"right_{name}{suffix} = {f'tl.trans({tile})' if self.turned else tile}")
            block = emitter.scopes.pop()
            emitter.scopes[0].lines += block.lines
            small += [(f"left_high{suffix}", f"right_low{suffix}"), (f"left_low{suffix}", f"right_high{suffix}")]
            large.append((f"left_large{suffix}", f"right_high{suffix}"))
        for number, (left, right) in enumerate([*small, *large]):
            given = f"{right}, {left}" if self.turned else f"{left}, {right}"
            emitter.line(f"total = tl.dot({given}{', total' if number else ''})")
        return list_texts(emitter.scopes[0].lines)
