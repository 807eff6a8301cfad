"""The card as the author sees it: a model of every card, fits of a known kind, and a rule for others."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from tritonsmith.author.book import match
from tritonsmith.author.cards.fits import FITS, HOPPER, Fits, choose_fits
from tritonsmith.author.cards.model import FIRST, model_card
from tritonsmith.author.families.convnet.recipes import CONVNET
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Hardware, Stage, Task

LADDER = """
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        return {forward}

def get_inputs():
    import torch
    return [torch.randn({shape})]

def get_init_inputs():
    return []
"""
FAMILIES = {
    "pointwise": ("pass", "x * 2 + 1", "4, 6"),
    "product": ("self.a = nn.Linear(32, 24)", "self.a(x)", "8, 32"),
    "recurrent": ("self.a = nn.GRU(16, 32)", "self.a(x)[0]", "5, 2, 16"),
    "convnet": ("self.a = nn.Conv2d(8, 8, 3)", "self.a(x).relu()", "2, 8, 9, 9"),
    "regions": ("pass", "x.softmax(-1)", "4, 6"),
}


def list_figures(fits: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a record of records, by its path."""
    for field in fields(fits):
        value = getattr(fits, field.name)
        if is_dataclass(value):
            yield from list_figures(value, f"{path}{field.name}.")
        elif not isinstance(value, str):
            figures = value if isinstance(value, tuple) else (value,)
            yield from ((f"{path}{field.name}{number or ''}", figure) for number, figure in enumerate(figures))


def mix(one: Hardware, other: Hardware) -> Hardware:
    """A card that nobody has measured, whose figures lie halfway between those of two others."""
    names = ("processors", "l2_bytes", "bandwidth", "fp32", "tf32", "fp16", "clock_hz")
    middle = {name: math.sqrt(getattr(one, name) * getattr(other, name)) for name in names}
    whole = {name: round(middle[name]) for name in ("processors", "l2_bytes")}
    return one.model_copy(update={**middle, **whole, "key": "between", "name": "between", "capability": 86})


@pytest.mark.parametrize("key", CARDS)
def test_every_card_of_the_table_has_a_model(key: str) -> None:
    card = model_card(CARDS[key])
    assert card is model_card(CARDS[key]) and card.hardware.key == key
    assert all(figure >= 0 for _, figure in list_figures(card.fits))
    assert card.even_processors % 32 == 0 and 0 < card.even_processors <= card.processors
    assert 2 * (card.pair_shared + 1024) <= card.shared and card.kept_bytes < card.cached_bytes < card.lost_bytes
    assert card.count_resident(shared=card.shared, warps=4, registers=255) == 1
    assert card.count_resident(shared=0, warps=4, registers=128) == 4


def test_the_card_that_was_measured_has_the_fits_of_its_table() -> None:
    assert FITS[FIRST.hardware.capability] is HOPPER
    assert FIRST.hardware.key == HOPPER.fitted_on and FIRST.fits == HOPPER


def test_another_card_of_a_known_kind_keeps_what_is_relative() -> None:
    h100 = model_card(CARDS["h100"])
    assert h100.fits.kind == "Hopper" and h100.fits.tiles == HOPPER.tiles and h100.fits.calls == HOPPER.calls
    slower = CARDS["h200"].bandwidth / CARDS["h100"].bandwidth
    assert h100.fits.products.scattered == pytest.approx(HOPPER.products.scattered * slower)
    assert h100.fits.products.stored == pytest.approx(HOPPER.products.stored), "as many processors at one clock"


def test_the_rule_gives_a_measured_card_its_own_shares() -> None:
    """The rule is anchored: only ways that were measured are left out."""
    unknown = dict(list_figures(choose_fits(CARDS["h200"].model_copy(update={"capability": 86}))))
    measured = dict(list_figures(HOPPER))
    ways = {"tiles.low_rows", "tiles.few_steps", "tiles.few_channels", "tiles.low_registers", "tiles.third_registers",
            "tiles.once_filters", "tiles.once_filters1", "tiles.once_sums", "rows.wider", "rows.long", "rows.apart",
            "products.integers", "products.integers1", "products.matrix_described", "products.matrix_split", "products.gated",
            "products.window_described"}  # fmt: skip
    assert {name for name in measured if unknown[name] != pytest.approx(measured[name], rel=1e-9, abs=0)} == ways


@pytest.mark.parametrize("pair", [("a100", "rtx4090"), ("a100", "h200"), ("h200", "rtx4090")])
def test_an_unknown_card_lies_between_its_neighbours(pair: tuple[str, str]) -> None:
    one, other = (CARDS[key].model_copy(update={"capability": 86}) for key in pair)
    low, high, between = (dict(list_figures(choose_fits(card))) for card in (one, other, mix(one, other)))
    for name, figure in between.items():
        least, most = sorted((low[name], high[name]))
        assert least * 0.99 - 1 * isinstance(figure, int) <= figure <= most * 1.01 + 1 * isinstance(figure, int), name


def test_slower_tensor_cores_are_used_better() -> None:
    """A processor whose tensor cores do less in a clock waits less for what threads prepare."""
    found: dict[str, Fits] = {key: model_card(CARDS[key]).fits for key in ("h200", "a100", "rtx4090")}
    shares = [found[key].products.in_loop for key in ("h200", "a100", "rtx4090")]
    assert shares == sorted(shares) and shares[-1] < 1.0 and found["a100"].kind == "by rule"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_plan_knows_its_card(name: str) -> None:
    init, forward, shape = FAMILIES[name]
    task = Task(name="a_task", path="a_task.py", source=LADDER.format(init=init, forward=forward, shape=shape))
    facts, _ = probe(task)
    for key in ("h200", "a100"):
        found = match(task, facts, CARDS[key])
        assert found is not None and found.plan.card is model_card(CARDS[key])
        assert any(recipe.name.startswith(name) for recipe in found.recipes)


def test_a_search_counts_programs_by_the_card() -> None:
    recipe, plan = CONVNET.recipes[-1], CONVNET.example.plan
    for key, programs in (("h200", (132, 264, 528)), ("a100", (108, 216, 432))):
        asked = plan.model_copy(update={"card": model_card(CARDS[key])})
        assert recipe.list_tunables(asked, Stage.TUNE_GRID)["programs"] == programs
