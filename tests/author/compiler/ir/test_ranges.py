"""Ranges of whole numbers: what they say holds for every number, and no tree of operators leaves them."""

import itertools
import random

import pytest

from tritonsmith.author.compiler.ir.indices import variable
from tritonsmith.author.compiler.ir.operators import A, B, Constant, Operator, Tree
from tritonsmith.author.compiler.ir.ranges import Known, Range, Ranges, Steps, add_up, limit
from tritonsmith.author.compiler.ir.values import AnchorResult, Formula, Held, Position, Reduction


def cut_off(a: int, b: int) -> int:
    """A quotient that is rounded towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


ARITHMETIC = {
    Operator.ADD: lambda a, b: a + b, Operator.SUB: lambda a, b: a - b, Operator.MUL: lambda a, b: a * b, Operator.NEG: lambda a: -a,
    Operator.ABS: abs, Operator.QUOTIENT: cut_off, Operator.REMAINDER: lambda a, b: a - b * cut_off(a, b),
    Operator.FLOOR_QUOTIENT: lambda a, b: a // b, Operator.FLOOR_REMAINDER: lambda a, b: a % b, Operator.AND: lambda a, b: a & b,
    Operator.OR: lambda a, b: a | b, Operator.XOR: lambda a, b: a ^ b, Operator.INVERT: lambda a: ~a,
    Operator.SHIFT_LEFT: lambda a, b: a << b, Operator.SHIFT_RIGHT: lambda a, b: a >> b, Operator.MAXIMUM: max, Operator.MINIMUM: min,
}  # fmt: skip
DIVISIONS = (Operator.QUOTIENT, Operator.REMAINDER, Operator.FLOOR_QUOTIENT, Operator.FLOOR_REMAINDER)
SHIFTS = (Operator.SHIFT_LEFT, Operator.SHIFT_RIGHT)


def place(most: int) -> Known:
    return Known("int64", 32, Range(0, most))


@pytest.mark.parametrize("operator", ARITHMETIC, ids=lambda operator: operator.name)
def test_no_number_leaves_the_range_of_an_operator(operator: Operator) -> None:
    numbers = random.Random(3)
    for _ in range(150):
        spans = [Range(*sorted(numbers.choices(range(-9, 10), k=2))) for _ in range(2)]
        if operator in SHIFTS:
            spans[1] = Range(*sorted(numbers.choices(range(5), k=2)))
        operands = [Known("int64", 64, span) for span in spans[: operator.arity]]
        found = Steps().follow(operator(*[A, B][: operator.arity]), operands).range
        assert found is not None
        for values in itertools.product(*(range(span.low, span.high + 1) for span in spans[: operator.arity])):
            if operator not in DIVISIONS or values[1]:
                assert found.low <= ARITHMETIC[operator](*values) <= found.high, (spans, values)


@pytest.mark.parametrize(
    ("tree", "most", "short"),
    [
        (A * 100003, 21474, False),
        (A * 100003, 21475, True),
        (A * 100003 % 1009, 30000, True),
        (A % 1009 * 1000003, 10**9, False),
        (A + 3000000000, 3, True),
        (A < Constant(3000000000), 3, True),
        (A < Constant(2147483647), 3, False),
        (Operator.WHERE(A < 5, A, -3000000000), 3, True),
        (1 + A.to("int64") * 10**12, 3, False),
        ((A << 20) * 2, 1023, False),
        ((A << 20) * 2, 1024, True),
        (Constant(1) << A, 31, True),
        (-A - 2147483647, 1, False),
        (-A - 2147483647, 2, True),
    ],
    ids=str,
)
def test_places_need_64_bits_from_the_number_on_that_leaves_32(tree: Tree, most: int, short: bool) -> None:
    steps = Steps()
    steps.follow(tree, [place(most)])
    assert steps.short is short


def test_numbers_that_pytorch_has_in_32_bits_begin_again_at_the_other_end() -> None:
    steps = Steps()
    found = steps.follow(A * B, [Known("int32", 32, Range(0, 2**20)), Known("int32", 32, Range(0, 2**20))])
    assert found.range == limit("int32") and steps.left and not steps.short and not steps.wrapped


def test_sums_and_places_of_reductions_have_ranges() -> None:
    count = Position(shape=(5, 300), dtype="int64", index=lambda at: at[1])
    total = Reduction(shape=(5, 300), dtype="int64", source=count, axes=(1,), kind="sum")
    given = Held(shape=(5, 300), dtype="float32", source="x")
    best = Reduction(shape=(5, 300), dtype="float32", source=given, axes=(0, 1), kind="argmax")
    ranges = Ranges()
    assert ranges.find(AnchorResult(shape=(5,), dtype="int64", anchor=total)) == Known("int64", 32, Range(0, 299 * 300))
    assert ranges.find(AnchorResult(shape=(), dtype="int64", anchor=best, which=1)) == Known("int64", 32, Range(0, 1499))
    assert add_up(Range(-2, 3), "prod", 5) == Range(-243, 243) and add_up(Range(2, 3), "sum", 4) == Range(2, 12)


def test_a_long_chain_of_counts_is_followed_without_nesting_calls() -> None:
    value = Position(shape=(4,), dtype="int64", index=lambda at: at[0])
    for _ in range(5000):
        value = Formula(shape=(4,), dtype="int64", expression=A + 1, inputs=(value,))
    assert Ranges().find(value).range == Range(5000, 5003)


def test_an_index_says_how_far_its_quotients_reach() -> None:
    row, column = variable("row", 70000), variable("k", 70000)
    place = row * 70000 + column
    assert place.reach == 70000 and (place // 70001).reach > 2**32 and (place % 70001).reach > 2**32
