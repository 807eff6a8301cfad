"""Operands of an attention's kernels: where their elements are, and fp16 parts of keys and values that a kernel makes ahead."""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.regions import AttentionRegion
from tritonsmith.author.compiler.ir.attention import COLUMN, FEATURE, KEY, LEAD, QUERY, Attention
from tritonsmith.author.compiler.ir.code import Expression, Group, Name, Statement
from tritonsmith.author.compiler.ir.indices import variable
from tritonsmith.author.compiler.ir.template import expression, statement, statements
from tritonsmith.author.compiler.ir.values import TYPE_NAMES, Tensor, TensorView
from tritonsmith.author.compiler.kernels.attention.blocks import KEPT, SAFE, Blocks, split_axis, splits_ahead
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel
from tritonsmith.author.compiler.kernels.pieces import add, assign, store, times, widen
from tritonsmith.author.recipe import Settings
from tritonsmith.author.types import IN_PARTS, PART

DOWN = "n_down"
"""Keys as rows, where `n` has them as columns."""
SPAN = ("first", "clear", "last")
"""What is known of a block of queries ahead: where a block of keys begins that one of them sees, from where on
not all of them see all keys, and the key behind the last attention."""
WORDS = {LEAD, QUERY, KEY, DOWN, *SPAN, "program", "block", "part", "scores", "most", "higher", "base", "total", "weights",
         "alpha", "valid_down", "weights_high", "weights_low", "weights_back", "feature", "seen", "all_seen",
         "split_lines", "split_alike", "start"}  # fmt: skip
"""Names that the kernel uses itself."""
INSIDE, VALID, VALID_DOWN = Name("inside"), Name("valid"), Name("valid_down")
"""Conditions under which queries, keys as columns and keys as rows exist."""
BLOCK_N = Name("BLOCK_N")
"""Keys of a block."""
_MOST_KEYS = 128
"""The most keys of a block."""


def make_emitter(region: AttentionRegion, arguments: Arguments, blocks: Blocks) -> Emitter:
    """What computes elements at the places that a program has."""
    attention = region.attention
    ragged_keys = attention.keys % blocks.keys
    bounds: dict[str, Expression | None] = {
        QUERY: INSIDE if attention.rows % blocks.queries else None,
        KEY: VALID if ragged_keys else None, DOWN: VALID_DOWN if ragged_keys else None,
    }  # fmt: skip
    for letter, pieces, size in ((FEATURE, blocks.features, attention.features), (COLUMN, blocks.columns, attention.columns)):
        for place, (start, places) in enumerate(pieces):
            ragged = size % places if size > KEPT else start + places > size
            for down in ("", "_down"):
                bounds[f"{letter}{place}{down}"] = Name(f"{letter}{place}_valid{down}") if ragged else None
    return Emitter(arguments, lambda value: id(value) in region.reads, bounds, frozenset((LEAD, QUERY)))


def write_piece(
    name: str, start: int, places: int, size: int, shift: Expression | None, wide: bool, down: bool = True
) -> list[Statement]:
    """The lines of a piece of an axis, as columns and, with `down`, as rows.

    Args:
        name: of its places as columns.
        start: its first place.
        places: how many it has, a power of two.
        size: of the axis.
        shift: what a program adds to `start`.
        wide: whether places are numbers of 64 bits.
    """
    axis = widen(add(shift, start, expression("tl.arange(0, {places})", places=places)), wide)
    lines = [*statements("{name} = {axis}[None, :]", name=name, axis=axis)]
    lines += statements("{rows} = {axis}[:, None]", rows=f"{name}_down", axis=axis) if down else ()
    if size % places if shift else start + places > size:
        for end in ("", "_down") if down else ("",):
            names = {"valid": f"{name}_valid{end}", "place": f"{name}{end}"}
            lines += statements("{valid} = {place} < {size}", size=size, **names)
    return lines


def load_operand(region: AttentionRegion, emitter: Emitter, value: Tensor, row: str, column: str) -> Expression:
    """An operand's block at these rows and columns, in fp32 or in its own type of 16 bits."""

    def is_read(tensor: Tensor) -> bool:
        return id(tensor) in region.reads

    rows, columns = value.shape[-2:]
    attention, place = region.attention, variable(column, columns)
    at = attention.find_row(value, place) if row == QUERY else attention.find(value, variable(row, rows), place)
    below: Tensor = value
    while isinstance(below, TensorView) and below.guard is None and not is_read(below):
        below = below.source
    direct = value.dtype not in IN_PARTS
    emitter.narrow = direct and is_read(below)
    block = emitter.read(value, at)
    emitter.narrow = False
    if direct and not is_read(below):
        emitter.line(statement("{block} = {block}.to({dtype})", block=block, dtype=TYPE_NAMES[value.dtype]))
    return block


def split_lines(name: str, block: Expression, axis: int) -> Statement:
    """The statement that gives a name the parts of a block, with a factor for each line along an axis."""
    high, low, back = (f"{name}_{part}" for part in ("high", "low", "back"))
    return statement("{high}, {low}, {back} = split_lines({block}, {axis})", high=high, low=low, back=back, block=block, axis=axis)


