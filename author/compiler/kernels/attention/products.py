"""The two products in the kernel of an attention."""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.regions import AttentionRegion
from tritonsmith.author.compiler.ir.attention import COLUMN, FEATURE, KEY, LEAD, QUERY
from tritonsmith.author.compiler.ir.indices import Index, variable
from tritonsmith.author.compiler.ir.values import TRITON_TYPES, Tensor
from tritonsmith.author.compiler.kernels.attention.blocks import DIRECT, Blocks, choose_scheme
from tritonsmith.author.compiler.kernels.attention.parts import HeadParts, SplitPiece
from tritonsmith.author.compiler.kernels.attention.places import DOWN, load_operand, write_piece
from tritonsmith.author.compiler.kernels.emitter import Emitter
from tritonsmith.author.recipe import Settings


class HeadProducts:
    """Writes query @ key^T and weights @ value of a block of keys.

    Args:
        region: whose kernel it is.
        settings: ways to multiply.
        blocks: sizes.
        emitter: gets the lines.
        wide: what makes an index one of 64 bits; empty where 32 do.
        parts: of keys and values, where a kernel has made them.
    """

    def __init__(
        self, region: AttentionRegion, settings: Settings, blocks: Blocks, emitter: Emitter, wide: str, parts: HeadParts | None
    ) -> None:
        self.wide, self.parts = wide, parts
        self.region, self.one, self.settings, self.blocks, self.emitter = region, region.attention, settings, blocks, emitter
        self.lead = LEAD if self.one.heads > 1 else ""

    def _load(self, value: Tensor, row: Index, column: Index) -> str:
        return load_operand(self.region, self.emitter, value, row, column)

    def load_queries(self, number: int) -> None:
        """A piece of the queries, split where the product is done in parts."""
        text = self._load(self.one.query, variable(QUERY, self.one.queries), variable(f"{FEATURE}{number}", self.one.features))
        if choose_scheme(self.one.query.dtype, self.settings) == "fp16x3":
            self.emitter.line(f"q{number}_high, q{number}_low, q{number}_back = split_lines({text}, 1)")
        else:
            self.emitter.line(f"q{number} = {text}")

    def multiply_features(self) -> None:
        """scores = query @ key^T of the block."""
        emitter, blocks = self.emitter, self.blocks
        if not blocks.stepped:
            for number in range(len(blocks.features)):
                self._add_product(number)
        else:
            emitter.line("scores = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")
            emitter.open(frozenset(("d0", "d0_down")))
            start, places = blocks.features[0]
            for line in write_piece("d0", start, places, self.one.features, "feature", self.wide):
                emitter.line(line)
            self.load_queries(0)
            self._add_product(0, begun=True)
            emitter.close(f"for feature in range(0, {self.one.features}, {places}):")
        emitter.given[id(self.one.product)] = "scores"
        emitter.names["scores"] = frozenset((LEAD, QUERY, KEY))

    def _add_product(self, number: int, begun: bool = False) -> None:
        """Add the product over a piece of the features."""
        scheme = choose_scheme(self.one.query.dtype, self.settings)
        sign = "+=" if number or begun else "="
        q, k, d = f"q{number}", f"k{number}", f"{FEATURE}{number}_down"
        text = "" if self.parts else self._load(self.one.key, variable(KEY, self.one.keys), variable(d, self.one.features))
        if scheme == "fp16x3":
            if self.parts is not None:
                self._load_parts(k, self.parts.keys[number], KEY, d)
            else:
                self.emitter.line(f"{k}_high, {k}_low, {k}_back = split_lines({text}, 0)")
            self.emitter.line(f"scores {sign} {_multiply_parts(q, k)} * {q}_back * {k}_back")
        elif scheme == DIRECT:
            self.emitter.line(f"scores = tl.dot({q}, {text}{', scores' if sign == '+=' else ''})")
        else:
            self.emitter.line(f'scores {sign} tl.dot({q}, {text}, input_precision="{scheme}")')

    def multiply_values(self) -> None:
        """Add weights @ values of the block."""
        one, emitter = self.one, self.emitter
        scheme = choose_scheme(one.value.dtype, self.settings)
        undo = ""
        if scheme == "fp16x3" and one.softmax:  # at most 2^15, and that for some key
            emitter.line("weights_high, weights_low = split_alike(weights)")
        elif scheme == "fp16x3":
            emitter.line("weights_high, weights_low, weights_back = split_lines(weights, 1)")
            undo = " * weights_back"
        elif scheme == DIRECT:
            emitter.line(f"weights = weights.to({TRITON_TYPES[one.value.dtype]})")
        for number in range(len(self.blocks.columns)):
            v, c, result = f"v{number}", f"{COLUMN}{number}", f"result{number}"
            before = f"{result} * alpha" if one.softmax else result
            text = "" if self.parts else self._load(one.value, variable(DOWN, one.keys), variable(c, one.columns))
            if scheme == "fp16x3":
                if self.parts is not None:
                    self._load_parts(v, self.parts.values[number], DOWN, c)
                else:
                    emitter.line(f"{v}_high, {v}_low, {v}_back = split_lines({text}, 0)")
                emitter.line(f"{result} = {before} + {_multiply_parts('weights', v)} * {v}_back{undo}")
            elif scheme == DIRECT:
                emitter.line(f"{result} = tl.dot(weights, {text}, {before})")
            else:
                emitter.line(f'{result} = {before} + tl.dot(weights, {text}, input_precision="{scheme}")')

    def _load_parts(self, name: str, piece: SplitPiece, row: str, column: str) -> None:
        """Read both parts of a block of keys or values, and their factors."""
        arguments = self.emitter.arguments
        at = f"{arguments.take(piece.parts)} + {piece.place(self.lead, row, column)}"
        self.emitter.line(f"{name}_high = tl.load({at})")
        self.emitter.line(f"{name}_low = tl.load({at} + {piece.apart})")
        factors = piece.place_factors(self.lead, row, "start // BLOCK_N", column)
        self.emitter.line(f"{name}_back = tl.load({arguments.take(piece.factors)} + {factors})")


def _multiply_parts(left: str, right: str) -> str:
    """The sum of the three products of parts in one scale, the small ones first."""
    return f"tl.dot({left}_high, {right}_high, tl.dot({left}_low, {right}_high, tl.dot({left}_high, {right}_low)))"
