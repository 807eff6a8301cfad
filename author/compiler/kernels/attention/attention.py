"""The kernel of an attention: a program has a block of queries of one head, and goes through the keys.

It keeps the maximum of the scores so far and the sum of their exponentials, and scales what it has when the maximum grows
(Milakov and Gimelshein, 2018; Dao et al., 2022).
"""

from __future__ import annotations

import math

from tritonsmith.author.compiler.fusing.attention import find_hidden
from tritonsmith.author.compiler.fusing.regions import AttentionRegion
from tritonsmith.author.compiler.ir.attention import COLUMN, KEY, LEAD, QUERY, can_be_far, find_factor
from tritonsmith.author.compiler.ir.code import Expression, Name, Statement, number
from tritonsmith.author.compiler.ir.indices import ravel, variable
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import Tensor
from tritonsmith.author.compiler.kernels.attention.blocks import KEPT, Blocks, choose_blocks, choose_scheme, count_warps
from tritonsmith.author.compiler.kernels.attention.operands import (
    BLOCK_N,
    DOWN,
    SPAN,
    VALID,
    VALID_DOWN,
    WORDS,
    HeadParts,
    make_emitter,
    plan_parts,
    write_head_parts,
    write_piece,
)
from tritonsmith.author.compiler.kernels.attention.products import HeadProducts
from tritonsmith.author.compiler.kernels.attention.shares import KeyShare, is_masked, plan_share, write_join
from tritonsmith.author.compiler.kernels.emitter import Arguments
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel
from tritonsmith.author.compiler.kernels.pieces import add, assign, choose, loop, store, widen
from tritonsmith.author.recipe import Settings

_BIG = 2**31
_NONE, _ZERO = expression('float("-inf")'), number(0.0)
_MANY_BLOCKS = 4
"""Whole blocks of keys from which those that are not whole have a loop of their own."""
_SHARED_HEADS = 8
"""Heads from which it pays to look first which keys a mask shows."""
_BEGIN, _CLEAR, _LAST = number(0), Name("clear"), Name("last")
"""Where keys begin; those from where on not all queries of a block see all; the end of those that one sees."""
_FIND_SPAN = """
    seen = ({hidden} == 0) & (m < {queries}) & valid
    last = tl.maximum(last, tl.max(tl.max(tl.where(seen, n + 1, 0), 1), 0))
    first = tl.where(last > 0, tl.minimum(first, start), first)
    all_seen = tl.min(tl.min((seen | (m >= {queries})).to(tl.int32), 1), 0)
    clear = tl.where((all_seen == 0) & (first <= start), tl.minimum(clear, start), clear)
"""
_UPDATE = """
    weights = tl.exp2({power})
    alpha = tl.exp2({alpha})
    total = total * alpha + tl.sum(weights, 1, keep_dims=True)
    most = higher
"""


