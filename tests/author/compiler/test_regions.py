"""Regions: how indices are simplified, where a forward is cut, and that what is written is right."""

import asyncio
import re
from typing import Any

import pytest
import torch

from recipe_cases.products import PRODUCTS
from recipe_cases.reading import AHEAD as CARD_AHEAD
from recipe_cases.reading import change_card, describe_case, plan_of
from recipe_cases.regions import MODULES, RegionCase
from tritonsmith.author.book import Match, match
from tritonsmith.author.cards.model import FIRST, CardModel
from tritonsmith.author.compiler.costs import account_regions, describe_gain
from tritonsmith.author.compiler.fusing import cut
from tritonsmith.author.compiler.fusing.materialize import SharedValues
from tritonsmith.author.compiler.fusing.regions import CallRegion, ProductRegion, RowRegion
from tritonsmith.author.compiler.ir.indices import Index, evaluate, ravel, unravel, variable
from tritonsmith.author.compiler.plan import RegionPlan, read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.author.recipe import Settings
from tritonsmith.author.space import RecipeSpace
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import KernelFacts, Label, LaunchFacts, PrecisionClass, Status, Verdict
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.regions import time_library_calls

BY_NAME = {case.name: case for case in (*MODULES, *PRODUCTS)}
QUICK = ("group norm", "transposed convolution of ragged size")
"""Judged in every run: rows, losses with lookups, and a product with a parameter on either side."""
NEARLY_ALL_LIBRARY = (
    "transposed convolution along one axis", "transposed convolution with gaps", "convolution with batch norm and a residual",
)  # fmt: skip
"""At these small sizes the call takes more than 95 % of the estimated time."""
RECIPE = REGIONS.recipes[0]


def write_settings(plan: RegionPlan) -> Settings:
    settings = RECIPE.defaults(plan, CARDS["h200"], plan.precision)
    assert settings is not None
    return settings


def write(plan: RegionPlan, **changed: int) -> str:
    return RECIPE.render(plan, write_settings(plan) | changed)


