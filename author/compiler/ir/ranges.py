"""What whole numbers of a forward lie between, and how many bits a kernel has them in.

PyTorch counts in int64. Kernels count in int32 where a number follows from places alone, because that is faster. Both agree as long as
every number on the way fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tritonsmith.author.compiler.ir.indices import variable
from tritonsmith.author.compiler.ir.operators import Applied, Constant, Operand, Operator, Tree, Type
from tritonsmith.author.compiler.ir.values import (
    FLOATS,
    AnchorResult,
    Formula,
    Joined,
    Lookup,
    Position,
    Tensor,
    TensorView,
)
from tritonsmith.author.types import TYPES, find_sum_type, join_types

LONG, PLACE = "int64", "int32"
"""The type of PyTorch's places, and of those of kernels."""
_SHORT = 32


@dataclass(frozen=True)
class Range:
    """Whole numbers from `low` to `high`, both among them.

    Example:
        >>> Range(0, 9) * Range(-2, 3)
        Range(low=-18, high=27)
    """

    low: int
    high: int

    def __or__(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Range:
        return Range(-self.high, -self.low)

    def __mul__(self, other: Range) -> Range:
        return _span(a * b for a in (self.low, self.high) for b in (other.low, other.high))

    @property
    def largest(self) -> int:
        """The greatest distance from zero."""
        return max(abs(self.low), abs(self.high))

    def fits(self, dtype: str) -> bool:
        """Whether a type holds all of them."""
        return limit(dtype).low <= self.low and self.high <= limit(dtype).high


def _span(numbers: Iterable[int]) -> Range:
    listed = [*numbers]
    return Range(min(listed), max(listed))


def limit(dtype: str) -> Range:
    """All values of a type of whole numbers."""
    return Range(int(TYPES[dtype].least), int(TYPES[dtype].largest))


BOTH = Range(0, 1)
"""A truth, as a number."""


@dataclass(frozen=True)
class Known:
    """What is known of a value, or of a step of a formula.

    Args:
        dtype: its type in PyTorch; empty for a number that takes the type of what it meets.
        bits: in which a kernel has it, at least; 0 for such a number.
        range: what it lies between; None for fractions.
        ours: whether it follows from a place of a type that the author chose and PyTorch does not have.
    """

    dtype: str
    bits: int
    range: Range | None
    ours: bool = False


FRACTION = Known("float32", _SHORT, None)
_Bounds = Callable[[Sequence[Range]], Range | None]


def _divide(left: Range, right: Range, down: bool) -> Range | None:
    """Quotients; None where the divisor may be zero or has both signs."""
    if right.low <= 0 <= right.high:
        return None
    pairs = [(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    return _span(a // b if down or (a < 0) == (b < 0) or a % b == 0 else a // b + 1 for a, b in pairs)


def _leave(left: Range, right: Range) -> Range:
    """What a quotient leaves that is rounded towards zero: it has the sign of what is divided."""
    most = max(right.largest - 1, 0)
    return Range(-min(most, -left.low) if left.low < 0 else 0, min(most, left.high) if left.high > 0 else 0)


def _leave_down(left: Range, right: Range) -> Range:
    """What a quotient leaves that is rounded down: it has the sign of the divisor."""
    if right.low > 0 and left.low >= 0:
        return _leave(left, right)
    return Range(min(right.low + 1, 0), max(right.high - 1, 0))


def _shift_left(value: Range, by: Range) -> Range | None:
    if not 0 <= by.low <= by.high < 64:
        return None
    return _span(number << count for number in (value.low, value.high) for count in (by.low, by.high))


def _shift_right(value: Range, by: Range) -> Range | None:
    if not 0 <= by.low <= by.high < 64:
        return None
    return _span(number >> count for number in (value.low, value.high) for count in (by.low, by.high))


def _join_bits(left: Range, right: Range) -> Range:
    """`&`, `|` and `^` stay within the bits of their operands."""
    bits = max(number.bit_length() for number in (left.low, left.high, right.low, right.high))
    return Range(0 if left.low >= 0 and right.low >= 0 else -(1 << bits), (1 << bits) - 1)


def _mask(left: Range, right: Range) -> Range:
    known = [one.high for one in (left, right) if one.low >= 0]
    return Range(0, min(known)) if known else _join_bits(left, right)


def _size(value: Range) -> Range:
    return Range(0 if value.low <= 0 <= value.high else min(abs(value.low), abs(value.high)), value.largest)


_BOUNDS: dict[Operator, _Bounds] = {
    Operator.ADD: lambda given: given[0] + given[1],
    Operator.SUB: lambda given: given[0] + -given[1],
    Operator.MUL: lambda given: given[0] * given[1],
    Operator.NEG: lambda given: -given[0],
    Operator.ABS: lambda given: _size(given[0]),
    Operator.GROUP: lambda given: given[0],
    Operator.QUOTIENT: lambda given: _divide(given[0], given[1], False),
    Operator.REMAINDER: lambda given: _leave(given[0], given[1]),
    Operator.FLOOR_QUOTIENT: lambda given: _divide(given[0], given[1], True),
    Operator.FLOOR_REMAINDER: lambda given: _leave_down(given[0], given[1]),
    Operator.AND: lambda given: _mask(given[0], given[1]),
    Operator.OR: lambda given: _join_bits(given[0], given[1]),
    Operator.XOR: lambda given: _join_bits(given[0], given[1]),
    Operator.INVERT: lambda given: Range(~given[0].high, ~given[0].low),
    Operator.SHIFT_LEFT: lambda given: _shift_left(given[0], given[1]),
    Operator.SHIFT_RIGHT: lambda given: _shift_right(given[0], given[1]),
    Operator.MAXIMUM: lambda given: Range(max(given[0].low, given[1].low), max(given[0].high, given[1].high)),
    Operator.MINIMUM: lambda given: Range(min(given[0].low, given[1].low), min(given[0].high, given[1].high)),
    Operator.FMAX: lambda given: Range(max(given[0].low, given[1].low), max(given[0].high, given[1].high)),
    Operator.FMIN: lambda given: Range(min(given[0].low, given[1].low), min(given[0].high, given[1].high)),
    Operator.WHERE: lambda given: given[1] | given[2],
}  # fmt: skip
"""By operator: what its result lies between, by what its arguments lie between; None where anything may come of it."""
_TESTS = (Operator.EQ, Operator.NE, Operator.LT, Operator.LE, Operator.GT, Operator.GE)


class Steps:
    """Follows the steps of formulas. `short` says whether one of them leaves 32 bits where PyTorch has 64 and the kernel does not."""

    def __init__(self) -> None:
        self.short = False
        self.left = False
        """Whether a step leaves its type in PyTorch."""
        self.wrapped = False
        """Whether one that PyTorch does not have leaves its type."""

    def follow(self, tree: Tree, operands: Sequence[Known]) -> Known:
        """What is known of a tree of operators, by what is known of its operands."""
        match tree:
            case Operand(place=place):
                return operands[place]
            case Constant(value=value):
                if isinstance(value, float):
                    return FRACTION
                return Known("bool" if isinstance(value, bool) else "", 0, Range(int(value), int(value)))
            case Applied(operator=Operator.CAST, arguments=(inner, Type(dtype=dtype))):
                return _cast(self.follow(inner, operands), dtype)
            case Applied(operator=operator, arguments=arguments):
                return self._apply(operator, [self.follow(argument, operands) for argument in arguments])
        return FRACTION

    def _apply(self, operator: Operator, given: list[Known]) -> Known:
        values = given[1:] if operator is Operator.WHERE else given
        ranges = [one.range for one in given if one.range is not None]
        if len(ranges) < len(given) and not (operator is Operator.WHERE and all(one.range is not None for one in values)):
            return Known("bool", _SHORT, BOTH) if operator in _TESTS else FRACTION
        dtype, bits = _meet(values)
        if dtype == LONG and bits <= _SHORT and not all(one.range.fits(PLACE) for one in values if one.range is not None):
            self.short = True  # a number beside a place is none of 32 bits
        if operator in _TESTS:
            return Known("bool", _SHORT, BOTH)
        bounds, ours = _BOUNDS.get(operator), any(one.ours for one in values)
        found = bounds(ranges if len(ranges) == len(given) else [BOTH, *ranges]) if bounds is not None else None
        return self._hold(Known(dtype, bits, found, ours))

    def _hold(self, step: Known) -> Known:
        """The step as its type holds it: what leaves the type begins again at the other end."""
        if not step.dtype:
            return step if step.range is not None else FRACTION
        if step.dtype == LONG and step.bits <= _SHORT and (step.range is None or not step.range.fits(PLACE)):
            self.short = True
        if step.range is not None and step.range.fits(step.dtype):
            return step
        self.left = True
        self.wrapped |= step.ours and step.dtype == PLACE
        return replace(step, range=limit(step.dtype))


def _cast(value: Known, dtype: str) -> Known:
    if dtype in FLOATS or dtype not in TYPES:
        return FRACTION
    if value.range is None or not value.range.fits(dtype):
        return Known(dtype, TYPES[dtype].bits, limit(dtype))
    return Known(dtype, TYPES[dtype].bits, BOTH if dtype == "bool" else value.range, value.ours)


def _meet(values: Sequence[Known]) -> tuple[str, int]:
    """The type in which values meet, and the bits of it in a kernel; numbers take those of the others."""
    typed = [one for one in values if one.dtype]
    return (join_types([one.dtype for one in typed]), max(one.bits for one in typed)) if typed else ("", 0)


def order_values(results: Sequence[Tensor], whole: bool = False) -> list[Tensor]:
    """All values that results are made of, each behind its operands.

    whole: only whole numbers and truths, and those that these follow from without a fraction in between.
    """
    ordered: list[Tensor] = []
    seen: set[int] = set()
    todo: list[tuple[Tensor, bool]] = [(one, False) for one in reversed(results)]
    while todo:
        value, done = todo.pop()
        if done:
            ordered.append(value)
        elif id(value) not in seen and not (whole and value.dtype in FLOATS):
            seen.add(id(value))
            todo.append((value, True))
            todo += [(one, False) for one in reversed(value.operands)]
    return ordered


class Ranges:
    """What is known of the values of a forward."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, Known]] = {}

    def find(self, value: Tensor) -> Known:
        """What is known of the elements of a value."""
        if value.dtype in FLOATS:
            return FRACTION
        held = self._known.get(id(value))
        if held is None:
            operands = [one for one in value.operands if id(one) not in self._known]
            for one in [*order_values(operands, whole=True), value]:  # calls that go from operand to operand may nest too deeply
                held = self._known[id(one)] = one, self._find(one)  # a value that is held keeps its id
        assert held is not None
        return held[1]

    def forget(self, value: Tensor) -> None:
        """Find it anew when it is next asked for, because it has changed."""
        self._known.pop(id(value), None)

    def _find(self, value: Tensor) -> Known:
        dtype = value.dtype
        if dtype in FLOATS or dtype not in TYPES:
            return FRACTION
        whole = Known(dtype, TYPES[dtype].bits, limit(dtype))
        match value:
            case Position():
                low, high = value.index(tuple(variable(f"axis_{axis}", size) for axis, size in enumerate(value.shape))).bounds
                return Known(dtype, min(_SHORT, whole.bits), Range(int(low), int(high)), ours=dtype != LONG)
            case Formula():
                return _enter(Steps().follow(value.expression, [self.find(one) for one in value.inputs]), dtype)
            case TensorView():
                return self._look(value)
            case Joined():
                parts = [self.find(part) for part in value.parts]
                return Known(dtype, min(part.bits for part in parts), _unite([part.range for part in parts], dtype))
            case Lookup():
                return self.find(value.table)
            case AnchorResult():
                return self._reduce(value)
        return whole

    def _look(self, value: TensorView) -> Known:
        source = self.find(value.source)
        if value.guard is None or source.range is None:
            return source
        filled = read_fill(value.fill)
        return replace(source, range=limit(value.dtype) if filled is None else source.range | Range(filled, filled))

    def _reduce(self, value: AnchorResult) -> Known:
        anchor, dtype = value.anchor, value.dtype
        length = math.prod(int(anchor.source.shape[axis]) for axis in anchor.axes)
        if value.which == 1:
            return Known(dtype, min(_SHORT, TYPES[dtype].bits), Range(0, max(length - 1, 0)))
        source = self.find(anchor.source)
        if source.range is None or dtype not in TYPES:
            return Known(dtype, TYPES[dtype].bits, limit(dtype))
        found = add_up(source.range, anchor.kind, length)
        if found is None or not found.fits(dtype):
            found = limit(dtype)
        summed = TYPES[find_sum_type(anchor.source.dtype)].bits
        return Known(dtype, min(source.bits if anchor.source.dtype == LONG else summed, TYPES[dtype].bits), found)


def _enter(step: Known, dtype: str) -> Known:
    """What a formula's last step is in the formula's type."""
    bits = min(step.bits or _SHORT, TYPES[dtype].bits)
    if step.range is None or not step.range.fits(dtype):
        return Known(dtype, bits, limit(dtype))
    return Known(dtype, bits, step.range, step.ours)


def _unite(ranges: Sequence[Range | None], dtype: str) -> Range:
    whole: Range | None = None
    for one in ranges:
        if one is None:
            return limit(dtype)
        whole = one if whole is None else whole | one
    return whole or limit(dtype)


def read_fill(fill: Constant) -> int | None:
    """The whole number that stands where a view shows nothing; None where it is none."""
    return int(fill.value) if math.isfinite(fill.value) else None


_MOST_FACTORS = 64
"""Numbers above one of which a product leaves 64 bits."""


def add_up(each: Range, kind: str, length: int) -> Range | None:
    """What a reduction or a scan of numbers lies between; None where anything may come of it.

    Args:
        each: what every number lies between.
        kind: `sum`, `prod`, `max` and so on.
        length: how many there are.

    Example:
        >>> add_up(Range(0, 3), "sum", 10)
        Range(low=0, high=30)
    """
    if kind == "sum":
        return Range(min(each.low, each.low * length), max(each.high, each.high * length))
    if kind == "prod":
        most = each.largest ** min(length, _MOST_FACTORS) if each.largest > 1 else 1
        return Range(-most if each.low < 0 else 0, most)
    if kind in ("any", "all"):
        return BOTH
    return each if kind in ("max", "min", "argmax", "argmin", "sort") else None
