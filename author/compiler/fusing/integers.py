"""Weights that are computed from whole numbers of 8 or 4 bits, in products of few rows.

Such a product takes what its weights take to be read. A kernel that reads the whole numbers reads half or a quarter of what a library does,
which wants weights of 16 bits, and nothing stores these first. A scale that is the same for a group of places of the depth is taken out of
the sum: the group's products are summed in fp32, and multiplied by it once. So a weight is exact as tensor cores take it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.space import ACROSS, COLUMN, DOWN, LINE
from tritonsmith.author.compiler.ir.indices import ZERO, Coordinates, Guard, Index, Variable, ravel, variable
from tritonsmith.author.compiler.ir.operators import A, Applied, B, Operator, is_cast, read_number
from tritonsmith.author.compiler.ir.values import Formula, Held, Joined, MatrixProduct, Position, Tensor, TensorView, align
from tritonsmith.author.compiler.ir.values import list_reads as list_all_reads
from tritonsmith.author.types import BYTES, IN_PARTS

MOST_ROWS = 64
"""Rows of a product that one tile has, so that every weight is read and converted once."""
CHUNK, FOLLOWING = "chunk", "following"
"""Variables of the kernel: which places of the depth a warp multiplies, and which ones next."""
ROW, UNIT = "line", "unit"
"""Variables of the loop: the row of the product, and its column, which is a row of the weights."""
_CHUNKS = (128, 64, 32, 16)
"""Places of the depth that one warp multiplies at a time; a scale is the same for all of them."""
_WHOLE = ("int8", "uint8", "bool")
"""Types whose numbers 16-bit floats hold as they are: bfloat16 has all whole numbers up to 256."""
_SHORT = 127
_LESS = 0.75
"""Bytes of what weights are computed from, over those of weights of 16 bits, at most."""
_STAGE = 100 * 1024
"""Bytes of a step of the loop, at most, so that another one is on its way at the same time."""
_STEP_CHUNKS = 8
"""Chunks of a step: one for each warp."""
_STEP_CHUNKS_READ = 4
"""The same where tensor cores get whole numbers as they are read (H200; raw/integers_h200: 14.0 and 15.8 us for 4096 x 4096)."""
_WIDE, _NARROW = 32, 16
"""Rows of the weights that a program has; fewer where programs are too few for half of the card."""
Factor = tuple[Tensor, Coordinates]
"""A value, and where it is read."""


@dataclass(frozen=True)
class WeightPart:
    """Some places of the depth, evenly apart.

    Args:
        element: what tensor cores multiply.
        scales: factors of a chunk's sum; they depend on columns and on the chunk, or on columns alone.
        offset: what each element is lessened by, a zero point; it depends on the same.
    """

    element: Factor
    scales: tuple[Factor, ...] = ()
    offset: Factor | None = None

    @property
    def around(self) -> tuple[Factor, ...]:
        """What is done to a chunk's sum."""
        return (*self.scales, *([self.offset] if self.offset else []))


@dataclass(frozen=True)
class IntegerWeights:
    """How a product of few rows goes along weights that are computed from whole numbers.

    Args:
        parts: one, or the two that lie in the same bytes.
        chunk: places of a part's depth that have the same scales.
        count: chunks of a part.
        interleaved: whether two parts take turns along the depth; else each has a half of it.
    """

    parts: tuple[WeightPart, ...]
    chunk: int
    count: int
    interleaved: bool

    @property
    def values(self) -> tuple[Factor, ...]:
        """What the kernel computes."""
        return tuple(factor for part in self.parts for factor in (part.element, *part.around))

    @property
    def whole(self) -> bool:
        """Whether tensor cores get the whole numbers themselves, and nothing that is computed from them and from further tensors."""
        return all(part.element[0].dtype in _WHOLE for part in self.parts)

    @property
    def is_read(self) -> bool:
        """Whether tensor cores get each whole number as it is read: nothing is unpacked."""
        return self.whole and len(self.parts) == 1

    @property
    def alike(self) -> bool:
        """Whether all parts have the same scales and offset, so that one sum of their products is enough."""
        return len({(part.scales, part.offset) for part in self.parts}) == 1

    @property
    def ahead(self) -> tuple[Factor, ...]:
        """What is read a step ahead, each once: scales and offsets of the chunk."""
        return tuple(dict.fromkeys(one for part in self.parts for one in part.around if depends(one, CHUNK)))

    @property
    def late(self) -> bool:
        """Whether scales are the same for the whole depth, and nothing else is done: they multiply the finished sums."""
        return self.alike and self.parts[0].offset is None and not self.ahead

    def list_chunks(self) -> int:
        """Chunks of a step: as many as warps, a divisor of their number."""
        return next(size for size in (_STEP_CHUNKS_READ if self.is_read else _STEP_CHUNKS, 4, 2, 1) if self.count % size == 0)

    def move(self, at: Coordinates) -> Coordinates:
        """Coordinates for the chunks of the next step."""
        here, there = (variable(name, self.count) for name in (CHUNK, FOLLOWING))
        return tuple(_replace(index, here, there) for index in at)


