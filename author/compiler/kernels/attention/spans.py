"""A kernel ahead of an attention that finds which keys a mask shows, where all heads share the mask."""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.attention import find_hidden
from tritonsmith.author.compiler.fusing.regions import AttentionRegion
from tritonsmith.author.compiler.ir.attention import KEY
from tritonsmith.author.compiler.kernels.attention.blocks import Blocks
from tritonsmith.author.compiler.kernels.attention.places import SPAN, WORDS, make_emitter
from tritonsmith.author.compiler.kernels.emitter import Arguments
from tritonsmith.author.compiler.kernels.kernel import Buffer, Kernel
from tritonsmith.author.compiler.kernels.texts import list_texts, show


def write_spans(region: AttentionRegion, name: str, blocks: Blocks, spans: Buffer) -> Kernel:
    """One program for each block of queries goes through the mask."""
    one = region.attention
    arguments = Arguments()
    arguments.used |= WORDS
    emitter = make_emitter(region, arguments, blocks)
    assert one.hidden is not None
    lines = ["block = tl.program_id(0)", "m = (block * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]"]
    lines += [f"inside = m < {one.queries}"] if one.queries % blocks.queries else []
    lines += [f"{word} = tl.full((), {number}, tl.int32)" for word, number in zip(SPAN, (one.keys, one.keys, 0), strict=True)]
    emitter.open(frozenset((KEY,)))
    emitter.line("n = (start + tl.arange(0, BLOCK_N))[None, :]")
    emitter.line(f"valid = n < {one.keys}")
    text = show(emitter.read(one.hidden, find_hidden(one)))
    emitter.line(f"seen = ({text} == 0) & (m < {one.queries}) & valid")
    emitter.line("last = tl.maximum(last, tl.max(tl.max(tl.where(seen, n + 1, 0), 1), 0))")
    emitter.line("first = tl.where(last > 0, tl.minimum(first, start), first)")
    emitter.line(f"all_seen = tl.min(tl.min((seen | (m >= {one.queries})).to(tl.int32), 1), 0)")
    emitter.line("clear = tl.where((all_seen == 0) & (first <= start), tl.minimum(clear, start), clear)")
    emitter.close(f"for start in range(0, {one.keys}, BLOCK_N):")
    pointer = arguments.take(spans)
    emitter.line(f"clear = tl.minimum(clear, {one.keys // blocks.keys * blocks.keys})")
    for place, word in enumerate(SPAN):
        emitter.line(f"tl.store({pointer} + block * 3{f' + {place}' if place else ''}, {word})")
    return Kernel.from_text(
        name=name, does="For each block of queries: the first block of keys that is seen, the first that not all see, the end of the last.",
        arguments=[(arguments.names[id(value)], value) for value in arguments.values], sizes=[],
        constants=[("BLOCK_M", blocks.queries), ("BLOCK_N", blocks.keys)], lines=[*lines, *list_texts(emitter.scopes[0].lines)],
        grid=f"({spans.shape[0]},)", stores=[spans], warps=4,
    )  # fmt: skip
