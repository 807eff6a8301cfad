"""The cut follows the card: the same forward has other regions where another cut is faster."""

import pytest

from recipe_cases.reading import change_card, describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST, CardModel, model_card
from tritonsmith.author.compiler.fusing.calls import choose_sides, fill, predict_call, predict_kernel
from tritonsmith.author.compiler.fusing.regions import (
    CallRegion,
    ProductRegion,
    RowRegion,
    WorkRegion,
    depends,
    order_regions,
)
from tritonsmith.author.compiler.kernels.product_tiles import choose_tile
from tritonsmith.author.compiler.plan import read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import PrecisionClass

H200, A100, RTX4090 = (model_card(CARDS[key]) for key in ("h200", "a100", "rtx4090"))
LINEAR = RegionCase("linear", "return torch.relu(self.c(x))", "torch.zeros(2048, 2048)", init="self.c = nn.Linear(2048, 2048)")
NORM = RegionCase(
    "norm", "return self.n(self.c(x))", "torch.zeros(8, 32, 160, 160)",
    init="self.c = nn.Conv2d(32, 32, 3, padding=1); self.n = nn.InstanceNorm2d(32)",
)  # fmt: skip
"""An image of 26 MB: it stays in 60 MB of L2 until its norm reads it, and not in 40."""


def cut(case: RegionCase, card: CardModel) -> tuple[WorkRegion, ...]:
    return read_regions(*describe_case(case), card).regions


def product_of(case: RegionCase, card: CardModel) -> ProductRegion:
    (region,) = (region for region in cut(case, card) if isinstance(region, ProductRegion))
    return region


@pytest.mark.parametrize(
    ("shape", "cards"),
    [
        ("200, 65536", {H200: True, A100: False}),  # 200 rows keep 108 processors busy, and not 132
        ("64, 40000", {H200: False, A100: True}),  # a slower processor takes longer than a launch for such a row
    ],
)
def test_rows_are_split_where_they_are_too_few_and_too_long_for_the_card(shape: str, cards: dict[CardModel, bool]) -> None:
    for card, split in cards.items():
        (region,) = cut(RegionCase("rows", "return x.sum(-1)", f"torch.zeros({shape})"), card)
        assert isinstance(region, RowRegion) and region.split is split and region.card is card


def test_a_product_stays_a_call_where_threads_are_as_fast_as_tensor_cores() -> None:
    """A card with 83 TFLOP/s of fp32 and 165 of fp16 gains nothing by three products of parts."""
    assert [type(region) for region in cut(LINEAR, H200)] == [ProductRegion]
    assert isinstance(cut(LINEAR, RTX4090)[0], CallRegion)
    region = product_of(LINEAR, H200)
    assert predict_kernel(region, PrecisionClass.IEEE) < predict_call(region, PrecisionClass.IEEE)
    region.card = RTX4090
    assert predict_kernel(region, PrecisionClass.IEEE) > predict_call(region, PrecisionClass.IEEE)


def test_a_norm_is_begun_on_the_tile_where_the_image_leaves_the_cache() -> None:
    assert not product_of(NORM, H200).tiled
    assert [anchor.kind for anchor in product_of(NORM, A100).tiled] == ["moments"]


def test_a_tile_is_no_larger_than_keeps_all_processors_busy() -> None:
    product = product_of(LINEAR, H200).product
    few, many = (change_card(hardware={"processors": count}) for count in (64, 1024))
    assert choose_sides(product, 128, 128, few) == (128, 128)
    assert choose_sides(product, 128, 128, many) == (64, 64)
    assert [fill(size) for size in (1, 16, 17, 128)] == [16, 16, 32, 128]


def test_regions_run_behind_what_they_read() -> None:
    first, second = cut(RegionCase("two", "return (x / x.sum(-1, keepdim=True)).cumsum(0)", "torch.zeros(8, 9)"), FIRST)
    homes = {id(value): region for region in (first, second) for value in region.stores}
    assert order_regions([second, first], homes) == [first, second]
    assert depends(second, first, homes) and not depends(first, second, homes)


@pytest.mark.parametrize("card", [H200, A100, RTX4090], ids=lambda card: card.hardware.key)
def test_plain_tiles_fit_the_shared_memory_of_the_card(card: CardModel) -> None:
    """The loop over three stages of 128 x 128 x 64 values takes 196,608 bytes, which an H200 has and others have not."""
    case = RegionCase("batched", "return torch.relu(x @ y)", "torch.zeros(8, 512, 4096), torch.zeros(8, 4096, 512)", arguments="x, y")
    task, facts = describe_case(case)
    plan = read_regions(task, facts, change_card(card, calls={"matrix": 0.1}))
    settings = REGIONS.recipes[0].defaults(plan, card.hardware, task.precision)
    (region,) = plan.regions
    assert settings is not None and isinstance(region, ProductRegion)
    tile = choose_tile(region, settings)
    assert tile.shared_bytes <= card.shared_per_block and (tile.stages == 3) is (card is H200)
