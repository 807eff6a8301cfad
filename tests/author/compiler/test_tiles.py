"""Reductions behind a convolution are done on its tiles, where nothing is computed twice and windows do not overlap."""

import asyncio

import pytest

from recipe_cases.reading import change_card, describe_case, plan_of
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.kernels.product_tiles import choose_tile
from tritonsmith.author.compiler.plan import RegionPlan, read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.schema import Status

CONV, SMALL = "self.c=nn.Conv2d(8, 64, 3)", "torch.randn(2, 8, 20, 20)"
GROUPS = f"{CONV}; self.n=nn.GroupNorm(16, 64); self.s=nn.Parameter(torch.randn(64, 1, 1))"
ON_THE_TILE = {
    "two ways to a pool": RegionCase(
        "", "y=self.c(x); return F.max_pool2d(y*torch.sigmoid(y)+r, 2)+1", f"{SMALL}, torch.randn(2, 64, 18, 18)", CONV, "x, r"
    ),
    "a norm ahead of a pool": RegionCase(
        "", "return F.max_pool2d(self.n(self.c(x))*self.s, 4).clamp(0, 1)", "torch.randn(1, 8, 16, 18)", GROUPS
    ),
    "falling steps ahead of a pool": RegionCase(
        "", "return F.max_pool2d(torch.tanh(3 - self.n(self.c(x))*self.s/-2), 4)", "torch.randn(2, 8, 24, 34)", GROUPS
    ),
    "a mean of all places": RegionCase("", "return F.gelu(self.c(x)).mean((2, 3))", SMALL, CONV),
    "a norm of what is stored": RegionCase("", "return F.silu(self.n(self.c(x)*1000 + 5000))*self.s", "torch.randn(2,8,20,23)", GROUPS),
    "means of volumes": RegionCase(
        "", "return F.avg_pool3d(self.c(x), 2).tanh()", "torch.randn(2, 8, 9, 10, 11)", "self.c=nn.Conv3d(8, 32, 3)"
    ),
    "parts of one result": RegionCase(
        "", "return torch.cat([F.max_pool2d(self.c(x), 2), F.avg_pool2d(self.d(x), 2)], 1)", "torch.randn(2, 16, 18, 18)",
        "self.c=nn.Conv2d(16, 64, 3, padding=1); self.d=nn.Conv2d(16, 32, 5, padding=2)",
    ),
    "groups": RegionCase(
        "", "return F.avg_pool2d(F.silu(self.c(x)), 2)", "torch.randn(2, 64, 14, 14)", "self.c=nn.Conv2d(64, 64, 3, padding=1, groups=2)"
    ),
    "a gate ahead of a pool": RegionCase(
        "", "g=torch.sigmoid(x.mean((2,3),keepdim=True)); return F.max_pool2d(self.c(x)*g, 8)", "torch.randn(2, 64, 18, 18)",
        "self.c=nn.Conv2d(64, 64, 3, padding=1)",
    ),
    "statistics of a batch": RegionCase(
        "", "return F.max_pool2d(torch.tanh(self.n(self.c(x))), 2)", "torch.randn(3, 8, 20, 23)",
        f"{CONV}; self.n=nn.BatchNorm2d(64)", mode="train",
    ),
    "several numbers of one image": RegionCase(
        "", "y=F.relu(self.c(x)); return y.var((2,3)), y.sum((0,2,3)), y.flatten(2).mean(-1), y.amax((1,2,3))", SMALL, CONV
    ),
    "softmax of channels ahead of a pool": RegionCase(
        "", "return F.max_pool2d(torch.softmax(self.c(x), 1), 2)", SMALL, "self.c=nn.Conv2d(8, 24, 3)"
    ),
    "places among channels": RegionCase("", "y=self.c(x)*r; return y.argmax(1), y.amin(1, keepdim=True).tanh()",
                                        f"{SMALL}, torch.randn(64, 1, 1)", CONV, "x, r"),
    "channels of a transposed convolution": RegionCase(
        "", "y=self.c(x); return y/(y.norm(dim=1, keepdim=True)+1e-3), torch.logsumexp(y, 1)", "torch.randn(2, 64, 6, 7)",
        "self.c=nn.ConvTranspose2d(64, 24, 4, stride=2, padding=1)",
    ),
    "moments of channels, and a mean": RegionCase(
        "", "y=self.c(x); y=(y-y.mean(1,keepdim=True))/y.std(1,keepdim=True); return y.mean((2,3)), y", SMALL, CONV
    ),
    "a norm of channels behind the places": RegionCase(
        "", "x=self.c(x).flatten(2).transpose(1, 2); return self.n(x)*2, F.normalize(x, dim=-1), x.argmax(-1)", SMALL,
        f"{CONV}; self.n=nn.LayerNorm(64)",
    ),
    "a mean of a norm": RegionCase("", "return F.adaptive_avg_pool2d(self.n(F.hardswish(self.c(x)))*self.s, 1)", SMALL, GROUPS),
    "all places of an adaptive pool": RegionCase("", "return F.adaptive_max_pool2d(self.c(x), 1)", "torch.randn(2, 8, 18, 18)", CONV),
}  # fmt: skip
QUICK = ("a norm ahead of a pool",)
OTHERS = {
    "overlapping windows": "return F.max_pool2d(self.c(x), 3, 2, 1)",
    "windows of nine": "return F.max_pool2d(self.c(x), 3)",
    "places are asked for": "return F.max_pool2d(self.c(x), 2, return_indices=True)",
    "the convolution is returned": "y=self.c(x); return y, F.max_pool2d(y, 2)",
    "a step that is not monotone": "y=self.c(x); return F.max_pool2d(torch.sin(self.n(y)), 2)",
    "rows that are no channels": "return torch.softmax(self.c(x).reshape(2, 18 * 18, 64), -1)",
    "a norm and a gate of each place": "y=self.c(x); return F.max_pool2d(self.n(y)*y, 2)",
}
"""Pools, and reductions of other rows, that read what was stored."""


