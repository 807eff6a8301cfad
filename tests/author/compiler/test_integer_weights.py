"""Products of few rows compute weights of 8 and 4 bits as they read them: one kernel, as accurate as the module's own product."""

import asyncio

import pytest

from recipe_cases.reading import change_card, describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import CardModel, model_card
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.kernels.product_tiles import ProductTile, choose_tile
from tritonsmith.author.compiler.plan import RegionPlan, read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import Status

OWN = model_card(CARDS["h200"])
CALLS = change_card(products={"integers": (1e-9, 0.0)})
"""A card on which such kernels are slow."""


def hold(shape: str, scale: str = "", zero: str = "", dtype: str = "int8", least: int = -127, half: str = "bfloat16") -> str:
    """Lines of a constructor with weights, scales and zero points of these shapes."""
    lines = [f"self.register_buffer('q', torch.randint({least}, {255 if dtype == 'uint8' else 127}, ({shape}), dtype=torch.{dtype}))"]
    lines += [f"self.s=nn.Parameter((torch.rand({scale})*0.01).to(torch.{half}))"] if scale else []
    lines += [f"self.register_buffer('z', torch.randint(0, 15, ({zero}), dtype=torch.uint8))"] if zero else []
    return "; ".join(lines)


def rows(shape: str, half: str = "bfloat16") -> str:
    return f"torch.randn({shape}).to(torch.{half})"


PACKED = "w=torch.stack([self.q & 15, self.q >> 4], -1).flatten(1)"
HALVES = "w=torch.cat([self.q & 15, self.q >> 4], 1).to(torch.int8) - 8"
CASES = {
    "by group": RegionCase(
        "", "w=self.q.unflatten(1, (8, 64)).to(x.dtype)*self.s[:, :, None].to(x.dtype); return F.linear(x, w.flatten(1))",
        rows("5, 512"), hold("40, 512", "40, 8"),
    ),
    "by row ahead of the product": RegionCase(
        "", "return torch.relu(F.linear(x, (self.q.float()*self.s.float()[:, None]).to(x.dtype)))", rows("17, 96"), hold("48, 96", "48"),
    ),
    "by row behind the product": RegionCase(
        "", "return F.linear(x, self.q.to(x.dtype))*self.s + 1", rows("3, 1, 256", "float16"), hold("32, 256", "32", half="float16"),
    ),
    "4 bits with zero points": RegionCase(
        "", f"{PACKED}.unflatten(1, (4, 64)); w=(w.to(x.dtype)-self.z[:, :, None].to(x.dtype))*self.s[:, :, None]; "
        "return F.linear(x, w.flatten(1))", rows("2, 256"), hold("32, 128", "32, 4", "32, 4", "uint8", 0),
    ),
    "4 bits in halves": RegionCase(
        "", f"{HALVES}; w=w.unflatten(1, (8, 32)).to(x.dtype)*self.s[:, :, None]; return x @ w.flatten(1).t()",
        rows("1, 256"), hold("33, 128", "33, 8", "", "uint8", 0),
    ),
    "one chunk, and a depth that no warps share evenly": RegionCase(
        "", "return F.linear(x, self.q.to(x.dtype)*self.s)", rows("40, 48"), hold("20, 48", "20, 1"),
    ),
    "one tensor of scales and offsets": RegionCase(
        "", "w=(self.q.unflatten(1, (8, 64)).to(x.dtype)-self.s[:, :, None])*self.s[:, :, None]; return F.linear(x, w.flatten(1))",
        rows("8, 512"), hold("64, 512", "64, 8", "", "uint8", 0),
    ),
    "shifts by a tensor": RegionCase(
        "", "w=((self.q[:, :, None] >> torch.tensor([0, 4], device=x.device)) & 15).flatten(1).unflatten(1, (4, 64)); "
        "return F.linear(x, ((w.to(x.dtype)-8)*self.s[:, :, None]).flatten(1))", rows("8, 256"), hold("64, 128", "64, 4", "", "uint8", 0),
    ),
    "scales that are no factor": RegionCase(
        "", "w=self.q.unflatten(1, (2, 32)).to(x.dtype)*self.s[:, :, None] + self.s[:, :1, None]; return F.linear(x, w.flatten(1))",
        rows("4, 64"), hold("32, 64", "32, 2"),
    ),
}  # fmt: skip
QUICK = ("by group", "4 bits with zero points", "4 bits in halves")