ROW, PLACE = variable("row", 24), variable("k", 60)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (ravel(unravel(ROW * 60 + PLACE, (2, 12, 5, 12)), (2, 12, 5, 12)), "row * 60 + k"),
        (unravel(ROW * 60 + PLACE, (2, 12, 60))[1], "row % 12"),
        (unravel(ROW * 60 + PLACE, (2, 720))[1], "(row % 12) * 60 + k"),
        ((ROW // 2) // 3, "row // 6"),
        ((ROW * 4 + 3) // 8, "row // 2"),
        ((ROW % 12) % 4, "row % 4"),
        (PLACE * -1 + 59, "-k + 59"),
        ((PLACE % 7) * -1 + 6, "-(k % 7) + 6"),
    ],
    ids=str,
)
def test_indices_read_as_a_person_would_write_them(index: Index, text: str) -> None:
    assert index.text == text


def test_simplified_indices_keep_their_values() -> None:
    """The same numbers as Python's own arithmetic gives, at every row and place."""
    coordinates = unravel(ROW * 60 + PLACE, (4, 9, 40))
    moved = ravel((coordinates[1], coordinates[0], coordinates[2] * -1 + 39), (9, 4, 40))
    for row in range(24):
        for place in range(60):
            first, rest = divmod(row * 60 + place, 360)
            assert evaluate(moved, {"row": row, "k": place}) == (rest // 40 * 4 + first) * 40 + 39 - rest % 40


def test_work_along_the_same_rows_is_one_kernel() -> None:
    plan = plan_of("return torch.softmax(self.n(x) * 2, -1)", "torch.randn(8, 100)", init="self.n = nn.LayerNorm(100)")
    (region,) = plan.regions
    assert isinstance(region, RowRegion) and len(region.anchors) == 2
    assert write(plan).count("tl.load(x_ptr") == 1, "a row that fits is read once"
    assert write(plan, whole_row=32, tile=32).count("tl.load(x_ptr") == 3, "else once for each pass"


def test_work_behind_a_product_is_done_on_its_sums() -> None:
    plan = plan_of("return torch.tanh(self.l(x)) * 2 + x[:, :4]", "torch.randn(8, 9)", init="self.l = nn.Linear(9, 4)")
    (region,) = plan.regions
    assert isinstance(region, ProductRegion) and not plan.calls
    assert write(plan).count("tl.store(add_ptr") == 2, "once behind the sums, and once where a tile is done again"
    assert "linear_ptr" not in write(plan), "the sums themselves are not stored"


def test_a_plain_product_stays_a_call_where_the_library_is_as_fast() -> None:
    """Large: at `ieee` a library has no tensor cores, in 16 bits it has. Small: a call is launched sooner."""
    forward, init = "return self.l(x).softmax(0)", "self.l = nn.Linear({0}, {0}, dtype=torch.{1})"
    kinds = {
        (size, dtype): type(plan_of(forward, f"torch.randn({size}, {size}, dtype=torch.{dtype})", init=init.format(size, dtype)).regions[0])
        for size, dtype in ((4096, "float32"), (4096, "bfloat16"), (64, "float32"))
    }
    assert list(kinds.values()) == [ProductRegion, CallRegion, CallRegion]


def test_reductions_read_what_a_product_has_stored() -> None:
    plan = plan_of("return F.gelu(self.c(x)).amax(1)", "torch.randn(2, 3, 9, 9)", init="self.c = nn.Conv2d(3, 8, 3)")
    product, rows = plan.regions
    assert isinstance(product, ProductRegion) and isinstance(rows, RowRegion)
    assert [one.name for one in product.stores] == ["gelu"], "elementwise work belongs to the product, where it is done once"


def test_windows_without_a_rim_need_no_mask() -> None:
    """Addresses of taps are computed; what does not change from tap to tap is computed ahead of the loop."""
    text = write(plan_of("return torch.relu(self.c(x))", "torch.randn(4, 64, 66, 66)", init="self.c = nn.Conv2d(64, 128, 3)"))
    (load,) = re.findall(r"        right_high = tl.trans\((.*)\)\n", text)
    assert load == "tl.load(x_parts_ptr + x_parts_at + ((tap // 3) * 4224 + (tap % 3) * 64) + down)"


@pytest.mark.parametrize(
    ("precision", "dtype", "line"),
    [
        ("ieee", "float32", "total += tl.dot(left_high, right_high, total_rest * (1.0 / 2048.0))"),
        ("tf32", "float32", 'total = tl.dot(left, right, total, input_precision="tf32")'),
        ("16-bit", "bfloat16", "total = tl.dot(left, right, total)"),
    ],
)
def test_products_are_as_exact_as_the_class_asks(precision: str, dtype: str, line: str) -> None:
    case = RegionCase("one", "return torch.relu(x @ y)", ", ".join([f"torch.randn(64, 64, dtype=torch.{dtype})"] * 2), arguments="x, y")
    task, facts = describe_case(case)
    assert f"    {line}" in write(read_regions(task.model_copy(update={"precision": PrecisionClass(precision)}), facts, FIRST))


def test_each_reading_leads_to_the_same_text() -> None:
    """Though both operands are of one size, and their rows lie in other orders."""
    task, facts = describe_case(RegionCase("one", "return ((x[None] - x[:, None]) ** 2).sum(2)", "torch.randn(18, 6)"))
    assert len({write(read_regions(task, facts, FIRST)) for _ in range(12)}) == 1


def test_states_of_a_loop_are_stored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state is part of the next one, and both are read elsewhere: the forward is not cut anew for each of them."""
    rounds: list[int] = []
    monkeypatch.setattr(cut, "Cutter", lambda sharing, card, make=cut.Cutter: rounds.append(len(sharing.shared)) or make(sharing, card))
    states = "for t in range(6):;     h, c = self.l(x[t], (h, c)); return h, c"
    init = "self.l = nn.LSTMCell(5, 7)"
    assert plan_of(states, "torch.randn(6, 2, 5), torch.randn(2, 7), torch.randn(2, 7)", arguments="x, h, c", init=init).regions
    assert len(rounds) < 8


@pytest.mark.slow  # a long loop
def test_a_round_ends_with_few_values_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long loop is cut in time by its steps: no round has every step compute all those ahead of it."""
    rounds: list[cut.Cutter] = []
    make = cut.Cutter

    def keep(sharing: SharedValues, card: CardModel) -> cut.Cutter:
        rounds.append(make(sharing, card))
        return rounds[-1]

    monkeypatch.setattr(cut, "Cutter", keep)
    states = "for t in range(40):;     h, c = self.l(x[t], (h, c)); return h, c"
    init = "self.l = nn.LSTMCell(5, 7)"
    plan = plan_of(states, "torch.randn(40, 2, 5), torch.randn(2, 7), torch.randn(2, 7)", arguments="x, h, c", init=init)
    computed = [[len(region.evaluated) for region in one.regions] for one in rounds]
    assert len(plan.regions) == 120 and max(computed[-1]) < 40
    assert all(sum(numbers) < 6 * sum(computed[-1]) for numbers in computed)


@pytest.mark.parametrize("width", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_slices_written_in_a_loop_are_planned_piece_by_piece(width: int) -> None:
    """Each slice is made of the one before: the text grows with the number of slices, and not with its power."""
    body = f"a = torch.zeros_like(x); a[:, :{width}] = x[:, :{width}]; for t in range({width}, x.shape[1], {width}):;"
    body += f"     a[:, t:t + {width}] = 0.9 * a[:, t - {width}:t] + x[:, t:t + {width}]; return a"
    lines = [len(write(plan_of(body, f"torch.randn(3, {width * steps}, 8)")).splitlines()) for steps in (12, 24)]
    assert lines[1] < 3 * lines[0] < 1500


def test_settings_of_products_matter_to_products_only() -> None:
    plain, product = plan_of("return x.softmax(-1)", "torch.randn(8, 9)"), plan_of("return (x @ x).relu()", "torch.randn(4096, 4096)")
    stages = [{name for stage in RECIPE.tunables for name in RECIPE.list_tunables(plan, stage)} for plan in (plain, product)]
    assert not stages[0] & stages[1] and "whole_row" in stages[0] and "block_k" in stages[1]
    assert not RECIPE.fits(product, write_settings(product) | {"block_m": 4096, "block_n": 4096, "block_k": 4096}, CARDS["a100"])


def test_searches_tune_products_of_each_size_by_themselves() -> None:
    init = "self.a, self.b = nn.Linear(4096, 4096), nn.Linear(4096, 2048)"
    case = RegionCase("one", "return F.relu(self.b(F.relu(self.a(x))))", "torch.randn(4096, 4096)", init=init)
    task, facts = describe_case(case)
    plan = read_regions(task, facts, FIRST)
    brief = Brief(task=task, facts=facts, hardware=CARDS["h200"])
    space = RecipeSpace(RECIPE, Match(plan, (RECIPE,)), write_settings(plan), brief)
    own = {parameter.name: parameter.current for parameter in space.parameters}
    assert own["block_n_2"] == own["block_n"] == 128 and "block_n_3" not in own
    text = space.write(own | {"block_n_2": 64})
    assert text is not None and re.findall(r"BLOCK_N=(\d+)", text) == ["128", "64"]


def test_a_value_that_many_read_is_stored_once() -> None:
    """A sum of four tensors would be read by two kernels; the first one stores it."""
    plan = plan_of("s = a + b + c + d; return s.sum(0), s.cumsum(1)", ", ".join(["torch.randn(33, 70)"] * 4), arguments="a, b, c, d")
    reading = [len(region.reads) for region in plan.regions]
    assert reading == [4, 1], "the first kernel stores the sum, and the second one reads it"


def test_results_keep_their_keys_and_what_is_no_tensor() -> None:
    """Keys that are no words or mean something in a trace, and any defaults; a replayed graph leaves None and numbers as they are."""
    text = write(plan_of("return {0: x + 1, ('a', 1): (x * 2, None), 'ref': x - 1, 'slice': 0.5}", "torch.randn(5, 6)"), replayed=1)
    assert "return mul" in write(plan_of("return x.sum(axes) * d['p']", "torch.randn(5, 6)", arguments="x, axes=(0, 1), d={'p': 1.0}"))
    assert "return {0: add, ('a', 1): (mul, None), 'ref': sub, 'slice': 0.5}" in text
    names: dict[str, Any] = {"torch": torch}
    exec(text[text.index("def clone(") : text.index("class ModelNew")], names)  # noqa: S102 - what the recipe wrote
    result = {0: torch.ones(2), ("a", 1): (torch.zeros(1), None), "slice": 0.5}
    copied = names["clone"](result)
    assert copied[0].equal(result[0]) and copied[0] is not result[0] and (copied["a", 1][1], copied["slice"]) == (None, 0.5)


_JOINS = (
    "p = torch.cat([F.max_pool2d(x, 3, 1, 1), x, F.avg_pool2d(x, 3, 1, 1)], 1); "
    "c = torch.cat([torch.zeros_like(y[:, :1]), y[:, :-1].cumsum(1)], 1); s = y.cumsum(0); return p, c, s, torch.cat([s, y.cumsum(1)])"
)


def test_values_joined_again_and_again_are_stored_on_the_way() -> None:
    """Each `cat` around another doubles the loads: five in one kernel would have 32."""
    plan = read_regions(*describe_case(BY_NAME["channels that are shuffled several times"]), FIRST)
    loads = [kernel.count("tl.load(") for kernel in write(plan).split("@triton.jit")[1:]]
    assert len(loads) > 1 and max(loads) <= 8


def test_parts_are_stored_where_they_are_joined(evaluator: LocalEvaluator) -> None:
    case = RegionCase("joins", _JOINS, "torch.randn(2, 3, 6, 7), torch.randn(5, 9)", arguments="x, y")
    judge(evaluator, case)
    text = write(read_regions(*describe_case(case), FIRST))
    assert text.count("torch.empty(") == 4, "nothing but the results"
    assert len(re.findall(r"tl.store\(cat_ptr", text)) == 7


@pytest.mark.slow
def test_a_part_that_forward_returns_too_may_be_stored_later(evaluator: LocalEvaluator) -> None:
    """What copies it into the whole computes it anew, since its own kernel comes behind that."""
    joined = "s, c = x.softmax(1), y.cumsum(1); return torch.cat([s, c], 1), s"
    judge(evaluator, RegionCase("later", joined, "torch.randn(5, 9), torch.randn(5, 9)", arguments="x, y"))


def test_results_that_the_reference_copies_are_no_arguments(evaluator: LocalEvaluator) -> None:
    given = "return x.clone(), x, torch.relu(y), y.mT.contiguous(), y.mT"
    case = RegionCase("copies", given, "torch.randn(5, 9), torch.randn(5, 9)", arguments="x, y")
    task, facts = describe_case(case)
    text = write(read_regions(task, facts, FIRST))
    assert asyncio.run(evaluator.evaluate(task, text)).status is Status.OK
    (returned,) = re.findall(r"return \((x.*)\)\n", text)
    assert returned.startswith("x.clone(), x, ") and returned.count(".clone(") == 2


def test_a_whole_of_parts_takes_any_leading_size() -> None:
    """The longest leading axis is that at which the whole, not its parts, has 2^31 elements."""
    joined = "return torch.cat([x.softmax(1), y.cumsum(1)], 1)"
    text = write(plan_of(joined, "torch.randn(4, 20), torch.randn(4, 20)", arguments="x, y"))
    assert "torch.empty((batch, 40)" in text and text.count("tl.store(cat_ptr") == 2


def test_few_long_rows_are_shared_by_programs() -> None:
    plan = plan_of("return x / x.norm()", "torch.randn(4, 50000)")
    text = write(plan)
    assert re.findall(r"^def (\w+)\(", text, re.M)[:3] == ["norm_kernel", "join_norm_kernel", "div_kernel"]


def test_settings_of_every_stage_change_the_text() -> None:
    forward = "return F.layer_norm(x, (9000,)) + x.sum(), x * 2, torch.relu(self.l(x))"
    plan = plan_of(forward, "torch.randn(2000, 9000)", init="self.l = nn.Linear(9000, 2000)")
    plain = write(plan)
    for stage in RECIPE.tunables:
        for name, values in RECIPE.list_tunables(plan, stage).items():
            assert len({plain, *(write(plan, **{name: int(value)}) for value in values)}) > 1, name


def test_an_analysis_names_the_region_with_most_to_gain() -> None:
    plan = plan_of("return torch.softmax(self.l(x), -1)", "torch.randn(4096, 512)", init="self.l = nn.Linear(512, 512)")
    said = describe_gain(plan, slow_verdict("softmax_kernel", 3.0))
    assert said.startswith("of 2 regions softmax_kernel has most to gain: it takes 3 ms, and its bytes take 0.00")
    assert describe_gain(plan_of("return x.softmax(-1)", "torch.randn(8, 9)"), None) == ""


def test_an_answer_tells_each_region_and_why_a_call_was_left() -> None:
    """Own kernels have the times of the verdict and their least time; a call has its reason, and calls together what is left."""
    init = "self.l = nn.Linear(512, 512)"
    plan = plan_of("return torch.sort(torch.softmax(self.l(x), -1), -1)[0].cumsum(-1)", "torch.randn(4096, 512)", init=init)
    names = [name for names in plan.kernel_names for name in names]
    kernels = tuple(KernelFacts(name=name, launches=1, device_ms=0.25) for name in names)
    verdict = Verdict(status=Status.RACY, facts=LaunchFacts(kernels=kernels, device_ms=2.0))
    rows = account_regions(plan, verdict, write_settings(plan))
    assert [row.what for row in rows if row.own] and len(rows) == len(plan.regions)
    assert all(row.launches and row.ms == 0.25 * row.launches and row.least_ms and not row.why for row in rows if row.own)
    left = [row for row in rows if not row.own]
    assert len(left) == len(plan.calls) and all(row.why for row in left)
    if left:
        assert time_library_calls(rows, verdict) == pytest.approx(2.0 - 0.25 * len(names))


def slow_verdict(name: str, device_ms: float) -> Verdict:
    kernel = KernelFacts(name=name, launches=1, device_ms=device_ms)
    return Verdict(status=Status.RACY, facts=LaunchFacts(kernels=(kernel,)))


def judge(evaluator: LocalEvaluator, case: RegionCase, card: CardModel = FIRST) -> None:
    task, facts = describe_case(case)
    found = match(task, facts, evaluator.hardware)
    assert found is not None
    plan = read_regions(task, facts, card)
    verdict = asyncio.run(evaluator.evaluate(task, write(plan)))
    assert verdict.status is Status.OK, verdict.message
    mixed = Label.LIBRARY if case.name in NEARLY_ALL_LIBRARY else Label.HYBRID
    assert verdict.label is (mixed if plan.calls else Label.KERNEL) and not verdict.facts.races


@pytest.mark.parametrize("name", QUICK)
def test_regions_are_right(evaluator: LocalEvaluator, name: str) -> None:
    judge(evaluator, BY_NAME[name])


@pytest.mark.parametrize(("between", "scans"), [("", 1), ("y.mul_(3); ", 2)])
def test_an_equal_call_is_made_once(between: str, scans: int) -> None:
    """Unless a tensor was written in between."""
    forward = f"y = x + 0; a = torch.cumsum(y, 1); {between}b = torch.cumsum(y, 1); return torch.relu(a), b * 2"
    assert write(plan_of(forward, "torch.randn(5, 30)")).count("tl.cumsum(") == scans


SHARED = "return torch.where(x > 0, x * self.w, y)"


@pytest.mark.parametrize(("rows", "shape", "turns"), [(8, "4096, 1024", True), (8, "1024", False), (1, "4096, 1024", False)])
def test_rows_that_share_a_large_operand_take_turns(rows: int, shape: str, turns: bool) -> None:
    parameter = f"self.w = nn.Parameter(torch.zeros({shape}))"
    text = write(plan_of(SHARED, f"torch.zeros({rows}, 4096, 1024), torch.zeros({rows}, 1, 1024)", arguments="x, y", init=parameter))
    assert ("rows take turns" in text) is turns


@pytest.mark.slow
def test_rows_in_turns_are_right(evaluator: LocalEvaluator) -> None:
    card = change_card(rows={"l2_kept": 1e-6})
    parameter = "self.w = nn.Parameter(torch.rand(7, 33))"
    case = RegionCase("in turns", SHARED, "torch.randn(3, 7, 33), torch.randn(3, 1, 33)", arguments="x, y", init=parameter)
    assert "rows take turns" in write(read_regions(*describe_case(case), card))
    judge(evaluator, case, card)


AHEAD = {
    "whole taps": ("torch.relu(self.c(x))", "torch.randn(2, 32, 7, 9)", "nn.Conv2d(32, 20, 3, padding=1, stride=2)"),
    "lines of a window": ("self.c(torch.tanh(x)) * 2", "torch.randn(2, 8, 7, 9)", "nn.Conv2d(8, 20, (2, 3), padding=(0, 2))"),
    "solid windows": ("self.c(x)", "torch.randn(1, 16, 4, 5, 6)", "nn.Conv3d(16, 17, 3, padding=1, dilation=(2, 1, 1))"),
    "few channels": ("self.c(x) * 2", "torch.randn(2, 3, 7, 9, 6)", "nn.Conv3d(3, 20, (2, 3, 3), padding=(0, 1, 2))"),
    "few channels and strides": ("self.c(x)", "torch.randn(2, 5, 17)", "nn.Conv1d(5, 17, 4, stride=3, bias=False)"),
    "groups": ("self.c(x)", "torch.randn(2, 64, 11)", "nn.Conv1d(64, 40, 3, groups=2)"),
    "transposed": ("self.c(x)", "torch.randn(2, 32, 5, 6)", "nn.ConvTranspose2d(32, 20, 3, stride=2, padding=1)"),
    "four phases": ("torch.relu(self.c(x)) + 1", "torch.randn(2, 32, 3, 7)", "nn.ConvTranspose2d(32, 9, (3, 5), (1, 4), (0, 3))"),
    "phases of both axes": ("self.c(x)", "torch.randn(2, 64, 3, 5)", "nn.ConvTranspose2d(64, 20, 4, stride=2, padding=1, groups=2)"),
    "lines of phases": ("self.c(x)", "torch.randn(1, 16, 3, 4, 5)", "nn.ConvTranspose3d(16, 9, 4, stride=2, output_padding=1)"),
    "rows": ("F.gelu(self.c(x))", "torch.randn(5, 7, 76)", "nn.Linear(76, 33)"),
    "long rows": ("self.c(x)", "torch.randn(3, 2100)", "nn.Linear(2100, 17)"),
    "one row of each matrix": ("torch.sigmoid(x @ x.transpose(1, 2))", "torch.randn(3, 1, 8)", "None"),
    "one row": ("F.silu(self.c(x))", "torch.randn(1, 76)", "nn.Linear(76, 33)"),
    "one long row": ("F.silu(self.c(x))", "torch.randn(1, 2100)", "nn.Linear(2100, 17)"),
    "uneven shares of rows": ("self.c(x)", "torch.randn(3, 2560)", "nn.Linear(2560, 17)"),
    "two operands": ("(x @ x.transpose(1, 2)).relu()", "torch.randn(2, 37, 44)", "None"),
    "values out of range": ("self.c(x)", "torch.randn(2, 32, 5, 5) * 1e6", "nn.Conv2d(32, 17, 3)"),
    "tiny values": ("self.c(x)", "torch.randn(2, 32, 5, 5) * 1e-6", "nn.Conv2d(32, 17, 3, bias=False)"),
}  # fmt: skip
"""Forwards whose products read operands that are split ahead."""


@pytest.mark.slow
@pytest.mark.parametrize("name", AHEAD)
def test_products_of_operands_that_are_split_ahead_are_right(
    evaluator: LocalEvaluator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("tritonsmith.author.compiler.plan.prefers_call", lambda *_: False)
    card = change_card(CARD_AHEAD, hardware={"processors": 1}) if name == "uneven shares of rows" else CARD_AHEAD
    forward, inputs, init = AHEAD[name]
    case = RegionCase(name, f"return {forward}", inputs, init=f"self.c = {init}")
    assert "_largest_ptr" in write(read_regions(*describe_case(case), card))
    judge(evaluator, case, card)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in BY_NAME.values() if case.name not in QUICK], ids=lambda case: case.name)
def test_every_kind_of_region_is_right(evaluator: LocalEvaluator, case: RegionCase) -> None:
    judge(evaluator, case)


@pytest.mark.slow
def test_slices_written_in_a_loop_are_right(evaluator: LocalEvaluator) -> None:
    body = "a = torch.zeros_like(x); a[:, :2] = x[:, :2]; for t in range(2, x.shape[1], 2):;"
    body += "     a[:, t:t + 2] = 0.9 * a[:, t - 2:t] + x[:, t:t + 2]; return a, a[:, 3:4] + a.narrow(1, 5, 1)"
    judge(evaluator, RegionCase("slices of a loop", body, "torch.randn(3, 24, 8)"))
