"""The two products in the kernel of an attention, and the places at which it computes elements."""

from __future__ import annotations

from tritonsmith.prompts.recipes.recipe import Settings
from tritonsmith.prompts.recipes.regions.cutting.regions import AttentionRegion
from tritonsmith.prompts.recipes.regions.values.attention import COLUMN, FEATURE, KEY, LEAD, QUERY
from tritonsmith.prompts.recipes.regions.values.indices import Index, variable
from tritonsmith.prompts.recipes.regions.values.tensors import TRITON_TYPES, Tensor, TensorView
from tritonsmith.prompts.recipes.regions.writing.blocks import DIRECT, KEPT, Blocks, choose_scheme
from tritonsmith.prompts.recipes.regions.writing.emitter import Arguments, Emitter

DOWN = "n_down"
"""Keys as rows, where `n` has them as columns."""
SPAN = ("first", "clear", "last")
"""What is known of a block of queries ahead: where a block of keys begins that one of them sees, from where on not all of them see
all keys, and the key behind the last one."""
WORDS = {LEAD, QUERY, KEY, DOWN, *SPAN, "program", "block", "part", "scores", "most", "higher", "base", "total", "weights", "alpha",
         "valid_down", "weights_high", "weights_low", "weights_back", "feature", "seen", "all_seen", "split_lines", "start"}  # fmt: skip
"""Names that the kernel uses itself."""


class HeadProducts:
    """Writes query @ key^T and weights @ value of a block of keys.

    Args:
        region: whose kernel it is.
        settings: ways to multiply.
        blocks: sizes.
        emitter: gets the lines.
        wide: what makes an index one of 64 bits; empty where 32 do.
    """

    def __init__(self, region: AttentionRegion, settings: Settings, blocks: Blocks, emitter: Emitter, wide: str) -> None:
        self.wide = wide
        self.region, self.one, self.settings, self.blocks, self.emitter = region, region.attention, settings, blocks, emitter

    def _load(self, value: Tensor, row: Index, column: Index) -> str:
        """An operand's block, in fp32 or in its own type of 16 bits."""
        at = self.one.find(value, row, column)
        below: Tensor = value
        while isinstance(below, TensorView) and below.guard is None and not self._is_read(below):
            below = below.source
        direct = value.dtype != "float32"
        self.emitter.narrow = direct and self._is_read(below)
        text = self.emitter.read(value, at)
        self.emitter.narrow = False
        if direct and not self._is_read(below):
            self.emitter.line(f"{text} = {text}.to({TRITON_TYPES[value.dtype]})")
        return text

    def _is_read(self, value: Tensor) -> bool:
        return id(value) in self.region.reads

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
        text = self._load(self.one.key, variable(KEY, self.one.keys), variable(f"{FEATURE}{number}_down", self.one.features))
        sign = "+=" if number or begun else "="
        q, k = f"q{number}", f"k{number}"
        if scheme == "fp16x3":
            self.emitter.line(f"{k}_high, {k}_low, {k}_back = split_lines({text}, 0)")
            self.emitter.line(f"{k}_rest = tl.dot({q}_low, {k}_high, tl.dot({q}_high, {k}_low)) * (1.0 / 2048.0)")
            self.emitter.line(f"scores {sign} tl.dot({q}_high, {k}_high, {k}_rest) * {q}_back * {k}_back")
        elif scheme == DIRECT:
            self.emitter.line(f"scores = tl.dot({q}, {text}{', scores' if sign == '+=' else ''})")
        else:
            self.emitter.line(f'scores {sign} tl.dot({q}, {text}, input_precision="{scheme}")')

    def multiply_values(self) -> None:
        """Add weights @ values of the block."""
        one, emitter = self.one, self.emitter
        scheme = choose_scheme(one.value.dtype, self.settings)
        undo = ""
        if scheme == "fp16x3" and one.softmax:  # at most 1, and 1 for some key
            emitter.line("weights_high, weights_low = split_value(weights)")
        elif scheme == "fp16x3":
            emitter.line("weights_high, weights_low, weights_back = split_lines(weights, 1)")
            undo = " * weights_back"
        elif scheme == DIRECT:
            emitter.line(f"weights = weights.to({TRITON_TYPES[one.value.dtype]})")
        for number in range(len(self.blocks.columns)):
            text = self._load(one.value, variable(DOWN, one.keys), variable(f"{COLUMN}{number}", one.columns))
            v, result = f"v{number}", f"result{number}"
            before = f"{result} * alpha" if one.softmax else result
            if scheme == "fp16x3":
                emitter.line(f"{v}_high, {v}_low, {v}_back = split_lines({text}, 0)")
                emitter.line(f"{v}_rest = tl.dot(weights_low, {v}_high, tl.dot(weights_high, {v}_low)) * (1.0 / 2048.0)")
                emitter.line(f"{result} = {before} + tl.dot(weights_high, {v}_high, {v}_rest) * {v}_back{undo}")
            elif scheme == DIRECT:
                emitter.line(f"{result} = tl.dot(weights, {text}, {before})")
            else:
                emitter.line(f'{result} = {before} + tl.dot(weights, {text}, input_precision="{scheme}")')


def make_emitter(region: AttentionRegion, arguments: Arguments, blocks: Blocks) -> Emitter:
    """What computes elements at the places that a program has."""
    one = region.attention
    bounds = {QUERY: "inside" if one.queries % blocks.queries else ""}
    bounds |= {KEY: "valid", DOWN: "valid_down"} if one.keys % blocks.keys else {KEY: "", DOWN: ""}
    for letter, pieces, size in ((FEATURE, blocks.features, one.features), (COLUMN, blocks.columns, one.columns)):
        for number, (start, places) in enumerate(pieces):
            ragged = size % places if size > KEPT else start + places > size
            for down in ("", "_down"):
                bounds[f"{letter}{number}{down}"] = f"{letter}{number}_valid{down}" if ragged else ""
    return Emitter(arguments, lambda value: id(value) in region.reads, bounds, frozenset((LEAD, QUERY)))


def write_piece(name: str, start: int, places: int, size: int, shift: str, wide: str, down: bool = True) -> list[str]:
    """The lines of a piece of an axis, as columns and as rows."""
    text = " + ".join([one for one in (shift, str(start) if start else "") if one] + [f"tl.arange(0, {places})"])
    text = f"({text}){wide}" if "+" in text else f"{text}{wide}"
    lines = [f"{name} = {text}[None, :]"] + ([f"{name}_down = {text}[:, None]"] if down else [])
    ragged = size % places if shift else start + places > size
    if ragged:
        lines += [f"{name}_valid = {name} < {size}"] + ([f"{name}_valid_down = {name}_down < {size}"] if down else [])
    return lines
