"""What kernels and a library's calls are predicted to take, and how often rows are read, by the card."""

import pytest

from recipe_cases.reading import change_card, describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST, CardModel, model_card
from tritonsmith.author.compiler.fusing.calls import (
    leaves_all_to_library,
    list_layers,
    list_products,
    predict_steps,
    prefers_library,
)
from tritonsmith.author.compiler.fusing.regions import (
    CallRegion,
    PointwiseRegion,
    ProductRegion,
    RecurrentRegion,
    RowRegion,
    WorkRegion,
    count_long_passes,
    count_passes,
    list_places,
)
from tritonsmith.author.compiler.plan import read_regions
from tritonsmith.evaluator.cards.cards import CARDS

LAYER = RegionCase("layer", "return self.c(x)[0]", "torch.zeros(12, 100, 16)", init="self.c = nn.GRU(16, 32)")


def cut(case: RegionCase, card: CardModel = FIRST) -> tuple[WorkRegion, ...]:
    return read_regions(*describe_case(case), card).regions


def rows_of(forward: str, inputs: str) -> RowRegion:
    (region,) = (region for region in cut(RegionCase("rows", forward, inputs)) if isinstance(region, RowRegion))
    return region


def test_a_layer_takes_a_wave_of_sequences_for_each_time_the_card_is_full() -> None:
    (region,) = (region for region in cut(LAYER) if isinstance(region, RecurrentRegion))
    whole = predict_steps(region)
    region.card = change_card(hardware={"processors": 50})
    assert predict_steps(region) == pytest.approx(2 * whole) and list_layers([region]) == {region.recurrence.node: 12}
    assert not prefers_library(region)
    region.card = change_card(families={"step": 1e-3})
    assert prefers_library(region)


LINEAR = RegionCase("linear", "return torch.relu(self.c(x))", "torch.zeros(4096, 4096)", init="self.c = nn.Linear(4096, 4096)")


def test_a_library_does_it_all_where_calls_take_nearly_all_of_the_time() -> None:
    """A pass over the result is a fourteenth of the time where memory is slow beside threads, and an eightieth where it is fast."""
    small = model_card(CARDS["rtx4090"])
    regions, products = cut(LINEAR, small), list_products(cut(LINEAR))
    assert [type(region) for region in regions] == [CallRegion, PointwiseRegion] and len(products) == 1
    assert not leaves_all_to_library(regions, products, {}, small)
    assert leaves_all_to_library(regions, products, {}, FIRST)
    assert not leaves_all_to_library(regions[1:], products, {}, FIRST), "without a call there is no library"


def test_a_slow_kernel_stays_where_calls_would_leave_nothing() -> None:
    slow = change_card(products={"ahead": 1e-3, "in_loop": 1e-3})
    assert [type(region) for region in cut(LINEAR, slow)] == [ProductRegion]


@pytest.mark.parametrize(
    ("forward", "passes", "places"),
    [("return x.sum(-1)", 1, 0), ("return x.softmax(-1)", 2, 1), ("return x - x.mean(-1, keepdim=True)", 2, 1)],
)
def test_rows_are_read_again_where_their_numbers_are_used(forward: str, passes: int, places: int) -> None:
    region = rows_of(forward, "torch.zeros(64, 20000)")
    assert count_passes(region) == passes == count_long_passes(region) and len(list_places(region)) == places
    region.card = change_card(hardware={"registers_per_processor": 131072})
    assert count_long_passes(region) == 1, "a processor of twice the registers keeps such a row"
