"""The two products in the kernel of an attention."""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.regions import AttentionRegion
from tritonsmith.author.compiler.ir.attention import COLUMN, FEATURE, KEY, LEAD, QUERY
from tritonsmith.author.compiler.ir.code import Augment, Expression, Name
from tritonsmith.author.compiler.ir.template import expression, statement
from tritonsmith.author.compiler.ir.values import TYPE_NAMES, Tensor
from tritonsmith.author.compiler.kernels.attention.blocks import DIRECT, Blocks, choose_scheme
from tritonsmith.author.compiler.kernels.attention.operands import (
    DOWN,
    HeadParts,
    SplitPiece,
    load_operand,
    split_lines,
    write_piece,
)
from tritonsmith.author.compiler.kernels.emitter import Emitter
from tritonsmith.author.compiler.kernels.pieces import add, assign, loop, options
from tritonsmith.author.compiler.kernels.schemes import multiply_alike
from tritonsmith.author.recipe import Settings


class HeadProducts:
    """Writes query @ key^T and weights @ value of a block of keys.

    Args:
        region: whose kernel it is.
        settings: ways to multiply.
        blocks: sizes.
        emitter: gets the lines.
        wide: whether an index has 64 bits.
        parts: of keys and values, where a kernel has made them.
    """

    def __init__(
        self, region: AttentionRegion, settings: Settings, blocks: Blocks, emitter: Emitter, wide: bool, parts: HeadParts | None
    ) -> None:
        self.wide, self.parts = wide, parts
        self.region, self.one, self.blocks, self.emitter = region, region.attention, blocks, emitter
        self.first, self.second = (choose_scheme(operand.dtype, settings) for operand in (self.one.query, self.one.value))
        """How each product is multiplied."""

    def load_queries(self, place: int) -> None:
        """A piece of the queries, split where the product is done in parts."""
        name = f"q{place}"
        block = load_operand(self.region, self.emitter, self.one.query, QUERY, f"{FEATURE}{place}")
        self.emitter.line(split_lines(name, block, 1) if self.first == "fp16x3" else assign(name, block))

    def multiply_features(self) -> None:
        """scores = query @ key^T of the block."""
        emitter, blocks = self.emitter, self.blocks
        if not blocks.stepped:
            for place in range(len(blocks.features)):
                self._add_features(place, begun=place > 0)
        else:
            emitter.line(statement("scores = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)"))
            emitter.open(frozenset(("d0", "d0_down")))
            start, places = blocks.features[0]
            emitter.line(*write_piece("d0", start, places, self.one.features, Name("feature"), self.wide))
            self.load_queries(0)
            self._add_features(0, begun=True)
            emitter.close(loop("feature", 0, self.one.features, places))
        emitter.given[id(self.one.product)] = "scores"
        emitter.names["scores"] = frozenset((LEAD, QUERY, KEY))

    def _add_features(self, place: int, begun: bool) -> None:
        """Add the product over a piece of the features to the scores, or begin these."""
        q, k, scores = f"q{place}", f"k{place}", Name("scores")
        piece = self.parts.keys[place] if self.parts else None
        keys = self._prepare(self.first, k, self.one.key, KEY, f"{FEATURE}{place}_down", piece)
        product = _multiply(self.first, q, k, keys, (q, k), scores if begun else None)
        add_to = begun and self.first != DIRECT
        self.emitter.line(Augment(scores, "+", product) if add_to else assign("scores", product))

    def multiply_values(self) -> None:
        """Add weights @ values of the block."""
        one, emitter, scheme = self.one, self.emitter, self.second
        scaled: tuple[str, ...] = ()
        if scheme == "fp16x3" and one.softmax:  # at most 2^15, and that for some key
            emitter.line(statement("weights_high, weights_low = split_alike(weights)"))
        elif scheme == "fp16x3":
            emitter.line(split_lines("weights", Name("weights"), 1))
            scaled = ("weights",)
        elif scheme == DIRECT:
            emitter.line(statement("weights = weights.to({dtype})", dtype=TYPE_NAMES[one.value.dtype]))
        for place in range(len(self.blocks.columns)):
            v, result = f"v{place}", f"result{place}"
            piece = self.parts.values[place] if self.parts else None
            before = expression("{result} * alpha" if one.softmax else "{result}", result=result)
            values = self._prepare(scheme, v, one.value, DOWN, f"{COLUMN}{place}", piece)
            product = _multiply(scheme, "weights", v, values, (v, *scaled), before)
            emitter.line(assign(result, product if scheme == DIRECT else add(before, product)))

    def _prepare(self, scheme: str, name: str, value: Tensor, row: str, column: str, piece: SplitPiece | None) -> Expression | None:
        """A block of keys or values; None where its parts are what is multiplied, which are named after it then."""
        if piece is not None:
            arguments = self.emitter.arguments
            high, low = piece.address(arguments, row, column)
            back = piece.address_factors(arguments, row, expression("start // BLOCK_N"), column)
            for part, address in (("high", high), ("low", low), ("back", back)):
                self.emitter.line(assign(f"{name}_{part}", expression("tl.load({address})", address=address)))
            return None
        block = load_operand(self.region, self.emitter, value, row, column)
        if scheme != "fp16x3":
            return block
        self.emitter.line(split_lines(name, block, 0))
        return None


def _multiply(
    scheme: str, left: str, right: str, block: Expression | None, scaled: tuple[str, ...], total: Expression | None
) -> Expression:
    """The product of a block with one of keys or values; of operands of 16 bits with the sum so far.

    Args:
        scheme: how it is multiplied.
        left: the name of the block.
        right: the name of the parts of keys or values.
        block: these keys or values, where they have no parts.
        scaled: names of the blocks whose factors the product is times.
        total: the sum so far; None where there is none.
    """
    if block is None:
        product = multiply_alike(left, right)
        for name in scaled:
            product = expression("{product} * {back}", product=product, back=f"{name}_back")
        return product
    rest = options(input_precision=scheme) if scheme != DIRECT else () if total is None else (total,)
    return expression("tl.dot({left}, {block}, {*rest})", left=left, block=block, rest=rest)
