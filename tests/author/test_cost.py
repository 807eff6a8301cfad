"""What the one cost model says of launches, bytes, products and steps; it agrees with the evaluator's formulas."""

import pytest

from tritonsmith.author.cards.model import FIRST, model_card
from tritonsmith.author.cost import (
    Way,
    bound_product,
    choose_way,
    count_l2_rate,
    time_bytes,
    time_inner_launches,
    time_launches,
    time_library,
    time_operators,
    time_product,
    time_rounds,
)
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.cards.estimate import L2_BYTES_PER_CLOCK, ROUND
from tritonsmith.evaluator.cards.floors import Rates, list_bounds
from tritonsmith.evaluator.cards.launch_cost import count_host_seconds, count_launch_seconds
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import PrecisionClass, TaskFacts


@pytest.mark.parametrize(
    ("dtype", "precision", "way"),
    [
        ("float32", PrecisionClass.IEEE, Way.PARTS),
        ("float32", PrecisionClass.SPLIT, Way.PARTS),
        ("float32", PrecisionClass.TF32, Way.TF32),
        ("bfloat16", PrecisionClass.IEEE, Way.HALF),
        ("float16", PrecisionClass.HALF, Way.HALF),
    ],
)
def test_the_way_to_multiply_follows_from_type_and_class(dtype: str, precision: PrecisionClass, way: Way) -> None:
    assert choose_way(dtype, precision) is way


def test_launches_cost_what_the_evaluator_counts() -> None:
    assert time_launches(3) + time_operators(2) == pytest.approx(count_host_seconds(3, 2))
    assert time_launches(7, replayed=True) == pytest.approx(count_launch_seconds(7, in_graph=True))
    assert time_launches() > time_launches(replayed=True) and time_inner_launches(2) == pytest.approx(2 * time_inner_launches(1))


@pytest.mark.parametrize("key", CARDS)
def test_bytes_and_products_are_bound_as_floors_have_it(key: str) -> None:
    card, facts = model_card(CARDS[key]), TaskFacts(flops=6e9)
    assert time_bytes(card, card.hardware.bandwidth) == 1.0
    for dtype, precision in (("float32", PrecisionClass.IEEE), ("float16", PrecisionClass.HALF)):
        floor = list_bounds(facts, Rates.of(card.hardware), precision)["operations"]
        assert bound_product(card, 6e9, dtype) * 1e3 == pytest.approx(floor)


def test_few_programs_move_bytes_at_their_own_rate() -> None:
    few = count_l2_rate(FIRST)
    assert few == L2_BYTES_PER_CLOCK.middle * FIRST.hardware.clock_hz < FIRST.hardware.bandwidth
    assert time_bytes(FIRST, 1e6, few) == pytest.approx(1e6 / few) and time_bytes(FIRST, 1e6, 1e15) == time_bytes(FIRST, 1e6)


def test_a_product_takes_its_operations_over_a_share_of_the_rate() -> None:
    for way, rate in ((Way.TF32, FIRST.hardware.tf32), (Way.HALF, FIRST.hardware.fp16), (Way.THREADS, FIRST.hardware.fp32)):
        assert time_product(FIRST, rate, way, 0.5) == pytest.approx(2.0)
    assert time_product(FIRST, 1e12, Way.PARTS) == pytest.approx(3 * time_product(FIRST, 1e12, Way.HALF))


def test_steps_and_libraries_are_those_of_the_estimate() -> None:
    assert time_rounds(10) == pytest.approx(10 * ROUND.middle)
    product = OperatorCost("aten.mm", 1, 1e12, 1e6)
    assert time_library(FIRST, []) == 0.0
    assert time_library(FIRST, [product]) > time_product(FIRST, 1e12, Way.THREADS)
    assert time_library(FIRST, [product, product]) == pytest.approx(2 * time_library(FIRST, [product]))
