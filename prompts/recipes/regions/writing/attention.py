"""The kernel of an attention: a program has a block of queries of one head, and goes through the keys.

It keeps the maximum of the scores so far and the sum of their exponentials, and scales what it has when the maximum grows
(Milakov and Gimelshein, 2018; Dao et al., 2022).
"""

from __future__ import annotations

from tritonsmith.prompts.recipes.recipe import Settings
from tritonsmith.prompts.recipes.regions.cutting.heads import find_hidden
from tritonsmith.prompts.recipes.regions.cutting.regions import AttentionRegion
from tritonsmith.prompts.recipes.regions.values.attention import COLUMN, FEATURE, KEY, LEAD, QUERY, list_extras
from tritonsmith.prompts.recipes.regions.values.indices import Index, ravel, variable
from tritonsmith.prompts.recipes.regions.values.tensors import TRITON_TYPES, Tensor, TensorView
from tritonsmith.prompts.recipes.regions.writing.blocks import DIRECT, KEPT, Blocks, choose_blocks, choose_scheme, count_warps
from tritonsmith.prompts.recipes.regions.writing.emitter import Arguments, Emitter
from tritonsmith.prompts.recipes.regions.writing.kernels import Buffer, Kernel

_BIG = 2**31
_DOWN = "n_down"
"""Keys as rows, where `n` has them as columns."""
_LOG2E = "1.4426950408889634"
_NONE = 'float("-inf")'
_SHARED_HEADS = 8
"""Heads from which it pays to look first which keys a mask shows."""
_WORDS = {LEAD, QUERY, KEY, _DOWN, "program", "block", "part", "scores", "most", "higher", "base", "total", "weights", "alpha",
          "first", "last", "valid_down", "weights_high", "weights_low", "weights_back", "feature", "seen", "split_lines",
          "start"}  # fmt: skip


