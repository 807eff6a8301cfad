"""The kernel of an attention: a program has a block of queries of one head, and goes through the keys.

It keeps the maximum of the scores so far and the sum of their exponentials, and scales what it has when the maximum grows
(Milakov and Gimelshein, 2018; Dao et al., 2022).
"""

from __future__ import annotations

import math

from tritonsmith.author.compiler.fusing.regions import AttentionRegion
from tritonsmith.author.compiler.ir.attention import COLUMN, KEY, QUERY, can_be_far, find_factor, list_extras
from tritonsmith.author.compiler.ir.indices import ravel, variable
from tritonsmith.author.compiler.ir.values import Tensor
from tritonsmith.author.compiler.kernels.attention.blocks import KEPT, Blocks, choose_blocks, choose_scheme, count_warps
from tritonsmith.author.compiler.kernels.attention.parts import HeadParts, plan_parts, write_head_parts
from tritonsmith.author.compiler.kernels.attention.places import DOWN, SPAN, WORDS, make_emitter, write_piece
from tritonsmith.author.compiler.kernels.attention.products import HeadProducts
from tritonsmith.author.compiler.kernels.attention.spans import write_spans
from tritonsmith.author.compiler.kernels.emitter import Arguments
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel
from tritonsmith.author.compiler.kernels.texts import list_texts, show
from tritonsmith.author.recipe import Settings

_BIG = 2**31
_NONE = 'float("-inf")'
_MANY_BLOCKS = 4
"""Whole blocks of keys from which those that are not whole have a loop of their own."""
_SHARED_HEADS = 8
"""Heads from which it pays to look first which keys a mask shows."""


