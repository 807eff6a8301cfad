"""Has kernels compute whole numbers in 64 bits where they may not fit in the 32 bits of a kernel's places."""

from __future__ import annotations

from collections.abc import Sequence

from tritonsmith.author.compiler.ir.operators import A, Operand, Operator, Tree, Type, replace_operands
from tritonsmith.author.compiler.ir.ranges import LONG, PLACE, Range, Ranges, Steps, order_values, read_fill
from tritonsmith.author.compiler.ir.values import AnchorResult, Formula, Reduction, Tensor, TensorView
from tritonsmith.author.plan import NoPlan

_SHORT = 32
_GROWING = ("sum", "prod")
"""Reductions and scans whose results may be larger than what they are made of."""
_FROM_ENDS = ("max", "min", "argmax", "argmin")
"""Reductions that begin with an end of the type, which is no number of 32 bits."""


class PlaceWidths:
    """Where places of a forward are brought to 64 bits ahead of arithmetic that may leave 32.

    PyTorch's places are of int64, and those of a kernel of int32. So a sum or a product of them must not leave int32. Arithmetic that
    PyTorch itself does in int32 begins again at the other end, as there.

    Args:
        results: of a forward. Formulas that they are made of are changed.

    Raises NoPlan where a number of the author's own leaves its type.
    """

    def __init__(self, results: Sequence[Tensor]) -> None:
        self.values = order_values(results)
        self.widened: frozenset[int] = frozenset()
        """Numbers of the values whose operands have 64 bits, by their place in order."""
        self._ranges = Ranges()
        self.widen(frozenset())

    def widen(self, wanted: frozenset[int]) -> None:
        """Do it where the sizes of the forward need it, and for further values, as another size needs it."""
        todo = (number for number in range(len(self.values)) if number not in self.widened)
        self.widened |= frozenset([number for number in todo if self._widen_one(self.values[number], number in wanted)])

    def _widen_one(self, value: Tensor, wanted: bool) -> bool:
        """Whether operands of a value are brought to 64 bits."""
        match value:
            case Formula():
                widened = _widen_formula(value, self._ranges, wanted)
            case AnchorResult():
                widened = _widen_anchor(value, self._ranges, wanted)
            case TensorView():
                widened = _widen_view(value, self._ranges, wanted)
            case _:
                widened = False
        if widened:
            self._ranges.forget(value)
        return widened


def widen_alike(forwards: Sequence[PlaceWidths]) -> bool:
    """Bring the same values of one forward at several sizes to 64 bits; gives whether one of them has changed."""
    wanted = frozenset[int]().union(*(one.widened for one in forwards))
    before = [one.widened for one in forwards]
    for one in forwards:
        if wanted - one.widened and len(one.values) == len(forwards[0].values):
            one.widen(wanted)
    return before != [one.widened for one in forwards]


def _widen_formula(value: Formula, ranges: Ranges, wanted: bool) -> bool:
    """Whether operands of a formula are brought to 64 bits."""
    operands = [ranges.find(one) for one in value.inputs]
    if all(one.range is None for one in operands):
        return False
    steps = Steps()
    steps.follow(value.expression, operands)
    if steps.wrapped:
        raise NoPlan((f"places that leave 32 bits in {value.name or 'a formula'}", None))
    places = {place for place, one in enumerate(operands) if one.dtype == LONG and one.bits <= _SHORT}
    if not places or not (steps.short or wanted):
        return False
    leaves: list[Tree] = [Operand(place) for place in range(len(operands))]
    for place in places:
        leaves[place] = Operator.CAST(leaves[place], Type(LONG))
    value.expression = replace_operands(value.expression, leaves)
    return True


def _widen_anchor(value: AnchorResult, ranges: Ranges, wanted: bool) -> bool:
    """Whether what a reduction or a scan is made of is brought to 64 bits."""
    anchor, found = value.anchor, ranges.find(value)
    source = ranges.find(anchor.source)
    if isinstance(anchor, Reduction) and anchor.kind in _FROM_ENDS:
        needed = source.dtype == LONG and source.bits <= _SHORT
    else:
        grows = anchor.kind in _GROWING and value.dtype == LONG and found.bits <= _SHORT
        needed = grows and (wanted or found.range is None or not found.range.fits(PLACE))
    if not needed:
        return False
    anchor.source, anchor.dtype = _widen(anchor.source), LONG
    return True


def _widen_view(value: TensorView, ranges: Ranges, wanted: bool) -> bool:
    """Whether the source of a view is brought to 64 bits, beside a number of more than 32."""
    source, filled = ranges.find(value.source), read_fill(value.fill)
    if value.guard is None or filled is None or source.dtype != LONG or source.bits > _SHORT:
        return False
    if Range(filled, filled).fits(PLACE) and not wanted:
        return False
    value.source = _widen(value.source)
    return True


def _widen(value: Tensor) -> Formula:
    """The value in 64 bits."""
    return Formula(
        shape=value.shape, dtype=LONG, expression=Operator.CAST(A, Type(LONG)), inputs=(value,), flops=0.0, name=value.name
    )  # fmt: skip
