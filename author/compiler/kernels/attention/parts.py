"""Parts of keys and values that a kernel makes ahead of an attention, so that no program splits them once more."""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.author.compiler.fusing.regions import AttentionRegion
from tritonsmith.author.compiler.ir.attention import COLUMN, FEATURE, LEAD, Attention
from tritonsmith.author.compiler.ir.indices import variable
from tritonsmith.author.compiler.ir.values import Tensor
from tritonsmith.author.compiler.kernels.attention.blocks import KEPT, SAFE, Blocks, split_axis, splits_ahead
from tritonsmith.author.compiler.kernels.attention.places import DOWN, WORDS, load_operand, make_emitter, write_piece
from tritonsmith.author.compiler.kernels.emitter import Arguments, Emitter
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel
from tritonsmith.author.compiler.kernels.texts import list_texts
from tritonsmith.author.recipe import Settings
from tritonsmith.author.types import IN_PARTS, PART

_MOST_KEYS = 128
"""Keys of a block."""


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

    def place(self, lead: str, row: str, column: str) -> str:
        """Where a high part lies; the low one is `apart` behind it."""
        return f"{f'{lead} * {2 * self.apart} + ' if lead else ''}{row} * {self.places} + {self._shift(column)}"

    @property
    def apart(self) -> int:
        """Elements between the high part of a value and its low part."""
        return self.parts.shape[2] * self.places

    @property
    def of_keys(self) -> bool:
        """Whether it is one of keys, each of which has a factor; columns of values have one for each block."""
        return len(self.factors.shape) == len(("heads", "keys"))

    def place_factors(self, lead: str, key: str, block: str, column: str) -> str:
        """Where the factors of some keys lie, or those of the columns of a block of values."""
        ahead = f"{lead} * {self.factors.shape[1]} + " if lead else ""
        if self.of_keys:
            return f"{ahead}{key}"
        return f"({ahead}{block}) * {self.places} + {self._shift(column)}"

    def _shift(self, column: str) -> str:
        """A feature or column as a place of the piece."""
        return f"({column} - {self.start})" if self.start else column


@dataclass(frozen=True)
class HeadParts:
    """Parts of keys and values by piece, and the number of blocks of keys."""

    keys: list[SplitPiece]
    values: list[SplitPiece]
    blocks: int


def plan_parts(one: Attention, blocks: Blocks, settings: Settings) -> HeadParts | None:
    """The parts that are made ahead; None where programs split keys and values themselves."""
    if not splits_ahead(one, blocks, settings):
        return None
    number = -(-one.keys // blocks.keys)
    keys = number * blocks.keys
    found: dict[str, list[SplitPiece]] = {"k": [], "v": []}
    for letter, pieces in (("k", blocks.features), ("v", blocks.columns)):
        for place, (start, places) in enumerate(pieces):
            factors = (one.heads, keys) if letter == "k" else (one.heads, number, places)
            found[letter].append(SplitPiece(
                Buffer(shape=(one.heads, 2, keys, places), dtype=PART, name=f"{letter}{place}_parts"),
                Buffer(shape=factors, dtype="float32", name=f"{letter}{place}_factors"), start,
            ))  # fmt: skip
    return HeadParts(found["k"], found["v"], number)


def count_parts(one: Attention) -> int:
    """Elements of the largest tensor of parts, whatever the settings; 0 where operands are not of fp32."""
    if not {one.query.dtype, one.value.dtype} & {*IN_PARTS}:
        return 0
    widest = max(places for size in (one.features, one.columns) for _, places in split_axis(min(size, KEPT), SAFE))
    return 2 * one.heads * -(-one.keys // _MOST_KEYS) * _MOST_KEYS * widest


def write_head_parts(region: AttentionRegion, name: str, blocks: Blocks, parts: HeadParts, wide: str) -> Kernel:
    """One program for each block of keys of a head splits these keys and their values."""
    one = region.attention
    arguments = Arguments()
    ends = ("", "_valid", "_high", "_low", "_back")
    arguments.used |= WORDS | {f"{letter}{number}{end}" for letter in "kvdc" for number in (0, 1) for end in ends}
    emitter = make_emitter(region, arguments, blocks)
    lead = LEAD if one.heads > 1 else ""
    lines = ["program = tl.program_id(0)", *([f"lead = (program // {parts.blocks}){wide}"] if lead else [])]
    lines.append(f"block = program{f' % {parts.blocks}' if lead else ''}")
    lines.append(f"n_down = (block * BLOCK_N + tl.arange(0, BLOCK_N)){wide}[:, None]")
    lines += [f"valid_down = n_down < {one.keys}"] if one.keys % blocks.keys else []
    for letter, axis, tensor, pieces, size in (
        ("k", FEATURE, one.key, parts.keys, one.features), ("v", COLUMN, one.value, parts.values, one.columns),
    ):  # fmt: skip
        for number, piece in enumerate(pieces):
            lines += write_piece(f"{axis}{number}", piece.start, piece.places, size, "", wide, down=False)
            _split_piece(emitter, region, tensor, f"{letter}{number}", f"{axis}{number}", piece, lead)
    return Kernel.from_text(
        name=name, does="fp16 parts of keys and values: each key times a power of two, and each column of a block of values.",
        arguments=[(arguments.names[id(value)], value) for value in arguments.values], sizes=[], constants=[("BLOCK_N", blocks.keys)],
        lines=[*lines, *list_texts(emitter.scopes[0].lines)], grid=f"({parts.blocks * one.heads},)",
        stores=[buffer for piece in (*parts.keys, *parts.values) for buffer in (piece.parts, piece.factors)], warps=4,
    )  # fmt: skip


def _split_piece(emitter: Emitter, region: AttentionRegion, tensor: Tensor, name: str, column: str, piece: SplitPiece, lead: str) -> None:
    """Split a piece of keys, whose lines are rows, or of values, whose lines are columns."""
    one, arguments = region.attention, emitter.arguments
    size = one.features if piece.of_keys else one.columns
    text = load_operand(region, emitter, tensor, variable(DOWN, one.keys), variable(column, size))
    emitter.line(f"{name}_high, {name}_low, {name}_back = split_lines({text}, {1 if piece.of_keys else 0})")
    at = f"{arguments.take(piece.parts)} + {piece.place(lead, DOWN, column)}"
    emitter.line(f"tl.store({at}, {name}_high)")
    emitter.line(f"tl.store({at} + {piece.apart}, {name}_low)")
    emitter.line(f"tl.store({arguments.take(piece.factors)} + {piece.place_factors(lead, DOWN, 'block', column)}, {name}_back)")
