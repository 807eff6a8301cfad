"""Attention as a region: where it is found, how its kernel is cut, and that what is written is right."""

import asyncio
import re

import pytest

from recipe_cases.attention import ATTENTION
from recipe_cases.reading import describe_case, plan_of
from recipe_cases.regions import RegionCase
from tritonsmith.author.book import match
from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.compiler.costs import time_regions
from tritonsmith.author.compiler.kernels.attention.blocks import choose_blocks, count_shared_bytes, split_axis
from tritonsmith.author.compiler.plan import PLAIN, RegionPlan, read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import Label, PrecisionClass, Status

BY_NAME = {case.name: case for case in ATTENTION}
QUICK = ("causal by name",)
"""Judged in every run: a mask that hides blocks of keys, views of one product; a query that sees nothing, other numbers of keys."""
RECIPE = REGIONS.recipes[0]
SMALL = {"query_rows": 32, "key_rows": 16}
"""Blocks so small that these cases have several."""


def write(plan: RegionPlan, precision: PrecisionClass = PrecisionClass.IEEE, **changed: int | str) -> str:
    settings = RECIPE.defaults(plan, CARDS["h200"], precision)
    assert settings is not None
    return RECIPE.render(plan, settings | changed)


def heads(size: int, number: int = 3) -> str:
    return ", ".join([f"torch.randn(2, 8, 300, {size})"] * number)


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.name)
def test_attention_is_found_however_it_is_written(case: RegionCase) -> None:
    assert len(read_regions(*describe_case(case), FIRST).attentions) == 1


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        ("return (q@k.mT).softmax(2)@v", "a softmax along the queries"),
        ("return ((q@k.mT)*(q@k.mT).mT).softmax(-1)@v", "a score that is read at two places"),
        ("return torch.relu(q@k.mT)@q.new_ones(2, 8, 300, 512)", "two layers of a network"),
    ],
    ids=lambda text: text if " @" in text else None,
)
def test_other_products_stay_what_they_are(forward: str, why: str) -> None:
    plan = plan_of(forward, heads(32), arguments="q, k, v")
    assert not plan.attentions, why


def test_views_around_attention_cost_nothing() -> None:
    """Heads are read out of the packed product, and stored beside each other."""
    text = write(read_regions(*describe_case(BY_NAME["causal heads of a packed product"]), FIRST))
    assert "c_attn.permute" not in text and text.count(", 70, 4, 10)") == 1
    assert "return attention.reshape((batch, 70, 40))" in text and ".permute(" not in text


def list_loops(text: str) -> list[str]:
    return re.findall(r"for start in range\((.*), BLOCK_N\)", text)


def test_keys_that_a_mask_hides_are_left_out() -> None:
    causal = "return F.scaled_dot_product_attention(q, k, v, is_causal=True)"
    assert list_loops(write(plan_of(causal, heads(32), arguments="q, k, v"))) == ["0, clear", "clear, last"]
    by_mask = "return F.scaled_dot_product_attention(q, k, v, attn_mask=m)"
    shared = plan_of(by_mask, f"{heads(32)}, torch.rand(300, 300)>0.5", arguments="q, k, v, m")
    assert list_loops(write(shared)) == ["0, 300", "first, clear", "clear, last"]
    assert write(shared).count("tl.load(m_ptr") == 2, "the mask is not read where all queries see all keys"
    own = plan_of(by_mask, f"{heads(32)}, torch.rand(2, 1, 300, 300)>0.5", arguments="q, k, v, m")
    assert list_loops(write(own)) == ["0, 256", "256, 300"], "nothing is hidden for all heads"


def test_tensors_of_many_elements_have_indices_of_64_bits() -> None:
    by_name, shape = "return F.scaled_dot_product_attention(q, k, v)", "torch.empty(16, BATCH, 4096, 64)"
    for batch, wide in ((128, False), (1024, True)):
        text = write(plan_of(by_name, ", ".join([shape.replace("BATCH", str(batch))] * 3), arguments="q, k, v"))
        assert len(re.findall(r"^    +(?:lead|m|n|n_down|d0|d0_down|c0) = .*tl.int64", text, re.M)) == 11 * wide


@pytest.mark.parametrize(
    ("size", "pieces"),
    [(10, (16,)), (40, (32, 16)), (64, (64,)), (96, (64, 32)), (120, (128,)), (160, (128, 32)), (256, (128, 128))],
)
def test_heads_are_cut_into_powers_of_two(size: int, pieces: tuple[int, ...]) -> None:
    assert tuple(places for _, places in split_axis(size)) == pieces


@pytest.mark.parametrize(("size", "pieces"), [(40, (64,)), (96, (128,)), (160, (128, 64)), (200, (128, 128))])
def test_heads_in_parts_have_no_small_second_piece(size: int, pieces: tuple[int, ...]) -> None:
    """ptxas makes wrong code of these."""
    (one,) = plan_of("return F.scaled_dot_product_attention(q, k, v)", heads(size), arguments="q, k, v").attentions
    for scheme, wanted in (("fp16x3", pieces), ("tf32x3", tuple(places for _, places in split_axis(size)))):
        blocks = choose_blocks(one, PLAIN | {"attention_products": scheme})
        assert tuple(places for _, places in blocks.features) == tuple(places for _, places in blocks.columns) == wanted


@pytest.mark.parametrize("size", [64, 128, 256, 1024])
def test_every_head_fits_every_card(size: int) -> None:
    plan = plan_of("return F.scaled_dot_product_attention(q, k, v)", heads(size), arguments="q, k, v")
    taken = []
    for card in CARDS.values():
        settings = RECIPE.defaults(plan, card, PrecisionClass.IEEE)
        assert settings is not None, card.name
        taken.append(count_shared_bytes(plan.attentions[0], settings))
        assert taken[-1] <= card.shared_per_block
    assert len(set(taken)) > 1 or size == 64, "smaller cards get smaller blocks"