def read_plan(case: RegionCase, card: CardModel = OWN) -> RegionPlan:
    return read_regions(*describe_case(case), card)


def choose_tiles(plan: RegionPlan) -> list[ProductTile]:
    settings = REGIONS.recipes[0].defaults(plan, plan.card.hardware, plan.precision)
    assert settings is not None
    return [choose_tile(one, settings) for one in plan.regions if isinstance(one, ProductRegion)]


@pytest.mark.parametrize(("name", "profile"), [
    *((name, "quick") for name in QUICK), *(pytest.param(name, "strict", marks=pytest.mark.slow) for name in CASES),
])  # fmt: skip
def test_one_kernel_is_as_accurate_as_the_module(evaluator: LocalEvaluator, name: str, profile: str) -> None:
    task, facts = describe_case(CASES[name])
    plan = read_regions(task, facts, OWN)
    recipe = REGIONS.recipes[0]
    settings = recipe.defaults(plan, OWN.hardware, plan.precision)
    assert settings is not None and not plan.calls and len(plan.regions) == 1
    text = recipe.render(plan, settings)
    assert "tl.dot(weights" in text and text.count("@triton.jit") == 1
    verdict = asyncio.run(evaluator.evaluate(task, text, profile))
    assert verdict.status is Status.OK, verdict.message


def test_what_lies_in_one_byte_is_read_once() -> None:
    """Both weights of a byte, in either order of packing; scales are read a step ahead."""
    for name in ("4 bits with zero points", "4 bits in halves"):
        plan = read_plan(CASES[name])
        settings = REGIONS.recipes[0].defaults(plan, OWN.hardware, plan.precision)
        assert settings is not None
        loop = REGIONS.recipes[0].render(plan, settings).partition("for first in")[2].partition("tl.store")[0]
        assert loop.count("tl.load(q_ptr") == 1 and loop.count("tl.dot(") == 2


@pytest.mark.parametrize(("count", "card", "own"), [
    (64, OWN, True), (65, OWN, False), (16, model_card(CARDS["a100"]), False), (16, CALLS, False),
])  # fmt: skip
def test_rows_and_cards_decide(count: int, card: CardModel, own: bool) -> None:
    """Few rows, a card on which this was measured, and the predicted times."""
    case = RegionCase("", "return F.linear(x, self.q.to(x.dtype))*self.s", rows(f"{count}, 256"), hold("4096, 256", "4096"))
    plan = read_plan(case, card)
    assert any(tile.integers for tile in choose_tiles(plan)) is own


def test_tiles_leave_room_for_loads_that_are_on_their_way() -> None:
    """A warp has a chunk of the depth by itself, and programs are about as many as processors."""
    case = RegionCase(
        "", "w=self.q.unflatten(1, (32, 128)).to(x.dtype)*self.s[:, :, None].to(x.dtype); return F.linear(x, w.flatten(1))",
        rows("16, 4096"), hold("4096, 4096", "4096, 32"),
    )  # fmt: skip
    (tile,) = choose_tiles(read_plan(case))
    assert (tile.rows, tile.columns, tile.depth, tile.chunks, tile.warps, tile.stages) == (16, 32, 128, 4, 4, 4)
    assert tile.shared_bytes <= OWN.hardware.shared_per_block


def test_weights_of_16_bits_stay_as_they_are() -> None:
    plan = read_plan(RegionCase("", "return F.gelu(self.l(x))", rows("16, 64"), "self.l=nn.Linear(64, 64).bfloat16()"))
    assert not any(tile.integers for tile in choose_tiles(plan))
