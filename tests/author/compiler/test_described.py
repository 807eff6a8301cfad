"""Large products of 16-bit matrices are read by tensor descriptors, in programs that take tiles in turn; others by pointers."""

import asyncio
from dataclasses import replace

import pytest

from recipe_cases.reading import change_card, describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import CardModel, model_card
from tritonsmith.author.compiler.fusing.calls import predict_call, predict_kernel
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.kernels.product_tiles import POINTERS, ProductTile, choose_tile
from tritonsmith.author.compiler.plan import RegionPlan, read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task

FEW = change_card(hardware={"processors": 2}, calls={"matrix": 1e-9})
"""A card on which a few tiles are many, and a library is slow."""
OWN = change_card(calls={"matrix": 1e-9})


def matrices(*shapes: str, dtype: str = "bfloat16") -> str:
    return ", ".join(f"torch.randn({shape}).to(torch.{dtype})" for shape in shapes)


CASES = {
    "whole tiles": RegionCase("", "return self.l(x)", matrices("256, 64"), "self.l=nn.Linear(64, 512, bias=False).bfloat16()"),
    "ragged tiles with work behind": RegionCase(
        "", "return F.gelu(self.l(x), approximate='tanh') + y", matrices("300, 136", "300, 264"),
        "self.l=nn.Linear(136, 264).bfloat16()", "x, y",
    ),
    "columns that no stride takes": RegionCase(
        "", "return torch.relu(x @ y.T)*2", matrices("520, 72", "250, 72", dtype="float16"), arguments="x, y",
    ),
    "a gate": RegionCase(
        "", "return F.silu(self.g(x))*self.u(y)", matrices("260, 64", "260, 64"),
        "self.g=nn.Linear(64, 264).bfloat16(); self.u=nn.Linear(64, 264, bias=False).bfloat16()", "x, y",
    ),
    "a plain right operand": RegionCase("", "return x @ y", matrices("260, 64", "64, 520", dtype="float16"), arguments="x, y"),
    "parts of tensors": RegionCase("", "return x[:, :60] @ y[:60, :516]", matrices("260, 64", "64, 520"), arguments="x, y"),
    "a turned left operand": RegionCase("", "return x.T @ y", matrices("72, 264", "72, 520"), arguments="x, y"),
    "a result of fp32": RegionCase("", "return (x @ y).float() + 1", matrices("260, 64", "64, 520"), arguments="x, y"),
}  # fmt: skip
QUICK = ("a plain right operand",)


def choose_tiles(plan: RegionPlan, **asked: int | str) -> list[ProductTile]:
    settings = REGIONS.recipes[0].defaults(plan, plan.card.hardware, plan.precision)
    assert settings is not None
    return [choose_tile(one, settings | asked) for one in plan.regions if isinstance(one, ProductRegion)]


def read_plan(case: RegionCase, card: CardModel) -> RegionPlan:
    return read_regions(*describe_case(case), card)