@pytest.fixture(autouse=True)
def kernels_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions are kernels too."""
    monkeypatch.setattr("tritonsmith.author.compiler.plan.prefers_call", lambda *_: False)


def list_tiled(plan: RegionPlan) -> list[str]:
    return [anchor.kind for one in plan.regions if isinstance(one, ProductRegion) for anchor in one.tiled]


@pytest.mark.parametrize("name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in ON_THE_TILE])
def test_what_is_found_on_the_tile_is_right(evaluator: LocalEvaluator, name: str) -> None:
    card = change_card(rows={"l2_cached": 0.0, "on_chip": 0.0})  # as if the small result stayed nowhere
    task, facts = describe_case(ON_THE_TILE[name])
    plan = read_regions(task, facts, card)
    settings = REGIONS.recipes[0].defaults(plan, evaluator.hardware, plan.precision)
    assert settings is not None and list_tiled(plan)
    verdict = asyncio.run(evaluator.evaluate(task, REGIONS.recipes[0].render(plan, settings)))
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.parametrize("forward", OTHERS.values(), ids=[*OTHERS])
def test_others_read_what_was_stored(forward: str) -> None:
    plan = plan_of(forward, "torch.randn(2, 8, 20, 20)", init=GROUPS)
    assert plan.kernels >= 2 and not list_tiled(plan)


def test_each_layer_of_a_network_has_its_own_pool() -> None:
    """What later layers pool does not keep the first norm from being swapped with its pool."""
    layers = "; ".join(f"self.c{n}=nn.Conv2d({wide}, 64, 3, padding=1); self.n{n}=nn.GroupNorm(8, 64)" for n, wide in ((0, 8), (1, 64)))
    forward = "; ".join(f"x=F.max_pool2d(F.relu(self.n{n}(self.c{n}(x))), 2)" for n in (0, 1)) + "; return x"
    plan = plan_of(forward, "torch.randn(2, 8, 32, 32)", init=layers)
    assert sorted(list_tiled(plan)) == sorted(2 * ["max", "moments"])


@pytest.mark.parametrize(("factor", "kinds"), [
    ("*self.s", ["max", "moments"]), ("*-self.s", ["max", "moments"]), ("*x.mean((1, 2, 3), keepdim=True)", ["max", "min", "moments"]),
    ("*-2*self.s", ["max", "moments"]), ("*2", ["max", "moments"]),
])  # fmt: skip
def test_one_extreme_does_where_parameters_say_which(factor: str, kinds: list[str]) -> None:
    """A step may rise or fall with the value as the sign of a number says; that of a parameter is known ahead of the convolution."""
    plan = plan_of(f"return F.max_pool2d(self.n(self.c(x)){factor}, 4)", "torch.randn(2, 8, 24, 22)", init=GROUPS)
    assert sorted(list_tiled(plan)) == kinds


def test_a_short_convolution_is_multiplied_at_once(evaluator: LocalEvaluator) -> None:
    """Few weights of a filter, and as many filters as tensor cores multiply at once: programs hold all weights, and take tiles in turn."""

    def count_blocks(channels: int, filters: int, side: int) -> tuple[int, str]:
        init = f"self.c=nn.Conv2d({channels}, {filters}, {side})"
        plan = plan_of("return F.max_pool2d(torch.tanh(self.c(x)), 2)", f"torch.randn(64, {channels}, 64, 64)", init=init)
        settings = REGIONS.recipes[0].defaults(plan, evaluator.hardware, plan.precision)
        assert settings is not None
        (product,) = (one for one in plan.regions if isinstance(one, ProductRegion))
        return choose_tile(product, settings).at_once, REGIONS.recipes[0].render(plan, settings)

    blocks, text = count_blocks(8, 64, 3)
    assert blocks == 5 and "in range(tl.program_id(0), 1984, tl.num_programs(0)):" in text
    assert "(BLOCK_M, 2, 32, 2)" in text, "rows of windows lie in rows"
    assert count_blocks(3, 48, 3)[0] and not count_blocks(8, 32, 3)[0] and not count_blocks(16, 64, 3)[0]


def test_a_mean_of_a_norm_is_the_norm_of_a_mean() -> None:
    """Nothing of the convolution's size is stored; where a step is not linear, it is."""
    for step, stored in (("{0}*self.s - 1", False), ("F.relu({0})", True)):
        forward = f"return ({step.format('self.n(self.c(x))')}).mean((2, 3))"
        plan = plan_of(forward, SMALL, init=GROUPS)
        assert any(value.size >= 2 * 64 * 18 * 18 for one in plan.regions for value in one.stores) is stored