def read_integers(product: MatrixProduct, card: CardModel) -> IntegerWeights | None:
    """How the kernel of a product computes its weights, the right operand; None where they are not made of whole numbers, or rows are many.

    Args:
        product: of 16-bit matrices.
        card: one on which this was measured; None is what others get.
    """
    batch, rows, columns, taps, depth = product.sizes
    plain = not (product.window or product.interleaved or product.reduced or product.differences or product.squares or product.order)
    plain = plain and batch * taps * product.folded * product.apart * product.together == 1
    if not plain or rows > MOST_ROWS or columns < _NARROW or product.right.dtype in IN_PARTS or not any(card.fits.products.integers):
        return None
    if product.right.dtype != product.source.dtype or not _is_made_of_less(product):
        return None
    found = [one for two, interleaved in ((False, False), (True, True), (True, False)) if (one := _divide(product, two, interleaved))]
    return min(found, key=_count_reads) if found else None


def choose_rows(product: MatrixProduct) -> int:
    """The product's rows as tensor cores take them: 16, 32 or 64."""
    return max(16, 1 << (product.sizes[1] - 1).bit_length())


def choose_units(product: MatrixProduct, card: CardModel) -> int:
    """Rows of the weights that a program has."""
    return _WIDE if 2 * -(-product.sizes[2] // _WIDE) > card.processors else _NARROW


def count_stage(product: MatrixProduct, units: int, chunks: int, chunk: int, parts: int) -> int:
    """Bytes of a step: whole numbers, and the rows' values of 16 bits."""
    return chunks * chunk * (units + 2 * parts * choose_rows(product))


def _is_made_of_less(product: MatrixProduct) -> bool:
    """Whether weights are computed, element by element, from tensors in memory which together are smaller, whole numbers among them."""
    base: Tensor = product.right
    while isinstance(base, TensorView):
        base = base.source
    if not isinstance(base, Formula | Joined):
        return False
    leaves: dict[int, Tensor] = {}
    todo: list[Tensor] = [base]
    seen = set[int]()
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Held):
            leaves[id(value)] = value
        elif not isinstance(value, Formula | TensorView | Joined | Position):
            return False
        todo += value.operands
    whole = any(value.dtype in _WHOLE for value in leaves.values())
    return whole and sum(value.bytes for value in leaves.values()) <= _LESS * product.right.size * BYTES[product.right.dtype]


def _divide(product: MatrixProduct, two: bool, interleaved: bool) -> IntegerWeights | None:
    """The weights in one part or in two, in the largest chunks with scales of their own; without such chunks, with no scales."""
    depth, columns, parts = product.sizes[-1], product.sizes[2], 2 if two else 1
    last: IntegerWeights | None = None
    for chunk in _CHUNKS:
        count, rest = divmod(depth, parts * chunk)
        if rest or count_stage(product, _WIDE, min(count, _STEP_CHUNKS), chunk, parts) > _STAGE:
            continue
        places = [place_depth(chunk, count, parts, number, interleaved, DOWN) for number in range(parts)]
        weights: list[Factor] = [(product.right, (ZERO, ZERO, place, variable(UNIT, columns))) for place in places]
        split = [_split(weight, product.right.dtype) for weight in weights]
        found = [part or WeightPart(weight) for part, weight in zip(split, weights, strict=True)]
        if all(split):
            return IntegerWeights(tuple(found), chunk, count, interleaved)
        last = last or IntegerWeights(tuple(found), chunk, count, interleaved)
    return last


def place_depth(chunk: int, count: int, parts: int, number: int, interleaved: bool, inner: str) -> Index:
    """A place of the depth, by the chunk and the place in it.

    Args:
        chunk: places of one.
        count: chunks of a part.
        parts: of the depth.
        number: which part.
        interleaved: whether parts take turns.
        inner: the variable that goes along a chunk.
    """
    own = variable(CHUNK, count) * chunk + variable(inner, chunk)
    return own * parts + number if interleaved else own + number * chunk * count


def place_pair(chunk: int, count: int) -> Index:
    """The same for both of two interleaved parts at once."""
    return variable(CHUNK, count) * (2 * chunk) + variable(ACROSS, 2 * chunk)


def locate_rows(product: MatrixProduct, place: Index) -> Coordinates:
    """Where the left operand is read for a place of the depth."""
    return ZERO, variable(ROW, product.sizes[1]), ZERO, place


def _split(weight: Factor, dtype: str) -> WeightPart | None:
    """An element and the scales of its chunk; None where what is multiplied by the scales is not exact in the product's type."""
    factors = list(_list_factors(*weight))
    inner = [one for one in factors if depends(one, DOWN)]
    if len(inner) != 1:
        return None
    scales = tuple(one for one in factors if one is not inner[0])
    value, at = _strip(*inner[0])
    if isinstance(value, Formula) and value.expression == A - B and value.dtype not in _WHOLE:
        minuend, offset = ((operand, align(at, operand.shape)) for operand in value.inputs)
        element = _shorten(minuend)
        if element[0].dtype in _WHOLE and not depends(offset, DOWN):
            return WeightPart(element, scales, _show(*offset))
    element = _shorten(inner[0])
    return WeightPart(element, scales) if element[0].dtype in _WHOLE or element[0].dtype == dtype else None