@pytest.mark.parametrize("name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in CASES])
def test_what_descriptors_read_is_right(evaluator: LocalEvaluator, name: str) -> None:
    task, facts = describe_case(CASES[name])
    plan = read_regions(task, facts, FEW)
    recipe = REGIONS.recipes[0]
    settings = recipe.defaults(plan, FEW.hardware, plan.precision)
    assert settings is not None and any(one.described for one in choose_tiles(plan))
    text = recipe.render(plan, settings)
    assert "make_tensor_descriptor" in text and "make_tensor_descriptor" not in recipe.render(plan, settings | {"form": POINTERS})
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.slow  # test_batch has products for every declared size judged
def test_a_kernel_takes_any_rows(evaluator: LocalEvaluator) -> None:
    """Rows that no descriptor knows ahead: their number is an argument."""
    case = RegionCase("", "return F.gelu(self.l(x))", "torch.randn(rows, 64).bfloat16()", "self.l=nn.Linear(64, 264).bfloat16()")
    source = f"rows = 300\nSHAPES = [{{'rows': 400}}, {{'rows': 20}}]\n{case.source()}"
    task = Task(name="a_task", path="a_task.py", source=source)
    facts, _ = probe(task)
    task = task.model_copy(update={"precision": facts.precision})
    plan = read_regions(task, facts, FEW)
    settings = REGIONS.recipes[0].defaults(plan, FEW.hardware, plan.precision)
    assert settings is not None
    text = REGIONS.recipes[0].render(plan, settings)
    assert "tl.make_tensor_descriptor(x_ptr, [rows, 64]" in text
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.parametrize(("forward", "inputs"), [
    ("return x @ w", matrices("600, 64", "64, 515")), ("return x @ w.T", matrices("600, 63", "520, 63")),
    ("return torch.relu(x) @ w", matrices("600, 64", "64, 520")), ("return x @ w", matrices("2, 600, 64", "2, 64, 520")),
    ("return x @ w", matrices("100, 64", "64, 520")),
])  # fmt: skip
def test_other_products_are_read_by_pointers(forward: str, inputs: str) -> None:
    """Strides that are no multiple of 16 bytes, operands that are computed, batches, and few tiles."""
    tiles = choose_tiles(read_plan(RegionCase("", forward, inputs, arguments="x, w"), FEW))
    assert tiles and not any(tile.described for tile in tiles)


def test_cards_and_sizes_choose_the_form() -> None:
    """Descriptors are for many tiles, and for cards on which they were measured; few tiles are small and read far ahead."""
    large = RegionCase("", "return self.l(x)", matrices("4096, 4096"), "self.l=nn.Linear(4096, 4096, bias=False).bfloat16()")
    (tile,) = choose_tiles(read_plan(large, OWN))
    assert (tile.described, tile.rows, tile.columns, tile.depth, tile.warps, tile.stages, tile.programs) == (True, 128, 256, 64, 8, 3, 132)
    assert tile.shared_bytes <= OWN.shared_per_block
    assert not choose_tiles(read_plan(large, OWN), form=POINTERS)[0].described
    assert not choose_tiles(read_plan(large, model_card(CARDS["a100"])))[0].described
    few = RegionCase("", "return F.gelu(self.l(x))", matrices("64, 4096"), "self.l=nn.Linear(4096, 4096).bfloat16()")
    (tile,) = choose_tiles(read_plan(few, OWN))
    assert (tile.described, tile.rows, tile.columns, tile.depth, tile.warps, tile.stages) == (False, 64, 64, 128, 4, 4)


def test_a_pass_that_is_saved_decides_between_library_and_descriptors() -> None:
    """Alone a library's product is as fast; with work behind it one pass over the result is saved."""

    def prefers_kernel(forward: str, bias: bool) -> bool:
        init = f"self.l=nn.Linear(4096, 4096, bias={bias}).bfloat16()"
        plan = read_plan(RegionCase("", forward, matrices("4096, 4096"), init), OWN)
        (region,) = (one for one in plan.regions if isinstance(one, ProductRegion))
        card = model_card(CARDS["h200"])
        region = replace(region, card=card)
        return predict_kernel(region, PrecisionClass.HALF) < predict_call(region, PrecisionClass.HALF)

    assert not prefers_kernel("return self.l(x)", False)
    assert prefers_kernel("return F.gelu(self.l(x))", True)


def test_memory_that_begins_anywhere_is_copied() -> None:
    """A descriptor's memory begins at a multiple of 16 bytes; arguments may not, and what forward allocates does."""
    case = RegionCase("", "return F.silu(self.g(x))@w", matrices("300, 64", "264, 264"), "self.g=nn.Linear(64, 264).bfloat16()", "x, w")
    plan = read_plan(case, FEW)
    settings = REGIONS.recipes[0].defaults(plan, FEW.hardware, plan.precision)
    assert settings is not None
    text = REGIONS.recipes[0].render(plan, settings)
    assert "align(x), align(self.g.weight)" in text and "silu, align(w)" in text