def write_attention(region: AttentionRegion, name: str, settings: Settings) -> list[Kernel]:
    """The kernel, and those beside it.

    Ahead: one that splits keys and values, and one where a mask that all heads share hides whole blocks of keys.
    Behind: one that joins the parts of keys that several programs have shared.
    """
    one = region.attention
    blocks = choose_blocks(one, settings)
    spans = None
    if one.hidden is not None and not one.few and one.heads >= _SHARED_HEADS and one.keys > blocks.keys:
        spans = Buffer(shape=(-(-one.queries // blocks.queries), len(SPAN)), dtype="int32", name="spans")
    parts = plan_parts(one, blocks, settings)
    share = plan_share(region, blocks)
    writer = AttentionWriter(region, settings, blocks, spans, parts, share)
    kernels = [] if spans is None else [write_spans(region, f"find_spans_of_{name}", blocks, spans)]
    kernels += [] if parts is None else [write_head_parts(region, f"split_heads_of_{name}", blocks, parts, writer.wide)]
    kernels.append(writer.write(name))
    return kernels if share is None else [*kernels, write_join(region, f"join_parts_of_{name}", blocks, share, writer.wide)]


def write_spans(region: AttentionRegion, name: str, blocks: Blocks, spans: Buffer) -> Kernel:
    """The kernel ahead that finds which keys a mask shows that all heads share: a program for each block of queries."""
    one = region.attention
    arguments = Arguments()
    arguments.used |= WORDS
    emitter = make_emitter(region, arguments, blocks)
    assert one.hidden is not None
    body = [*statements("block = tl.program_id(0)\nm = (block * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]")]
    body += _bound_queries(one.queries, blocks)
    for word, first in zip(SPAN, (one.keys, one.keys, 0), strict=True):
        body.append(statement("{word} = tl.full((), {first}, tl.int32)", word=word, first=first))
    emitter.open(frozenset((KEY,)))
    emitter.line(*statements("n = (start + tl.arange(0, BLOCK_N))[None, :]\nvalid = n < {keys}", keys=one.keys))
    hidden = emitter.read(one.hidden, find_hidden(one))
    emitter.line(*statements(_FIND_SPAN, hidden=hidden, queries=one.queries))
    emitter.close(loop("start", 0, one.keys, BLOCK_N))
    pointer = arguments.take(spans)
    emitter.line(statement("clear = tl.minimum(clear, {whole})", whole=one.keys // blocks.keys * blocks.keys))
    emitter.line(*(store(_locate_span(pointer, place), Name(word), None) for place, word in enumerate(SPAN)))
    return Kernel(
        name=name, does="For each block of queries: the first block of keys that is seen, the first that not all see, the end of the last.",
        arguments=arguments.list(), sizes=[], constants=[("BLOCK_M", blocks.queries), ("BLOCK_N", blocks.keys)],
        body=[*body, *emitter.scopes[0].lines], grid=expression("({programs},)", programs=spans.shape[0]), stores=[spans], warps=4,
    )  # fmt: skip


def _bound_queries(queries: int, blocks: Blocks) -> tuple[Statement, ...]:
    """The condition under which a block's queries exist, where it does not always hold."""
    return statements("inside = m < {queries}", queries=queries) if queries % blocks.queries else ()


def _locate_span(pointer: str, place: int) -> Expression:
    """The pointer to a number of `SPAN`."""
    return add(expression("{pointer} + block * 3", pointer=pointer), place)


class AttentionWriter:
    """Writes the kernel.

    Args:
        region: what it computes.
        settings: ways to multiply, warps and stages.
        blocks: sizes.
        spans: for each block of queries the numbers of `SPAN`; None where nobody knows.
        parts: of keys and values, where a kernel makes them ahead.
        share: the keys of each program, where several have those of one head.
    """

    def __init__(
        self, region: AttentionRegion, settings: Settings, blocks: Blocks, spans: Buffer | None, parts: HeadParts | None,
        share: KeyShare | None,
    ) -> None:  # fmt: skip
        self.region, self.one, self.settings, self.blocks, self.spans = region, region.attention, settings, blocks, spans
        self.share = share
        self.arguments = Arguments()
        self.arguments.used |= WORDS | {f"{letter}{number}{end}" for letter in "qkvdce" for number in (0, 1) for end in
                                         ("", "_down", "_valid", "_valid_down", "_high", "_low", "_back", "_rest")}  # fmt: skip
        self.emitter = make_emitter(region, self.arguments, blocks)
        tensors = (*region.reads.values(), self.one, *(piece.parts for piece in (parts.pieces if parts else ())))
        self.wide = max(value.size for value in tensors) >= _BIG
        """Whether tensors have too many elements for places of 32 bits."""
        self.products = HeadProducts(region, settings, blocks, self.emitter, self.wide, parts)

    def write(self, name: str) -> Kernel:
        """The kernel."""
        one, emitter, blocks = self.one, self.emitter, self.blocks
        for place, (_, places) in enumerate(blocks.columns):
            zeros = expression("tl.zeros((BLOCK_M, {places}), tl.float32)", places=places)
            emitter.line(assign(f"result{place}", zeros))
        if one.softmax:
            emitter.line(statement("most = tl.full((BLOCK_M, 1), {none}, tl.float32)", none=_NONE))
            emitter.line(statement("total = tl.zeros((BLOCK_M, 1), tl.float32)"))
        if not blocks.stepped:
            for place in range(len(blocks.features)):
                self.products.load_queries(place)
        for begin, end, clear in self._list_loops():
            self._go_through_keys(begin, end, clear)
        self._store()
        return self._finish(name)

    def _list_loops(self) -> list[tuple[Expression, Expression, bool]]:
        """The ranges of keys that a program goes through, and whether all keys of a range exist and are seen by all its queries."""
        keys, block = self.one.keys, self.blocks.keys
        if self.share is not None:
            return [(Name("first"), _LAST, False)]
        if self.spans is not None:
            self.arguments.take(self.spans)
            return [(Name("first"), _CLEAR, True), (_CLEAR, _LAST, False)]
        if self.one.causal:
            return [(_BEGIN, _CLEAR, True), (_CLEAR, _LAST, False)] if keys > block else [(_BEGIN, _LAST, False)]
        whole = keys // block * block
        if whole < keys and whole >= _MANY_BLOCKS * block and self.one.clear is None:
            return [(_BEGIN, number(whole), True), (number(whole), number(keys), False)]
        return [(_BEGIN, number(keys), False)]

    def _go_through_keys(self, begin: Expression, end: Expression, clear: bool) -> None:
        """A loop over blocks of keys."""
        emitter, one = self.emitter, self.one
        ragged = one.keys % self.blocks.keys != 0 and not clear
        emitter.bounds |= {KEY: VALID if ragged else None, DOWN: VALID_DOWN if ragged else None}
        emitter.open(frozenset((KEY, DOWN)))
        keys = widen(expression("(start + tl.arange(0, BLOCK_N))"), self.wide)
        emitter.line(*statements("n = {keys}[None, :]\nn_down = {keys}[:, None]", keys=keys))
        if ragged:
            emitter.line(*statements("valid = n < {keys}\nvalid_down = n_down < {keys}", keys=one.keys))
        self.products.multiply_features()
        self._weigh(one.clear if clear and one.clear is not None else one.score, ragged)
        self.products.multiply_values()
        emitter.close(loop("start", begin, end, BLOCK_N))

    def _finish(self, name: str) -> Kernel:
        one, blocks = self.one, self.blocks
        groups = -(-one.rows // blocks.queries)
        kind = "softmax(scores) @ values" if one.softmax else "scores @ values, scores with elementwise work on them"
        slices = [blocks.slices] if blocks.slices > 1 else [] if self.share is None else [self.share.parts]
        body = [*self._head(groups), *self.emitter.scopes[0].lines]
        return Kernel(
            name=name, does=self._describe(kind),
            arguments=self.arguments.list(), sizes=[], constants=[("BLOCK_M", blocks.queries), ("BLOCK_N", blocks.keys)], body=body,
            grid=expression("({programs}, {*slices})", programs=groups * one.tiles, slices=slices),
            stores=[one] if self.share is None else self.share.buffers,
            warps=count_warps(blocks.queries, self.settings, one.few), stages=int(self.settings["attention_stages"]),
        )  # fmt: skip

    def _describe(self, kind: str) -> str:
        one = self.one
        if one.group == 1 and self.share is None:
            return f"{kind}, for heads of {one.queries} queries and {one.keys} keys, block by block."
        rows = f"{one.group} heads of {one.queries} queries" if one.group > 1 else f"{one.queries} queries"
        return f"{kind}, {rows} on the same {one.keys} keys{'' if self.share is None else f', of which a program has {self.share.keys}'}."

    def _head(self, groups: int) -> list[Statement]:
        """The lines that say which queries and columns a program has.

        groups: blocks of queries of a head.
        """
        one, blocks, wide = self.one, self.blocks, self.wide
        body = [*statements("program = tl.program_id(0)")]
        if one.tiles > 1:
            lead = expression("(program // {groups})", groups=groups) if groups > 1 else Name("program")
            body.append(assign(LEAD, widen(lead, wide)))
        body.append(assign("block", self._find_block(groups)))
        queries = expression("(block * BLOCK_M + tl.arange(0, BLOCK_M))" if groups > 1 else "(tl.arange(0, BLOCK_M))")
        body += statements("m = {queries}[:, None]", queries=widen(queries, wide))
        body += _bound_queries(one.rows, blocks)
        if not blocks.stepped:
            for place, (start, places) in enumerate(blocks.features):
                body += write_piece(f"d{place}", start, places, one.features, None, wide)
        for place, (start, places) in enumerate(blocks.columns):
            shift = expression("tl.program_id(1) * {kept}", kept=KEPT) if blocks.slices > 1 else None
            body += write_piece(f"c{place}", start, places, one.columns, shift, wide, down=False)
        if self.spans is not None:
            spans = self.arguments.take(self.spans)
            for place, word in enumerate(SPAN):
                body.append(statement("{word} = tl.load({at})", word=word, at=_locate_span(spans, place)))
        elif self.share is not None:
            body += self.share.write_range(one.keys)
        elif one.causal:
            body += statements(
                """
                clear = tl.minimum(block * BLOCK_M, {keys}) // BLOCK_N * BLOCK_N
                last = tl.minimum((block + 1) * BLOCK_M, {keys})
                """,
                keys=one.keys,
            )  # fmt: skip
        return body

    def _find_block(self, groups: int) -> Expression:
        """Which block of queries a program has: those with most keys first."""
        if groups == 1:
            return number(0)
        block = expression("program % {groups}", groups=groups) if self.one.tiles > 1 else Name("program")
        last_first = self.one.causal or self.spans is not None
        return expression("{last} - {block}", last=groups - 1, block=block) if last_first else block

    def _weigh(self, value: Tensor, ragged: bool) -> None:
        """The weights of the block's keys, with the maximum and the sum so far brought up to date."""
        one, emitter = self.one, self.emitter
        masked = is_masked(value, one)
        far = one.softmax and can_be_far(one.score, one.product)
        factor = find_factor(value, one.product) if one.softmax and not ragged and not far else None
        score: Expression = Name("scores")
        if not factor:
            score = emitter.read(value, one.find_row(value, variable(KEY, one.keys)))
        valid = VALID if ragged and not (one.causal and one.queries <= one.keys) else None
        if not one.softmax:
            emitter.line(assign("weights", choose(valid, score, _ZERO)))
            return
        if valid:
            emitter.line(assign("scores", choose(valid, score, _NONE)))
            score = Name("scores")
        binary = number((factor or 1.0) * math.log2(math.e))  # scores times this are powers of two
        highest = expression("tl.max({score}, 1, keep_dims=True)", score=score)
        highest = highest if far else expression("{highest} * {binary}", highest=highest, binary=binary)
        emitter.line(statement("higher = tl.maximum(most, {highest})", highest=highest))
        if masked:
            emitter.line(statement("base = tl.where(higher == {none}, 0.0, higher)", none=_NONE))
        base = Name("base" if masked else "higher")
        shift = number(15.0) if choose_scheme(one.value.dtype, self.settings) == "fp16x3" else None  # 2^15: parts have one scale
        if far:  # the distance first: it is exact, and finite where the largest number hides all keys
            power = add(expression("({score} - {base}) * {binary}", score=score, base=base, binary=binary), shift)
            alpha = expression("(most - {base}) * {binary}", base=base, binary=binary)
        else:
            lowered = base if shift is None else expression("{base} - {shift}", base=base, shift=shift)
            power = expression("{score} * {binary} - {base}", score=score, base=lowered, binary=binary)
            alpha = expression("most - {base}", base=base)
        emitter.line(*statements(_UPDATE, power=power, alpha=alpha))

    def _store(self) -> None:
        one, emitter = self.one, self.emitter
        if self.share is not None:
            self.share.store(emitter, one, len(self.blocks.columns))
            return
        if one.softmax and one.empty_is_zero and is_masked(one.score, one):
            emitter.line(statement("total = tl.where(total == 0.0, 1.0, total)  # a query that sees no key gets zeros"))
        row = variable(QUERY, max(2, one.rows))  # of one query too, the result is a block
        for place in range(len(self.blocks.columns)):
            column = variable(f"{COLUMN}{place}", one.columns)
            result = expression("{result} / total" if one.softmax else "{result}", result=f"result{place}")
            emitter.store(one, ravel(one.place(row, column), one.shape), result, frozenset((QUERY, f"{COLUMN}{place}")))
