"""Kernels that split a parameter into fp16 parts ahead of a product, each line along the depth by a power of two of its own."""

from __future__ import annotations

from tritonsmith.prompts.recipes.regions.cutting.regions import ProductRegion
from tritonsmith.prompts.recipes.regions.cutting.space import ACROSS, BATCH, LINE, TAP
from tritonsmith.prompts.recipes.regions.values.indices import Coordinates, variable
from tritonsmith.prompts.recipes.regions.values.tensors import Held, Tensor, TensorView
from tritonsmith.prompts.recipes.regions.writing.emitter import Arguments
from tritonsmith.prompts.recipes.regions.writing.kernels import Buffer, KeptParts, fold
from tritonsmith.prompts.recipes.regions.writing.product_tiles import INNER, OUTER, ProductTile, TileEmitter

_NAMES = (*OUTER, *INNER, "line", "values", "scaled", "largest", "exponent", "rough", "high", "low", "place", "parts_ptr", "exponents_ptr")
"""Names of the kernel's own."""
LINES, PLACES = 4, 256
"""Lines of a program, and places of them at once."""


def write_parts(region: ProductRegion, tile: ProductTile, name: str) -> KeptParts:
    """The kernel for the operand of a product that is a parameter."""
    product = region.product
    batch, rows, columns, taps, depth = product.sizes
    left = tile.kept == "left"
    lines, value = (rows, product.source) if left else (columns, product.right)
    padded = -(-depth // tile.depth) * tile.depth
    base: Tensor = value
    while isinstance(base, TensorView):
        base = base.source
    assert isinstance(base, Held), "only parameters are kept"
    both = tile.scheme == "fp16x3"
    parts = Buffer(shape=(2 if both else 1, batch, lines, taps * padded), dtype="float16", name=f"{base.name}_parts")
    kept = KeptParts(f"split_{name}", base, parts, Buffer(shape=(batch, lines), dtype="int32", name=f"{base.name}_exponents"))
    own, line, tap, across = variable(BATCH, batch), variable(LINE, lines), variable(TAP, taps), variable(ACROSS, depth)
    writer = _LineWriter(value, (own, line, tap, across) if left else (own, tap, across, line), (lines, taps, depth, padded))
    pointer = writer.arguments.take(base)
    writer.add_loop(["largest = tl.maximum(largest, magnitude(values))"])
    writer.emitter.line("largest = tl.max(largest, 1)")
    writer.emitter.line("exponent = line_exponent(largest)")
    writer.emitter.line("rough = tl.max((largest >= 0x7F800000).to(tl.int32), 0)  # infinity or NaN")
    place = f"{f'(batch * {lines} + m)' if batch > 1 else 'm'} * {taps * padded} + {f'tap * {padded} + ' if taps > 1 else ''}across"
    inside = f"(m < {lines}) & (across < {padded})"
    stores = [f"tl.store(parts_ptr + {place}, {'high' if both else 'scaled.to(tl.float16)'}, mask={inside})"]
    if both:
        stores = ["high, low = split_value(scaled)", *stores, f"tl.store(parts_ptr + {kept.apart} + {place}, low, mask={inside})"]
    test = "rough = tl.maximum(rough, is_uneven(tl.max(magnitude(scaled), 0)))"
    writer.add_loop(["scaled = shift(values, exponent[:, None])", test, *stores])
    blocks = -(-lines // LINES)
    head = [f"batch = tl.program_id(0) // {blocks}"] if batch > 1 else []
    head += [f"line = tl.program_id(0){f' % {blocks}' if batch > 1 else ''} * LINES + tl.arange(0, LINES)", "m = line[:, None]"]
    end = f"tl.store(exponents_ptr + {f'batch * {lines} + ' if batch > 1 else ''}line, mark_rough(exponent, rough), mask=line < {lines})"
    does = f'"""fp16 parts of {base.name}, each line times a power of two, with zeros up to whole blocks of {tile.depth} places."""'
    start = "largest = tl.zeros((LINES, PLACES), tl.int32)"
    body = [does, *head, start, *writer.emitter.scopes[0].lines, end]
    first = f"def {kept.kernel}({pointer}, parts_ptr, exponents_ptr, LINES: tl.constexpr, PLACES: tl.constexpr):"
    kept.text = "\n".join(["@triton.jit", first, *(one for line in body for one in fold(f"    {line}"))])
    return kept


class _LineWriter:
    """Writes loops along some lines of a parameter.

    Args:
        value: the operand.
        at: where it is read.
        sizes: lines, taps, depth, and the depth filled up to whole blocks.
    """

    def __init__(self, value: Tensor, at: Coordinates, sizes: tuple[int, int, int, int]) -> None:
        self.value, self.at = value, at
        self.lines, self.taps, self.depth, padded = sizes
        self.chunks = -(-padded // PLACES)
        self.arguments = Arguments()
        self.arguments.used |= set(_NAMES)
        bounds = {LINE: f"(m < {self.lines})", ACROSS: f"(across < {self.depth})"}
        self.emitter = TileEmitter(self.arguments, lambda one: isinstance(one, Held), bounds, OUTER)

    def add_loop(self, lines: list[str]) -> None:
        """A loop over taps and depth; `values` are those of the lines, 0 beyond the edge."""
        self.emitter.open(INNER)
        start, head = "", f"for tap in range({self.taps}):"
        if self.chunks > 1:
            many = self.taps > 1
            start, head = f"place{f' % {self.chunks}' if many else ''} * PLACES + ", f"for place in range({self.taps * self.chunks}):"
            self.emitter.line(f"tap = place // {self.chunks}") if many else None
        places = "tl.arange(0, PLACES)"
        self.emitter.line(f"across = {f'({start}{places})' if start else places}[None, :]")
        text = self.emitter.read_tile(self.value, self.at, ("LINES", "PLACES"), (LINE, ACROSS), self.depth, True)
        self.emitter.line(f"values = {text}")
        for line in lines:
            self.emitter.line(line)
        self.emitter.close(head)