def test_a_norm_that_stays_in_the_cache_reads_it() -> None:
    plan = read_regions(*describe_case(ON_THE_TILE["a norm of what is stored"]), FIRST)
    assert not list_tiled(plan)


def test_a_low_tile_with_a_short_sum_is_read_in_one_stage(evaluator: LocalEvaluator) -> None:
    """Higher tiles and longer sums are loaded ahead, and so is what a search asks for."""

    def count_stages(channels: int, side: str, **asked: int) -> int:
        init = f"self.c=nn.Conv2d(8, {channels}, {side})"
        plan = plan_of("return F.avg_pool2d(torch.tanh(self.c(x)), 2)", "torch.randn(64, 8, 64, 64)", init=init)
        settings = REGIONS.recipes[0].defaults(plan, evaluator.hardware, plan.precision)
        assert settings is not None
        (product,) = (one for one in plan.regions if isinstance(one, ProductRegion))
        return choose_tile(product, settings | asked).stages

    assert count_stages(16, "(5, 4)") == count_stages(32, "(5, 4)") == 1
    assert count_stages(64, "(5, 4)") == count_stages(16, "11") == 3
    assert count_stages(16, "(5, 4)", num_stages=2) == 2


def test_few_channels_have_registers_for_three_programs_on_sm_90(evaluator: LocalEvaluator) -> None:
    """Not more channels, not high tiles of long sums or of means, and no other card: there the sums would spill."""

    def count_registers(channels: int, card: str = "h200", layer: str = "Conv2d(%d, 64, 3)", size: str = "64, 64", mean: str = "") -> int:
        forward = f"return torch.tanh(self.c(x)){mean}"
        plan = plan_of(forward, f"torch.randn(64, {channels}, {size})", init=f"self.c=nn.{layer % channels}")
        settings = REGIONS.recipes[0].defaults(plan, named_card(card), plan.precision)
        assert settings is not None
        product = next(one for one in plan.regions if isinstance(one, ProductRegion))
        assert f"maxnreg={choose_tile(product, settings).registers}" in REGIONS.recipes[0].render(plan, settings) + "maxnreg=0"
        return choose_tile(product, settings).registers

    assert count_registers(8) == count_registers(3, "h100") == 168
    assert count_registers(8, layer="Conv2d(%d, 32, 3)") == 128
    assert count_registers(8, layer="Conv2d(%d, 32, 7)") == count_registers(8, layer="Conv3d(%d, 16, 3)", size="16, 16, 16") == 168
    assert count_registers(8, layer="Conv2d(%d, 64, 7)") == count_registers(8, layer="Conv3d(%d, 64, 3)", size="16, 16, 16") == 0
    assert count_registers(16) == count_registers(8, "a100") == count_registers(8, mean=".mean((2, 3))") == 0
