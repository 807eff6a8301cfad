"""The table of types: what each dtype is called, its width, and how kernels compute with it. A new type is a row here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class NumberKind(StrEnum):
    """What the values of a type are."""

    FLOAT = "float"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BOOL = "bool"


@dataclass(frozen=True)
class NumberType:
    """One dtype: a row of the table.

    Args:
        name: as PyTorch calls it, without `torch.`.
        triton: as Triton calls it.
        bits: its width in memory.
        kind: what its values are.
        largest: its largest finite value.
        computed: the type that kernels compute with its values in, by name; empty for its own.
        summed: the type that its values are summed in, by name; empty for the one that they are computed in.
        accumulator: the type that `tl.dot` adds its products in, by name; empty where `tl.dot` does not take it.
        parts: the type of the parts that its operands are multiplied in, by name; empty where they are multiplied as they are.
        digits: significant bits of a float, the hidden one among them.
        finest: the exponent of two of the smallest float above zero.
        over: what a float beyond the largest becomes.
        method: the method of a tensor that converts to it; empty where lowering knows none.
        atomic: whether programs add to its elements in memory at once.
    """

    name: str
    triton: str
    bits: int
    kind: NumberKind
    largest: float
    computed: str = ""
    summed: str = ""
    accumulator: str = ""
    parts: str = ""
    digits: int = 0
    finest: int = 0
    over: float = math.inf
    method: str = ""
    atomic: bool = False

    @property
    def bytes(self) -> int:
        """Its width in memory; a truth takes one."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """Whether its values are fractions."""
        return self.kind is NumberKind.FLOAT

    @property
    def least(self) -> float:
        """Its smallest finite value."""
        return -self.largest if self.is_float else -self.largest - 1 if self.kind is NumberKind.SIGNED else 0

    @property
    def epsilon(self) -> float:
        """What lies between 1 and the next larger float."""
        return math.ldexp(1.0, 1 - self.digits)

    @property
    def widening(self) -> str:
        """What follows a load in Triton, so that the value has the type that kernels compute in; empty where it has."""
        return f".to({TYPES[self.computed].triton})" if self.computed else ""

    @property
    def rounding(self) -> str:
        """What follows a computed value in Triton, to round it as this type does and compute on."""
        return f".to({self.triton}){self.widening}"

    @property
    def ends(self) -> tuple[str, str]:
        """Numbers that no value lies below, and above, as Triton writes them: a maximum and a minimum begin with them."""
        return ('float("-inf")', 'float("inf")') if self.is_float else (str(self.least), str(self.largest))

    def round(self, number: float) -> float:
        """The value of this type that stands for a number.

        Floats take the nearest, the even one of two; whole numbers cut the fraction off and begin again at the other end.

        Example:
            >>> TYPES["float16"].round(0.1), TYPES["uint8"].round(-1)
            (0.0999755859375, 255)
        """
        if self.is_float:
            return self._round_float(float(number))
        if self.kind is NumberKind.BOOL:
            return bool(number)
        whole, values = int(number), int(2**self.bits)
        return whole % values - values if whole % values > self.largest else whole % values

    def _round_float(self, number: float) -> float:
        if not math.isfinite(number):
            return number
        exponent = max(math.frexp(number)[1] - self.digits, self.finest)
        rounded = math.copysign(math.ldexp(round(math.ldexp(number, -exponent)), exponent), number)
        return rounded if abs(rounded) <= self.largest else math.copysign(self.over, number)


_FLOAT, _SIGNED, _UNSIGNED = NumberKind.FLOAT, NumberKind.SIGNED, NumberKind.UNSIGNED
TYPES = {
    row.name: row
    for row in (
        NumberType("float32", "tl.float32", 32, _FLOAT, 3.4028234663852886e38, accumulator="float32", parts="float16", digits=24,
                   finest=-149, method="float", atomic=True),
        NumberType("float16", "tl.float16", 16, _FLOAT, 65504.0, computed="float32", accumulator="float32", digits=11, finest=-24,
                   method="half"),
        NumberType("bfloat16", "tl.bfloat16", 16, _FLOAT, 3.3895313892515355e38, computed="float32", accumulator="float32", digits=8,
                   finest=-133, method="bfloat16"),
        NumberType("float64", "tl.float64", 64, _FLOAT, 1.7976931348623157e308, digits=53, finest=-1074, method="double", atomic=True),
        NumberType("bool", "tl.int1", 8, NumberKind.BOOL, 1, summed="int32", method="bool"),
        NumberType("uint8", "tl.uint8", 8, _UNSIGNED, 2**8 - 1),
        NumberType("int8", "tl.int8", 8, _SIGNED, 2**7 - 1),
        NumberType("int16", "tl.int16", 16, _SIGNED, 2**15 - 1),
        NumberType("int32", "tl.int32", 32, _SIGNED, 2**31 - 1, method="int", atomic=True),
        NumberType("int64", "tl.int64", 64, _SIGNED, 2**63 - 1, method="long", atomic=True),
    )
}  # fmt: skip
"""By name; of two whole numbers the later one is what both together give."""
FLOATS = tuple(name for name, row in TYPES.items() if row.is_float)
SHORT = ("int8", "uint8", "int16")
"""Whole numbers of fewer bits than Triton gives to a literal."""
WHOLE = tuple(name for name, row in TYPES.items() if not row.is_float)
"""Truths and whole numbers, in the order of the table."""
TRITON_TYPES = {name: row.triton for name, row in TYPES.items()}
BYTES = {name: row.bytes for name, row in TYPES.items()}
MATRICES = tuple(name for name, row in TYPES.items() if row.accumulator)
"""Types of operands that `tl.dot` takes and adds up exactly enough; products of others are sums along rows, or PyTorch's."""
IN_PARTS = tuple(name for name in MATRICES if TYPES[name].parts)
"""Those that are multiplied in parts, unless a class of precision allows fewer digits."""
AS_THEY_ARE = tuple(name for name in MATRICES if not TYPES[name].parts)
"""Those that tensor cores multiply at their full rate."""
ATOMIC = tuple(name for name, row in TYPES.items() if row.atomic)
"""Types in which programs add to one element at once."""
CASTS = {row.method: name for name, row in TYPES.items() if row.method}
"""What methods of a tensor convert to."""
PLAIN = "float32"
"""What PyTorch makes a tensor of where nothing says another type, and what kernels compute in."""
WORKED = tuple(name for name in FLOATS if name == PLAIN or TYPES[name].computed == PLAIN)
"""Types that kernels load and compute with in fp32."""
PART = TYPES[PLAIN].parts
"""The type of the parts of its operands."""


def widen(dtype: str) -> str:
    """The type in which kernels compute with values of a type."""
    return TYPES[dtype].computed or dtype if dtype in TYPES else dtype


def find_sum_type(dtype: str) -> str:
    """The type in which values of a type are summed and compared along a row."""
    return TYPES[dtype].summed or widen(dtype)


def join_types(dtypes: list[str]) -> str:
    """The type of a formula of such values: the widest float, where two of a width differ the one that both are computed in.

    Whole numbers among floats do not count. Raises ValueError for an empty list.
    """
    floats = {dtype for dtype in dtypes if dtype in FLOATS}
    if not floats:
        return max(dtypes, key=WHOLE.index)
    widest = max(TYPES[dtype].bits for dtype in floats)
    wide = {dtype for dtype in floats if TYPES[dtype].bits == widest}
    return wide.pop() if len(wide) == 1 else widen(min(wide))