def depends(factor: Factor, name: str) -> bool:
    """Whether what a value is read from depends on a variable."""
    return any(name in place.names for _, at in _list_leaves(*factor) for place in at)


def _list_factors(value: Tensor, at: Coordinates) -> Iterator[Factor]:
    """What a value is the product of, in real numbers: roundings between are left out."""
    if isinstance(value, TensorView) and not value.guards(at):
        yield from _list_factors(value.source, value.move(at))
    elif isinstance(value, Formula) and value.dtype not in _WHOLE and value.expression == A * B:
        for operand in value.inputs:
            yield from _list_factors(operand, align(at, operand.shape))
    elif isinstance(value, Formula) and len(value.inputs) == 1 and is_cast(value.expression) and _is_float(value.inputs[0]):
        yield from _list_factors(value.inputs[0], align(at, value.inputs[0].shape))
    else:
        yield value, at


def _is_float(value: Tensor) -> bool:
    return value.dtype in ("float16", "bfloat16", "float32")


def _shorten(factor: Factor) -> Factor:
    """The whole number of few bits that an element is, whatever types it was brought into; the element itself where it is none."""
    value, at = _strip(*factor)
    return (value, at) if value.dtype in _WHOLE else factor


def _show(value: Tensor, at: Coordinates) -> Factor:
    """A value without its views, so that one that stands in several places is read once."""
    while isinstance(value, TensorView) and not value.guards(at):
        at, value = value.move(at), value.source
    return value, at


def _strip(value: Tensor, at: Coordinates) -> Factor:
    """A value without the views and the wider types that it is brought into."""
    value, at = _show(value, at)
    while isinstance(value, Formula) and len(value.inputs) == 1 and is_cast(value.expression) and value.dtype not in _WHOLE:
        (operand,) = value.inputs
        value, at = _show(operand, align(at, operand.shape))
    return value, at


def is_short(value: Tensor) -> bool:
    """Whether the whole numbers of a value are from 0 to 127, as those of four bits are: Triton brings int8 into bfloat16 fastest."""
    if isinstance(value, Joined):
        return all(map(is_short, value.parts))
    if isinstance(value, TensorView):
        return value.guard is None and is_short(value.source)
    if not isinstance(value, Formula) or value.dtype != "uint8" or not isinstance(value.expression, Applied):
        return False
    operator, number = value.expression.operator, read_number(value.expression.arguments[-1])
    masked = operator is Operator.AND and number is not None and 0 <= number <= _SHORT
    return masked or operator is Operator.SHIFT_RIGHT and number is not None and number >= 1


def is_impossible(guard: Guard) -> bool:
    """Whether no place fulfils a condition."""
    least, greatest = guard.index.bounds
    return greatest < guard.low or guard.high <= least


def _list_leaves(value: Tensor, at: Coordinates) -> Iterator[Factor]:
    """What an element reads from memory, and numbers that follow from places."""
    todo, seen = [(value, at)], set[tuple[int, Coordinates]]()
    while todo:
        one, place = todo.pop()
        if (id(one), place) in seen:
            continue
        seen.add((id(one), place))
        if isinstance(one, Held | Position):
            yield one, place
            continue
        reads = list_all_reads(one, place)
        todo += [(read.value, read.at) for read in reads if not any(map(is_impossible, read.guards))]


def _count_reads(weights: IntegerWeights) -> tuple[float, float]:
    """Loads of a weight whose neighbours are no neighbours in memory, and loads of a weight."""
    places = {
        (id(value), ravel(at, value.shape)) for part in weights.parts for value, at in _list_leaves(*part.element)
        if isinstance(value, Held) and any(DOWN in index.names for index in at)
    }  # fmt: skip
    apart = sum(any(DOWN in atom.names and not (isinstance(atom, Variable) and factor == 1) for atom, factor in index.terms)
                for _, index in places)  # fmt: skip
    return apart / len(weights.parts), len(places) / len(weights.parts)


def _replace(index: Index, here: Index, there: Index) -> Index:
    """An index with one variable for another."""
    if not here.terms:
        return index
    total = Index(constant=index.constant)
    for atom, factor in index.terms:
        if atom == here.terms[0][0]:
            total += there * factor
        elif isinstance(atom, Variable) or CHUNK not in atom.names:
            total += Index(((atom, factor),))
        else:
            inner = _replace(atom.of, here, there)  # type: ignore[union-attr]  # numbers from memory know no chunk
            total += (inner % atom.by if atom.remainder else inner // atom.by) * factor  # type: ignore[union-attr]
    return total


BOUNDS = (ROW, LINE), (UNIT, COLUMN)
"""Variables of the loop, and those behind it that have the same range."""
