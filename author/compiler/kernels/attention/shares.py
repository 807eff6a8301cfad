"""Keys of few queries that programs share: the range of each, what it stores, and how the parts are joined.

A program stores its weighted sums, the maximum of its scores and the sum of its exponentials, all in fp32.
The second kernel scales them to the common maximum and adds them in one order: every run has the same result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.regions import AttentionRegion
from tritonsmith.author.compiler.ir.attention import COLUMN, LEAD, QUERY, Attention, can_be_far, list_extras
from tritonsmith.author.compiler.ir.code import Expression, Name, Statement, number
from tritonsmith.author.compiler.ir.indices import ZERO, Index, ravel, variable
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import BYTES, Tensor
from tritonsmith.author.compiler.kernels.attention.blocks import Blocks
from tritonsmith.author.compiler.kernels.attention.operands import WORDS, make_emitter, write_piece
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel
from tritonsmith.author.compiler.kernels.pieces import assign, load, widen
from tritonsmith.author.compiler.kernels.tiling import round_up
from tritonsmith.author.cost import count_l2_rate, time_launches

_PART = "part"
"""The variable of a program among those that share the keys of a tile."""
_LEAST_STEPS = 2
"""Blocks of keys of a program, at least: the second is read while the first is multiplied."""
_TOP, _TOTAL = ZERO, ZERO + 1
"""Where `scales` has the highest score, and the sum."""
_NONE, _ZERO = expression('float("-inf")'), number(0.0)


@dataclass(frozen=True)
class KeyShare:
    """The keys of each program, and what it stores."""

    parts: int
    keys: int
    """Of a program; the last may have fewer."""
    sums: Buffer
    """Weighted values: [tiles, parts, rows, columns]."""
    scales: Buffer
    """The highest score and the sum of the exponentials: [tiles, parts, 2, rows]."""

    @property
    def buffers(self) -> list[Tensor]:
        """What a program stores."""
        return [self.sums, self.scales]

    def write_range(self, keys: int) -> list[Statement]:
        """The lines that say which of all keys a program has."""
        last = expression("first + {own}", own=self.keys)
        if self.parts * self.keys > keys:
            last = expression("tl.minimum({last}, {keys})", last=last, keys=keys)
        return [
            *statements("part = tl.program_id(1)\nfirst = part * {own}", own=self.keys),
            assign("last", last),
        ]

    def store(self, emitter: Emitter, attention: Attention, pieces: int) -> None:
        """Store the parts of a program whose columns are in so many pieces."""
        row, ahead = attention.row, (variable(LEAD, attention.tiles), variable(_PART, self.parts))
        for place in range(pieces):
            column = variable(f"{COLUMN}{place}", attention.columns)
            at, names = ravel((*ahead, row, column), self.sums.shape), frozenset((QUERY, f"{COLUMN}{place}"))
            emitter.store(self.sums, at, Name(f"result{place}"), names)
        for which, name in ((_TOP, "most"), (_TOTAL, "total")):
            emitter.store(
                self.scales, ravel((*ahead, which, row), self.scales.shape), Name(name), frozenset((QUERY,))
            )


def plan_share(region: AttentionRegion, blocks: Blocks) -> KeyShare | None:
    """The keys of each of several programs; None where each tile has one program.

    That is so where half of the processors have a program, and where sharing saves less than a launch takes.
    """
    heads, card = region.attention, region.card
    programs, steps = heads.tiles * -(-heads.rows // blocks.queries), -(-heads.keys // blocks.keys)
    if not heads.few or 2 * programs >= card.processors or steps < 2 * _LEAST_STEPS:
        return None
    own = -(-steps // min(card.processors // programs, steps // _LEAST_STEPS))
    parts = -(-steps // own)
    read = heads.keys * (heads.features * BYTES[heads.key.dtype] + heads.columns * BYTES[heads.value.dtype])
    if read * (1 - 1 / parts) / count_l2_rate(card) <= time_launches():
        return None
    sums = Buffer(shape=(heads.tiles, parts, heads.rows, heads.columns), dtype="float32", name="sums")
    scales = Buffer(shape=(heads.tiles, parts, 2, heads.rows), dtype="float32", name="scales")
    return KeyShare(parts, own * blocks.keys, sums, scales)


def is_masked(score: Tensor, attention: Attention) -> bool:
    """Whether a score can be minus infinity for all keys of a block."""
    return bool(list_extras(score, attention.product))


def write_join(region: AttentionRegion, name: str, blocks: Blocks, share: KeyShare, wide: bool) -> Kernel:
    """The kernel that joins the parts: a program for each query of a head."""
    attention, arguments, places = region.attention, Arguments(), round_up(share.parts)
    pieces = range(len(blocks.columns))
    arguments.used |= (
        WORDS | {"top", "factor"} | {f"{word}{place}" for word in ("c", "result") for place in pieces}
    )
    emitter = make_emitter(region, arguments, blocks)
    emitter.bounds |= {QUERY: None, _PART: Name("valid") if places > share.parts else None}
    row = variable(QUERY, attention.rows)
    ahead = (variable(LEAD, attention.tiles), variable(_PART, share.parts))
    emitter.line(
        *_find_row(attention, wide), *statements("part = tl.arange(0, {places})[:, None]", places=places)
    )
    if places > share.parts:
        emitter.line(*statements("valid = part < {parts}", parts=share.parts))
    for place, (start, size) in enumerate(blocks.columns):
        emitter.line(*write_piece(f"c{place}", start, size, attention.columns, None, wide, down=False))
    emitter.line(
        assign("most", _read(emitter, share.scales, ravel((*ahead, _TOP, row), share.scales.shape), _NONE))
    )
    emitter.line(*_scale(attention))
    total = _read(emitter, share.scales, ravel((*ahead, _TOTAL, row), share.scales.shape), _ZERO)
    emitter.line(statement("total = tl.sum({total} * factor, 0, keep_dims=True)", total=total))
    if attention.empty_is_zero and is_masked(attention.score, attention):
        emitter.line(
            statement("total = tl.where(total == 0.0, 1.0, total)  # a query that sees no key gets zeros")
        )
    for place in pieces:
        column = variable(f"{COLUMN}{place}", attention.columns)
        sums = _read(emitter, share.sums, ravel((*ahead, row, column), share.sums.shape), _ZERO)
        emitter.line(
            statement("{r} = tl.sum({sums} * factor, 0, keep_dims=True)", r=f"result{place}", sums=sums)
        )
        result = expression("{r} / total", r=f"result{place}")
        emitter.store(
            attention,
            ravel(attention.place(row, column), attention.shape),
            result,
            frozenset((f"{COLUMN}{place}",)),
        )
    return Kernel(
        name=name, does=f"Join the parts of {share.parts} programs that have shared the keys.",
        arguments=arguments.list(), sizes=[], constants=[], body=emitter.scopes[0].lines,
        grid=expression("({programs},)", programs=attention.tiles * attention.rows),
        stores=[attention], warps=4,
    )  # fmt: skip


def _find_row(attention: Attention, wide: bool) -> list[Statement]:
    """The lines that say which row of which tile a program has."""
    rows = attention.rows
    body = [statement("program = tl.program_id(0)")]
    if attention.tiles > 1:
        lead = expression("(program // {rows})", rows=rows) if rows > 1 else Name("program")
        body.append(assign(LEAD, widen(lead, wide)))
    if rows > 1:
        body.append(
            assign(
                QUERY, expression("program % {rows}", rows=rows) if attention.tiles > 1 else Name("program")
            )
        )
    return body


def _scale(attention: Attention) -> list[Statement]:
    """The lines that give each part the factor which brings it to the common maximum."""
    lines = [statement("top = tl.max(most, 0, keep_dims=True)")]
    if is_masked(attention.score, attention):
        lines.append(statement("top = tl.where(top == {none}, 0.0, top)", none=_NONE))
    power = expression("most - top")
    if can_be_far(attention.score, attention.product):  # these scores are no powers of two yet
        power = expression("(most - top) * {binary}", binary=math.log2(math.e))
    return [*lines, statement("factor = tl.exp2({power})", power=power)]


def _read(emitter: Emitter, buffer: Buffer, index: Index, neutral: Expression) -> Expression:
    """A load of the parts of a row."""
    return load(emitter.address(buffer, index), emitter.mask(index.names), neutral)