def write_attention(region: AttentionRegion, name: str, settings: Settings) -> list[Kernel]:
    """The kernel; ahead of it another one where a mask that all heads share hides whole blocks of keys."""
    one = region.attention
    blocks = choose_blocks(one, settings)
    spans = None
    if one.hidden is not None and one.heads >= _SHARED_HEADS and one.keys > blocks.keys:
        spans = Buffer(shape=(-(-one.queries // blocks.queries), 2), dtype="int32", name="spans")
    kernel = AttentionWriter(region, settings, blocks, spans).write(name)
    return [kernel] if spans is None else [_write_spans(region, f"find_spans_of_{name}", blocks, spans), kernel]


class AttentionWriter:
    """Writes the kernel.

    Args:
        region: what it computes.
        settings: ways to multiply, warps and stages.
        blocks: sizes.
        spans: for each block of queries the first key that one of them sees, and the one behind the last; None where none is left out.
    """

    def __init__(self, region: AttentionRegion, settings: Settings, blocks: Blocks, spans: Buffer | None) -> None:
        self.region, self.one, self.settings, self.blocks, self.spans = region, region.attention, settings, blocks, spans
        self.arguments = Arguments()
        self.arguments.used |= _WORDS | {f"{letter}{number}{end}" for letter in "qkvdce" for number in (0, 1) for end in
                                         ("", "_down", "_valid", "_valid_down", "_high", "_low", "_back", "_rest")}  # fmt: skip
        self.emitter = make_emitter(region, self.arguments, blocks)
        self.masked = bool(list_extras(self.one.score, self.one.product))
        """Whether the score of a query can be minus infinity for all keys of a block."""

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
                self._load_queries(number)
        emitter.open(frozenset((KEY, _DOWN)))
        emitter.line("n = (start + tl.arange(0, BLOCK_N))[None, :]")
        emitter.line("n_down = (start + tl.arange(0, BLOCK_N))[:, None]")
        if one.keys % blocks.keys:
            emitter.line(f"valid = n < {one.keys}")
            emitter.line(f"valid_down = n_down < {one.keys}")
        self._multiply_features()
        self._weigh()
        self._multiply_values()
        emitter.close(f"for start in range({self._range()}, BLOCK_N):")
        self._store()
        return self._finish(name)

    def _finish(self, name: str) -> Kernel:
        one, blocks, arguments = self.one, self.blocks, self.arguments
        number = -(-one.queries // blocks.queries)
        lines = [*self._head(number, arguments.largest >= _BIG), *self.emitter.scopes[0].lines]
        kind = "softmax(scores) @ values" if one.softmax else "scores @ values, scores with elementwise work on them"
        return Kernel(
            name=name, does=f"{kind}, for {one.heads} heads of {one.queries} queries and {one.keys} keys, block by block.",
            arguments=[(arguments.names[id(value)], value) for value in arguments.values], sizes=[],
            constants=[("BLOCK_M", blocks.queries), ("BLOCK_N", blocks.keys)], lines=lines,
            grid=f"({number * one.heads},{f' {blocks.slices}' if blocks.slices > 1 else ''})", stores=[one],
            warps=count_warps(blocks.queries, self.settings), stages=int(self.settings["attention_stages"]),
        )  # fmt: skip

    def _head(self, number: int, big: bool) -> list[str]:
        """The lines that say which queries and columns a program has."""
        one, blocks = self.one, self.blocks
        wide = ".to(tl.int64)" if big else ""
        lines = ["program = tl.program_id(0)"]
        if one.heads > 1:
            lines.append(f"lead = {f'(program // {number}){wide}' if number > 1 else f'program{wide}'}")
        block = "0" if number == 1 else f"program % {number}" if one.heads > 1 else "program"
        if number > 1 and (one.causal or self.spans is not None):
            block = f"{number - 1} - {block}"  # those with most keys first
        lines.append(f"block = {block}")
        lines.append(f"m = ({'block * BLOCK_M + ' if number > 1 else ''}tl.arange(0, BLOCK_M)){wide if one.heads == 1 else ''}[:, None]")
        lines += [f"inside = m < {one.queries}"] if one.queries % blocks.queries else []
        if not blocks.stepped:
            for place, (start, places) in enumerate(blocks.features):
                lines += _write_piece(f"d{place}", start, places, one.features, "")
        for place, (start, places) in enumerate(blocks.columns):
            shift = f"tl.program_id(1) * {KEPT}" if blocks.slices > 1 else ""
            lines += _write_piece(f"c{place}", start, places, one.columns, shift, down=False)
        if self.spans is not None:
            spans = self.arguments.take(self.spans)
            lines += [f"first = tl.load({spans} + block * 2)", f"last = tl.load({spans} + block * 2 + 1)"]
        elif one.causal:
            lines.append(f"last = tl.minimum((block + 1) * BLOCK_M, {one.keys})")
        return lines

    def _range(self) -> str:
        if self.spans is not None:
            self.arguments.take(self.spans)
            return "first, last"
        return "0, last" if self.one.causal else f"0, {self.one.keys}"

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

    def _load_queries(self, number: int) -> None:
        """A piece of the queries, split where the product is done in parts."""
        text = self._load(self.one.query, variable(QUERY, self.one.queries), variable(f"{FEATURE}{number}", self.one.features))
        if choose_scheme(self.one.query.dtype, self.settings) == "fp16x3":
            self.emitter.line(f"q{number}_high, q{number}_low, q{number}_back = split_lines({text}, 1)")
        else:
            self.emitter.line(f"q{number} = {text}")

    def _multiply_features(self) -> None:
        """scores = query @ key^T of the block."""
        emitter, blocks = self.emitter, self.blocks
        if not blocks.stepped:
            for number in range(len(blocks.features)):
                self._add_product(number)
        else:
            emitter.line("scores = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")
            emitter.open(frozenset(("d0", "d0_down")))
            start, places = blocks.features[0]
            for line in _write_piece("d0", start, places, self.one.features, "feature"):
                emitter.line(line)
            self._load_queries(0)
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

    def _weigh(self) -> None:
        """The weights of the block's keys, with the maximum and the sum so far brought up to date."""
        one, emitter = self.one, self.emitter
        score = emitter.read(one.score, one.find(one.score, variable(QUERY, one.queries), variable(KEY, one.keys)))
        ragged = one.keys % self.blocks.keys != 0 and not (one.causal and one.queries <= one.keys)
        if not one.softmax:
            emitter.line(f"weights = {f'tl.where(valid, {score}, 0.0)' if ragged else score}")
            return
        if ragged:
            emitter.line(f"scores = tl.where(valid, {score}, {_NONE})")
            score = "scores"
        emitter.line(f"higher = tl.maximum(most, tl.max({score}, 1, keep_dims=True))")
        if self.masked:
            emitter.line(f"base = tl.where(higher == {_NONE}, 0.0, higher)")
        base = "base" if self.masked else "higher"
        emitter.line(f"weights = tl.exp2(({score} - {base}) * {_LOG2E})")
        emitter.line(f"alpha = tl.exp2((most - {base}) * {_LOG2E})")
        emitter.line("total = total * alpha + tl.sum(weights, 1, keep_dims=True)")
        emitter.line("most = higher")

    def _multiply_values(self) -> None:
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
            text = self._load(one.value, variable(_DOWN, one.keys), variable(f"{COLUMN}{number}", one.columns))
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

    def _store(self) -> None:
        one, emitter = self.one, self.emitter
        if one.softmax and one.empty_is_zero and self.masked:
            emitter.line("total = tl.where(total == 0.0, 1.0, total)  # a query that sees no key gets zeros")
        row = variable(QUERY, one.queries)
        for number in range(len(self.blocks.columns)):
            column = variable(f"{COLUMN}{number}", one.columns)
            text = f"result{number}{' / total' if one.softmax else ''}"
            index = ravel(one.place(row, column), one.shape)
            emitter.store(one, index, text, frozenset((QUERY, f"{COLUMN}{number}")))


def make_emitter(region: AttentionRegion, arguments: Arguments, blocks: Blocks) -> Emitter:
    """What computes elements at the places that a program has."""
    one = region.attention
    bounds = {QUERY: "inside" if one.queries % blocks.queries else ""}
    bounds |= {KEY: "valid", _DOWN: "valid_down"} if one.keys % blocks.keys else {KEY: "", _DOWN: ""}
    for letter, pieces, size in ((FEATURE, blocks.features, one.features), (COLUMN, blocks.columns, one.columns)):
        for number, (start, places) in enumerate(pieces):
            ragged = size % places if size > KEPT else start + places > size
            for down in ("", "_down"):
                bounds[f"{letter}{number}{down}"] = f"{letter}{number}_valid{down}" if ragged else ""
    return Emitter(arguments, lambda value: id(value) in region.reads, bounds, frozenset((LEAD, QUERY)))


def _write_piece(name: str, start: int, places: int, size: int, shift: str, down: bool = True) -> list[str]:
    """The lines of a piece of an axis, as columns and as rows."""
    text = " + ".join([one for one in (shift, str(start) if start else "") if one] + [f"tl.arange(0, {places})"])
    text = f"({text})" if "+" in text else text
    lines = [f"{name} = {text}[None, :]"] + ([f"{name}_down = {text}[:, None]"] if down else [])
    ragged = size % places if shift else start + places > size
    if ragged:
        lines += [f"{name}_valid = {name} < {size}"] + ([f"{name}_valid_down = {name}_down < {size}"] if down else [])
    return lines


def _write_spans(region: AttentionRegion, name: str, blocks: Blocks, spans: Buffer) -> Kernel:
    """One program for each block of queries goes through the mask."""
    one = region.attention
    arguments = Arguments()
    arguments.used |= _WORDS
    emitter = make_emitter(region, arguments, blocks)
    assert one.hidden is not None
    lines = ["block = tl.program_id(0)", "m = (block * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]"]
    lines += [f"inside = m < {one.queries}"] if one.queries % blocks.queries else []
    lines += [f"first = tl.full((), {one.keys}, tl.int32)", "last = tl.full((), 0, tl.int32)"]
    emitter.open(frozenset((KEY,)))
    emitter.line("n = (start + tl.arange(0, BLOCK_N))[None, :]")
    emitter.line(f"valid = n < {one.keys}")
    text = emitter.read(one.hidden, find_hidden(one))
    emitter.line(f"seen = ({text} == 0) & (m < {one.queries}) & valid")
    emitter.line(f"first = tl.minimum(first, tl.min(tl.min(tl.where(seen, n, {one.keys}), 1), 0))")
    emitter.line("last = tl.maximum(last, tl.max(tl.max(tl.where(seen, n + 1, 0), 1), 0))")
    emitter.close(f"for start in range(0, {one.keys}, BLOCK_N):")
    pointer = arguments.take(spans)
    emitter.line(f"tl.store({pointer} + block * 2, first // BLOCK_N * BLOCK_N)")
    emitter.line(f"tl.store({pointer} + block * 2 + 1, last)")
    return Kernel(
        name=name, does="For each block of queries: the block of the first key that one of them sees, and the key behind the last one.",
        arguments=[(arguments.names[id(value)], value) for value in arguments.values], sizes=[],
        constants=[("BLOCK_M", blocks.queries), ("BLOCK_N", blocks.keys)], lines=[*lines, *emitter.scopes[0].lines],
        grid=f"({spans.shape[0]},)", stores=[spans], warps=4,
    )  # fmt: skip