def write_attention(region: AttentionRegion, name: str, settings: Settings) -> list[Kernel]:
    """The kernel; ahead of it one that splits keys and values, and one where a mask that all heads share hides whole blocks of keys."""
    one = region.attention
    blocks = choose_blocks(one, settings)
    spans = None
    if one.hidden is not None and one.heads >= _SHARED_HEADS and one.keys > blocks.keys:
        spans = Buffer(shape=(-(-one.queries // blocks.queries), len(SPAN)), dtype="int32", name="spans")
    parts = plan_parts(one, blocks, settings)
    writer = AttentionWriter(region, settings, blocks, spans, parts)
    kernels = [] if spans is None else [write_spans(region, f"find_spans_of_{name}", blocks, spans)]
    kernels += [] if parts is None else [write_head_parts(region, f"split_heads_of_{name}", blocks, parts, writer.wide)]
    return [*kernels, writer.write(name)]


class AttentionWriter:
    """Writes the kernel.

    Args:
        region: what it computes.
        settings: ways to multiply, warps and stages.
        blocks: sizes.
        spans: for each block of queries the numbers of `SPAN`; None where nobody knows.
        parts: of keys and values, where a kernel makes them ahead.
    """

    def __init__(self, region: AttentionRegion, settings: Settings, blocks: Blocks, spans: Buffer | None, parts: HeadParts | None) -> None:
        self.region, self.one, self.settings, self.blocks, self.spans = region, region.attention, settings, blocks, spans
        self.arguments = Arguments()
        self.arguments.used |= WORDS | {f"{letter}{number}{end}" for letter in "qkvdce" for number in (0, 1) for end in
                                         ("", "_down", "_valid", "_valid_down", "_high", "_low", "_back", "_rest")}  # fmt: skip
        self.emitter = make_emitter(region, self.arguments, blocks)
        tensors = (*region.reads.values(), self.one, *(piece.parts for piece in ((*parts.keys, *parts.values) if parts else ())))
        self.wide = ".to(tl.int64)" if max(value.size for value in tensors) >= _BIG else ""
        """What makes indices of places into tensors that have too many for 32 bits."""
        self.products = HeadProducts(region, settings, blocks, self.emitter, self.wide, parts)

    def write(self, name: str) -> Kernel:
        """The kernel."""
        one, emitter, blocks = self.one, self.emitter, self.blocks
        for number, (_, places) in enumerate(blocks.columns):
            emitter.line(f"result{number} = tl.zeros((BLOCK_M, {places}), tl.float32)")
        if one.softmax:
            emitter.line(f"most = tl.full((BLOCK_M, 1), {_NONE}, tl.float32)")
            emitter.line("total = tl.zeros((BLOCK_M, 1), tl.float32)")
        if not blocks.stepped:
            for number in range(len(blocks.features)):
                self.products.load_queries(number)
        for ends, clear in self._list_loops():
            self._go_through_keys(ends, clear)
        self._store()
        return self._finish(name)

    def _list_loops(self) -> list[tuple[str, bool]]:
        """The ranges of keys that a program goes through, and whether all keys of a range exist and are seen by all its queries."""
        keys, block = self.one.keys, self.blocks.keys
        if self.spans is not None:
            self.arguments.take(self.spans)
            return [("first, clear", True), ("clear, last", False)]
        if self.one.causal and keys > block:
            return [("0, clear", True), ("clear, last", False)]
        if self.one.causal:
            return [("0, last", False)]
        whole = keys // block * block
        if whole < keys and whole >= _MANY_BLOCKS * block and self.one.clear is None:
            return [(f"0, {whole}", True), (f"{whole}, {keys}", False)]
        return [(f"0, {keys}", False)]

    def _go_through_keys(self, ends: str, clear: bool) -> None:
        """A loop over blocks of keys."""
        emitter, one = self.emitter, self.one
        ragged = one.keys % self.blocks.keys != 0 and not clear
        emitter.bounds |= {KEY: "valid" if ragged else "", DOWN: "valid_down" if ragged else ""}
        emitter.open(frozenset((KEY, DOWN)))
        emitter.line(f"n = (start + tl.arange(0, BLOCK_N)){self.wide}[None, :]")
        emitter.line(f"n_down = (start + tl.arange(0, BLOCK_N)){self.wide}[:, None]")
        if ragged:
            emitter.line(f"valid = n < {one.keys}")
            emitter.line(f"valid_down = n_down < {one.keys}")
        self.products.multiply_features()
        self._weigh(one.clear if clear and one.clear is not None else one.score, ragged)
        self.products.multiply_values()
        emitter.close(f"for start in range({ends}, BLOCK_N):")

    def _finish(self, name: str) -> Kernel:
        one, blocks, arguments = self.one, self.blocks, self.arguments
        number = -(-one.queries // blocks.queries)
        lines = [*self._head(number), *list_texts(self.emitter.scopes[0].lines)]
        kind = "softmax(scores) @ values" if one.softmax else "scores @ values, scores with elementwise work on them"
        return Kernel.from_text(
            name=name, does=f"{kind}, for heads of {one.queries} queries and {one.keys} keys, block by block.",
            arguments=[(arguments.names[id(value)], value) for value in arguments.values], sizes=[],
            constants=[("BLOCK_M", blocks.queries), ("BLOCK_N", blocks.keys)], lines=lines,
            grid=f"({number * one.heads},{f' {blocks.slices}' if blocks.slices > 1 else ''})", stores=[one],
            warps=count_warps(blocks.queries, self.settings), stages=int(self.settings["attention_stages"]),
        )  # fmt: skip

    def _head(self, number: int) -> list[str]:
        """The lines that say which queries and columns a program has."""
        one, blocks, wide = self.one, self.blocks, self.wide
        lines = ["program = tl.program_id(0)"]
        if one.heads > 1:
            lines.append(f"lead = {f'(program // {number}){wide}' if number > 1 else f'program{wide}'}")
        block = "0" if number == 1 else f"program % {number}" if one.heads > 1 else "program"
        if number > 1 and (one.causal or self.spans is not None):
            block = f"{number - 1} - {block}"  # those with most keys first
        lines.append(f"block = {block}")
        lines.append(f"m = ({'block * BLOCK_M + ' if number > 1 else ''}tl.arange(0, BLOCK_M)){wide}[:, None]")
        lines += [f"inside = m < {one.queries}"] if one.queries % blocks.queries else []
        if not blocks.stepped:
            for place, (start, places) in enumerate(blocks.features):
                lines += write_piece(f"d{place}", start, places, one.features, "", wide)
        for place, (start, places) in enumerate(blocks.columns):
            shift = f"tl.program_id(1) * {KEPT}" if blocks.slices > 1 else ""
            lines += write_piece(f"c{place}", start, places, one.columns, shift, wide, down=False)
        if self.spans is not None:
            spans = self.arguments.take(self.spans)
            lines += [f"{word} = tl.load({spans} + block * 3{f' + {place}' if place else ''})" for place, word in enumerate(SPAN)]
        elif one.causal:
            lines.append(f"clear = tl.minimum(block * BLOCK_M, {one.keys}) // BLOCK_N * BLOCK_N")
            lines.append(f"last = tl.minimum((block + 1) * BLOCK_M, {one.keys})")
        return lines

    def _weigh(self, value: Tensor, ragged: bool) -> None:
        """The weights of the block's keys, with the maximum and the sum so far brought up to date."""
        one, emitter = self.one, self.emitter
        masked = self._is_masked(value)
        far = one.softmax and can_be_far(one.score, one.product)
        factor = find_factor(value, one.product) if one.softmax and not ragged and not far else None
        score = "scores" if factor else show(emitter.read(value, one.find(value, variable(QUERY, one.queries), variable(KEY, one.keys))))
        ragged = ragged and not (one.causal and one.queries <= one.keys)
        if not one.softmax:
            emitter.line(f"weights = {f'tl.where(valid, {score}, 0.0)' if ragged else score}")
            return
        if ragged:
            emitter.line(f"scores = tl.where(valid, {score}, {_NONE})")
            score = "scores"
        binary = repr((factor or 1.0) * math.log2(math.e))  # scores times this are powers of two
        emitter.line(f"higher = tl.maximum(most, tl.max({score}, 1, keep_dims=True){'' if far else f' * {binary}'})")
        if masked:
            emitter.line(f"base = tl.where(higher == {_NONE}, 0.0, higher)")
        base = "base" if masked else "higher"
        shift = 15.0 if choose_scheme(one.value.dtype, self.settings) == "fp16x3" else 0.0  # 2^15: parts have one scale
        if far:  # the distance first: it is exact, and finite where the largest number hides all keys
            emitter.line(f"weights = tl.exp2(({score} - {base}) * {binary}{f' + {shift}' if shift else ''})")
            emitter.line(f"alpha = tl.exp2((most - {base}) * {binary})")
        else:
            emitter.line(f"weights = tl.exp2({score} * {binary} - {f'({base} - {shift})' if shift else base})")
            emitter.line(f"alpha = tl.exp2(most - {base})")
        emitter.line("total = total * alpha + tl.sum(weights, 1, keep_dims=True)")
        emitter.line("most = higher")

    def _is_masked(self, score: Tensor) -> bool:
        """Whether a score can be minus infinity for all keys of a block."""
        return bool(list_extras(score, self.one.product))

    def _store(self) -> None:
        one, emitter = self.one, self.emitter
        if one.softmax and one.empty_is_zero and self._is_masked(one.score):
            emitter.line("total = tl.where(total == 0.0, 1.0, total)  # a query that sees no key gets zeros")
        row = variable(QUERY, max(2, one.queries))  # of one query too, the result is a block
        for number in range(len(self.blocks.columns)):
            column = variable(f"{COLUMN}{number}", one.columns)
            text = f"result{number}{' / total' if one.softmax else ''}"
            index = ravel(one.place(row, column), one.shape)
            emitter.store(one, index, text, frozenset((QUERY, f"{COLUMN}{number}")))