@dataclass(frozen=True)
class SplitPiece:
    """Parts of a piece of all keys or of all values."""

    parts: Buffer
    """[heads, high and low, keys, places], with zeros up to whole blocks of keys."""
    factors: Buffer
    """What undoes the powers of two: of keys [heads, keys], of values [heads, blocks of keys, places]."""
    start: int
    """Its first feature or column."""

    @property
    def places(self) -> int:
        """Its features or columns."""
        return self.parts.shape[-1]

    @property
    def apart(self) -> int:
        """Elements between the high part of a value and its low part."""
        return self.parts.shape[2] * self.places

    @property
    def of_keys(self) -> bool:
        """Whether it is one of keys, each of which has a factor; columns of values have one for each block."""
        return len(self.factors.shape) == len(("heads", "keys"))

    def address(self, arguments: Arguments, key: str, column: str) -> tuple[Expression, Expression]:
        """The pointers to the high parts of some keys and columns, and to the low ones."""
        high = add(
            Name(arguments.take(self.parts)), self._find_head(2 * self.apart), times(Name(key), self.places), self._shift(column)
        )
        return high, add(high, self.apart)

    def address_factors(self, arguments: Arguments, key: str, block: Expression, column: str) -> Expression:
        """The pointer to the factors of some keys, or to those of the columns of a block of values."""
        pointer, ahead = Name(arguments.take(self.factors)), self._find_head(self.factors.shape[1])
        if self.of_keys:
            return add(pointer, ahead, Name(key))
        return add(pointer, times(Group(add(ahead, block)), self.places), self._shift(column))

    def _find_head(self, size: int) -> Expression | None:
        """Where a head begins; None where there is one alone."""
        return times(Name(LEAD), size) if self.parts.shape[0] > 1 else None

    def _shift(self, column: str) -> Expression:
        """A feature or column as a place of the piece."""
        return Group(expression("{column} - {start}", column=column, start=self.start)) if self.start else Name(column)


@dataclass(frozen=True)
class HeadParts:
    """Parts of keys and values by piece, and the number of blocks of keys."""

    keys: list[SplitPiece]
    values: list[SplitPiece]
    blocks: int

    @property
    def pieces(self) -> list[SplitPiece]:
        """All of them."""
        return [*self.keys, *self.values]


def plan_parts(attention: Attention, blocks: Blocks, settings: Settings) -> HeadParts | None:
    """The parts that are made ahead; None where programs split keys and values themselves."""
    if not splits_ahead(attention, blocks, settings):
        return None
    count = -(-attention.keys // blocks.keys)
    keys = count * blocks.keys

    def plan(letter: str, pieces: tuple[tuple[int, int], ...]) -> list[SplitPiece]:
        return [
            SplitPiece(
                Buffer(shape=(attention.heads, 2, keys, places), dtype=PART, name=f"{letter}{place}_parts"),
                Buffer(
                    shape=(attention.heads, keys) if letter == "k" else (attention.heads, count, places),
                    dtype="float32", name=f"{letter}{place}_factors",
                ), start,
            )
            for place, (start, places) in enumerate(pieces)
        ]  # fmt: skip

    return HeadParts(plan("k", blocks.features), plan("v", blocks.columns), count)


def count_parts(attention: Attention) -> int:
    """Elements of the largest tensor of parts, whatever the settings; 0 where operands are not of fp32."""
    if not {attention.query.dtype, attention.value.dtype} & {*IN_PARTS}:
        return 0
    widest = max(places for size in (attention.features, attention.columns) for _, places in split_axis(min(size, KEPT), SAFE))
    return 2 * attention.heads * -(-attention.keys // _MOST_KEYS) * _MOST_KEYS * widest


def write_head_parts(region: AttentionRegion, name: str, blocks: Blocks, parts: HeadParts, wide: bool) -> Kernel:
    """One program for each block of keys of a head splits these keys and their values."""
    attention = region.attention
    arguments = Arguments()
    ends = ("", "_valid", "_high", "_low", "_back")
    arguments.used |= WORDS | {f"{letter}{place}{end}" for letter in "kvdc" for place in (0, 1) for end in ends}
    emitter = make_emitter(region, arguments, blocks)
    body = [statement("program = tl.program_id(0)")]
    if attention.heads > 1:
        body.append(assign(LEAD, widen(expression("(program // {blocks})", blocks=parts.blocks), wide)))
        body.append(statement("block = program % {blocks}", blocks=parts.blocks))
    else:
        body.append(statement("block = program"))
    keys = widen(expression("(block * BLOCK_N + tl.arange(0, BLOCK_N))"), wide)
    body.append(statement("n_down = {keys}[:, None]", keys=keys))
    body += statements("valid_down = n_down < {keys}", keys=attention.keys) if attention.keys % blocks.keys else ()
    for letter, axis, tensor, pieces, size in (
        ("k", FEATURE, attention.key, parts.keys, attention.features), ("v", COLUMN, attention.value, parts.values, attention.columns),
    ):  # fmt: skip
        for place, piece in enumerate(pieces):
            body += write_piece(f"{axis}{place}", piece.start, piece.places, size, None, wide, down=False)
            block = load_operand(region, emitter, tensor, DOWN, f"{axis}{place}")
            emitter.line(*_split_piece(arguments, f"{letter}{place}", f"{axis}{place}", block, piece))
    return Kernel(
        name=name, does="fp16 parts of keys and values: each key times a power of two, and each column of a block of values.",
        arguments=arguments.list(), sizes=[], constants=[("BLOCK_N", blocks.keys)],
        body=[*body, *emitter.scopes[0].lines], grid=expression("({programs},)", programs=parts.blocks * attention.heads),
        stores=[buffer for piece in parts.pieces for buffer in (piece.parts, piece.factors)], warps=4,
    )  # fmt: skip


def _split_piece(arguments: Arguments, name: str, column: str, block: Expression, piece: SplitPiece) -> list[Statement]:
    """Split a block of keys, whose lines are rows, or of values, whose lines are columns."""
    high, low = piece.address(arguments, DOWN, column)
    return [
        split_lines(name, block, 1 if piece.of_keys else 0),
        store(high, Name(f"{name}_high"), None),
        store(low, Name(f"{name}_low"), None),
        store(piece.address_factors(arguments, DOWN, Name("block"), column), Name(f"{name}_back"), None),
    ]