def test_its_floor_follows_from_its_products() -> None:
    """Long heads are bound by arithmetic, a single query by what it reads."""
    by_name = "return F.scaled_dot_product_attention(q, k, v)"
    long = plan_of(by_name, ", ".join(["torch.empty(8, 8, 4096, 64)"] * 3), arguments="q, k, v")
    (found,) = time_regions(long)
    assert found.limit == "products" and found.floor_ms > 1.0
    short = plan_of(by_name, "torch.empty(8, 8, 1, 64), torch.empty(8, 8, 4096, 64), torch.empty(8, 8, 4096, 64)", arguments="q, k, v")
    assert time_regions(short)[0].limit == "bytes"


def test_products_are_as_exact_as_the_task_asks() -> None:
    plan = plan_of("return F.scaled_dot_product_attention(q, k, v)", heads(64), arguments="q, k, v")
    assert "split_lines(v," in write(plan) and "input_precision" not in write(plan)
    assert 'input_precision="tf32"' in write(plan, PrecisionClass.TF32) and "split_lines" not in write(plan, PrecisionClass.TF32)
    settings = RECIPE.defaults(plan, CARDS["h200"], PrecisionClass.IEEE)
    ways = []
    while settings is not None:
        ways.append(settings["attention_products"])
        settings = RECIPE.sharpen(settings)
    assert ways == ["fp16x3", "tf32x3", "ieee"]


def test_settings_of_attention_change_its_text_only() -> None:
    plan = plan_of("return F.scaled_dot_product_attention(q, k, v)", heads(128), arguments="q, k, v")
    plain = write(plan)
    named = {name: values for stage in RECIPE.tunables for name, values in RECIPE.list_tunables(plan, stage).items()}
    for name in ("query_rows", "key_rows", "attention_warps", "attention_stages", "attention_products"):
        assert len({plain, *(write(plan, **{name: value}) for value in named[name])}) > 1, name
    other = plan_of("return q.softmax(-1)", "torch.randn(8, 9)", arguments="q")
    assert not any(re.match("query|key|attention", name) for stage in RECIPE.tunables for name in RECIPE.list_tunables(other, stage))


def judge(evaluator: LocalEvaluator, case: RegionCase, **changed: int | str) -> None:
    task, facts = describe_case(case)
    found = match(task, facts, evaluator.hardware)
    assert found is not None and isinstance(found.plan, RegionPlan)
    settings = RECIPE.defaults(found.plan, evaluator.hardware, task.precision)
    assert settings is not None
    verdict = asyncio.run(evaluator.evaluate(task, RECIPE.render(found.plan, settings | changed)))
    assert verdict.status is Status.OK, verdict.message
    assert verdict.label is (Label.HYBRID if found.plan.calls else Label.KERNEL) and not verdict.facts.races


FAR = "w = torch.where(m, (q@k.mT)*0.25, torch.finfo(q.dtype).min); return w.softmax(-1)@v"


@pytest.mark.slow
def test_queries_whose_keys_all_have_the_lowest_number_get_their_mean(evaluator: LocalEvaluator) -> None:
    """A factor would make that number infinite; other scores are multiplied with it first, which is one operation less."""
    mask = "(torch.rand(20, 20)>0.5)&(torch.arange(20)!=3)[:, None]"
    case = RegionCase("far", FAR, f"{', '.join(['torch.randn(1, 2, 20, 16)'] * 3)}, {mask}", arguments="q, k, v, m")
    assert "- base) * 1.44" in write(read_regions(*describe_case(case), FIRST))
    judge(evaluator, case, **SMALL)
    for factor, is_far in (("0.25", False), ("1e5", True), ("s", True)):
        text = write(plan_of(f"return ((q@k.mT)*{factor}).softmax(-1)@v", f"{heads(32)}, torch.rand(8, 1, 1)", arguments="q, k, v, s"))
        assert ("- higher) * 1.44" in text or "- base) * 1.44" in text) is is_far


@pytest.mark.parametrize("name", QUICK)
def test_attention_is_right(evaluator: LocalEvaluator, name: str) -> None:
    judge(evaluator, BY_NAME[name], **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in ATTENTION if case.name not in QUICK], ids=lambda case: case.name)
def test_every_attention_is_right(evaluator: LocalEvaluator, case: RegionCase) -> None:
    judge(evaluator, case, **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["tf32x3", "ieee"])
def test_every_way_to_multiply_is_right(evaluator: LocalEvaluator, way: str) -> None:
    judge(evaluator, BY_NAME["causal by name"], attention_products=way)


WIDE = {
    "by name": "return F.scaled_dot_product_attention(q, k, v)",
    "causal": "return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.1)",
    "by hand": "return (q@k.mT*0.05).softmax(-1)@v",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_large_attention_of_wide_heads_is_two_products(evaluator: LocalEvaluator, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("tritonsmith.author.compiler.lowering.attention._LARGE", 0.0)
    monkeypatch.setattr("tritonsmith.author.compiler.plan.prefers_call", lambda *_: False)
    case = RegionCase("wide", WIDE[name], ", ".join(["torch.randn(2, 3, 20, 260)"] * 3), arguments="q, k, v")
    plan = read_regions(*describe_case(case), FIRST)
    assert not plan.attentions and [type(one).__name__ for one in plan.regions] == ["ProductRegion", "RowRegion", "ProductRegion"]
    judge(evaluator, case)
