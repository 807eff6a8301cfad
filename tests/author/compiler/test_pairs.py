"""Products of 16 bits that meet in one value share a kernel, as in gated layers; tiles of two sums fill rounds of the card."""

import asyncio
import json
import math
from pathlib import Path

import pytest

from interpreted import Interpreted
from recipe_cases.reading import change_card, describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import CardModel, model_card
from tritonsmith.author.compiler.contests import list_parts
from tritonsmith.author.compiler.fusing.calls import predict_kernel
from tritonsmith.author.compiler.fusing.regions import PointwiseRegion, ProductRegion
from tritonsmith.author.compiler.kernels.product_tiles import POINTERS, ProductTile, choose_tile
from tritonsmith.author.compiler.plan import RegionPlan, read_regions
from tritonsmith.author.compiler.reading.choices import Choice
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task

FEW = change_card(hardware={"processors": 2}, calls={"matrix": 1e-9})
"""A card on which a few tiles are many, and a library is slow."""
H200 = model_card(CARDS["h200"])


def matrices(*shapes: str, dtype: str = "bfloat16") -> str:
    return ", ".join(f"torch.randn({shape}).to(torch.{dtype})" for shape in shapes)


TWO = "self.g=nn.Linear(64, 264).bfloat16(); self.u=nn.Linear(64, 264, bias=False).bfloat16()"
CHUNKED = "h, g = self.i(x).chunk(2, -1); return h * F.gelu(g)"
CASES = {
    "two halves": RegionCase("", CHUNKED, matrices("2, 130, 64", dtype="float16"), "self.i=nn.Linear(64, 256).half()"),
    "two layers": RegionCase("", "return F.silu(self.g(x))*self.u(x)", matrices("260, 64"), TWO),
    "halves of odd places": RegionCase("", "return F.glu(self.i(x), -1)", matrices("200, 72"), "self.i=nn.Linear(72, 2 * 132).bfloat16()"),
    "a weight that is given": RegionCase(
        "", "a, b = (x @ w.T).split(264, -1); return torch.tanh(a) * b + y", matrices("260, 64", "528, 64", "260, 264"),
        arguments="x, w, y",
    ),
    "an activation of several steps": RegionCase(
        "", "g = self.g(x); return 0.5 * g * (1 + torch.tanh(0.8 * (g + 0.0447 * g.pow(3)))) * self.u(x)", matrices("260, 64"), TWO,
    ),
    "parts of two weights": RegionCase("", "return (x @ self.g.weight[:132].T) * (x @ self.u.weight[132:].T)", matrices("260, 64"), TWO),
}  # fmt: skip
QUICK = ("two halves",)


def read_plan(case: RegionCase, card: CardModel) -> RegionPlan:
    return read_regions(*describe_case(case), card)


def list_products(plan: RegionPlan) -> list[ProductRegion]:
    return [one for one in plan.regions if isinstance(one, ProductRegion)]


def choose_tiles(plan: RegionPlan, **asked: int | str) -> list[ProductTile]:
    settings = REGIONS.recipes[0].defaults(plan, plan.card.hardware, plan.precision)
    assert settings is not None
    return [choose_tile(one, settings | asked) for one in list_products(plan)]


def write(plan: RegionPlan, **asked: int | str) -> str:
    settings = REGIONS.recipes[0].defaults(plan, plan.card.hardware, plan.precision)
    assert settings is not None
    return REGIONS.recipes[0].render(plan, settings | asked)


@pytest.mark.parametrize("name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in CASES])
def test_a_pair_is_one_kernel(evaluator: LocalEvaluator, name: str) -> None:
    task, facts = describe_case(CASES[name])
    plan = read_regions(task, facts, FEW)
    assert [type(one) for one in plan.regions] == [ProductRegion]
    verdict = asyncio.run(evaluator.evaluate(task, write(plan)))
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_pair_is_right_on_a_card(evaluator: LocalEvaluator, name: str) -> None:
    """Compiled, with results that are the same in every call."""
    task, facts = describe_case(CASES[name])
    verdict = asyncio.run(evaluator.evaluate(task, write(read_regions(task, facts, FEW))))
    assert verdict.status is Status.OK, verdict.message


def test_both_right_operands_are_read_as_one_box() -> None:
    """A box of a descriptor has lines of both halves of a weight, or of two weights in one buffer."""
    halves, layers = (write(read_plan(CASES[name], FEW)) for name in ("two halves", "two layers"))
    assert "[2, 128, 64], [8192, 64, 1], [2, BLOCK_N, BLOCK_K]" in halves and halves.count("tl.dot(") == 1
    assert "self.i.weight" in halves and "one_plus_erf(" in halves and "tl.erf(" not in halves
    assert "self.pack(" not in halves and "[2, 264, 64], [16896, 64, 1], [2, BLOCK_N, BLOCK_K]" in layers and layers.count("tl.dot(") == 1
    assert "= self.pack((\"u.weight\", \"g.weight\"), self.u.weight, self.g.weight)" in layers


def test_layers_in_a_loop_have_a_buffer_each() -> None:
    init = "; ".join(f"self.{name}=nn.ModuleList(nn.Linear(264, 264).bfloat16() for _ in range(5))" for name in "gu")
    forward = "import functools; return functools.reduce(lambda x, both: F.silu(both[0](x)) * both[1](x), zip(self.g, self.u), x)"
    text = write(read_plan(RegionCase("", forward, matrices("260, 264"), init), FEW))
    assert 'self.pack((f"u.{step}.weight", f"g.{step}.weight"), ' in text


CHANGES = """
import copy, importlib.util, json, sys
import torch
from torch.nn import functional as F

spec = importlib.util.spec_from_file_location("text", sys.argv[1])
text = importlib.util.module_from_spec(spec)
spec.loader.exec_module(text)
x = torch.randn(200, 64).half()


def compare(model):
    with torch.no_grad():
        found, wanted = model(x), F.silu(F.linear(x, model.g.weight, model.g.bias)) * F.linear(x, model.u.weight)
    return float((found - wanted).abs().max() / wanted.abs().max())


model = text.ModelNew()
with torch.no_grad():
    for one in model.parameters():
        one.copy_(torch.randn(one.shape) / 8)
answers = {"made": compare(model)}
first = model.pack(("u.weight", "g.weight"), model.u.weight, model.g.weight)
answers["kept"] = first is model.pack(("u.weight", "g.weight"), model.u.weight, model.g.weight)
answers["a gradient"] = first.requires_grad
with torch.no_grad():
    model.g.weight.mul_(-2)
answers["written"] = compare(model)
model.u.weight = torch.nn.Parameter(torch.randn(264, 64).half())
answers["replaced"] = compare(model)
other = copy.deepcopy(model)
with torch.no_grad():
    other.u.weight.neg_()
answers["copied"], answers["the original"] = compare(other), compare(model)
model.load_state_dict({name: torch.randn(one.shape) / 8 for name, one in model.state_dict().items()})
answers["loaded"] = compare(model)
model.float().half()
answers["cast"] = compare(model)
print(json.dumps(answers))
"""


def test_weights_that_change_are_packed_again(interpreted: Interpreted, tmp_path: Path) -> None:
    """The buffer is kept between calls, and made again when a weight was written or replaced; copies have their own."""
    case = RegionCase("", "return F.silu(self.g(x))*self.u(x)", matrices("200, 64", dtype="float16"), TWO.replace("bfloat16", "half"))
    (tmp_path / "text.py").write_text(write(read_plan(case, FEW)))
    (tmp_path / "changes.py").write_text(CHANGES)
    answers = json.loads(interpreted.run(tmp_path / "changes.py", tmp_path / "text.py"))
    assert answers.pop("kept") is True and answers.pop("a gradient") is False
    assert max(answers.values()) < 0.02, answers


@pytest.mark.slow  # its kernel is that of the other cases
def test_a_pair_takes_any_rows(evaluator: LocalEvaluator) -> None:
    """Rows that no descriptor knows ahead: their number is an argument."""
    case = RegionCase("", "return F.silu(self.g(x))*self.u(x)", "torch.randn(rows, 64).bfloat16()", TWO)
    source = f"rows = 300\nSHAPES = [{{'rows': 400}}, {{'rows': 20}}]\n{case.source()}"
    task = Task(name="a_task", path="a_task.py", source=source)
    facts, _ = probe(task)
    task = task.model_copy(update={"precision": facts.precision})
    text = write(read_regions(task, facts, FEW))
    assert "tl.make_tensor_descriptor(x_ptr, [rows, 64]" in text and "self.pack((" in text
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.parametrize(("forward", "inputs", "arguments"), [
    ("return (x @ w) * (y @ w)", matrices("260, 64", "64, 264", "260, 64"), "x, w, y"),
    ("a, b = (x @ w).split(132, -1); return torch.cat((a * b, a), -1)", matrices("260, 64", "64, 264"), "x, w"),
    ("return (x @ w[:, :256]) * (x @ w[:, 256:]).sum(-1, keepdim=True)", matrices("260, 64", "64, 512"), "x, w"),
    ("return (x.float() @ w.float()) * (x.float() @ w.float())", matrices("260, 64", "64, 264"), "x, w"),
    ("a, b = (x @ w).split(264, -1); return torch.tanh(a) * b", matrices("260, 64", "64, 528"), "x, w"),
    ("return (x @ w.T) + (x @ v.T)", matrices("260, 64", "264, 64", "264, 64"), "x, w, v"),
])  # fmt: skip
def test_what_is_no_pair(forward: str, inputs: str, arguments: str) -> None:
    """Other left operands, halves that are asked for, numbers about rows, fp32, turned weights, and two weights that a caller gives."""
    plan = read_plan(RegionCase("", forward, inputs, arguments=arguments), FEW)
    assert not any(one.partner for one in list_products(plan))


def test_a_card_that_nobody_measured_has_no_pairs() -> None:
    case = RegionCase("", CHUNKED, matrices("8192, 640", dtype="float16"), "self.i=nn.Linear(640, 5120).half()")
    assert not any(one.partner for one in list_products(read_plan(case, model_card(CARDS["a100"])).take_cut("i=own")))
    plan = read_plan(case, H200).take_cut("i=own")
    (region,) = list_products(plan)
    assert region.partner is not None and region.flops == 2.0 * 8192 * 640 * 5120
    (tile,) = choose_tiles(plan)
    assert (tile.rows, tile.columns, tile.second, tile.warps, tile.stages, tile.programs) == (128, 128, 128, 8, 3, 132)


def test_predicted_times_choose_a_pair_only_where_it_is_clearly_faster() -> None:
    """As measured for GEGLU and SwiGLU on an H200. Where what joins a pair takes twice as long, the call stays, and a race decides."""
    init = "self.g=nn.Linear(1024, 2816).bfloat16(); self.u=nn.Linear(1024, 2816).bfloat16()"
    layers = RegionCase("", "return F.silu(self.g(x))*self.u(x)", matrices("16384, 1024"), init)
    assert list_products(read_plan(layers, H200))[0].partner is not None
    case = RegionCase("", CHUNKED, matrices("8192, 640", dtype="float16"), "self.i=nn.Linear(640, 5120).half()")
    assert list_products(read_plan(case, H200))[0].partner is not None
    plan = read_plan(case, change_card(products={"joined": 2.0e-12}))
    assert plan.called == {"i": Choice.LIBRARY}
    (part,) = list_parts(plan, CARDS["h200"])
    assert part.now is Choice.LIBRARY and "one_plus_erf(" in next(one.text for one in part.contest.alternatives if one.name == "own")


@pytest.mark.parametrize(("rows", "inner", "wide", "us"), [(8192, 640, 2560, 100), (2048, 2048, 5632, 141), (16384, 1024, 2816, 274)])
def test_pairs_are_predicted_as_they_were_measured(rows: int, inner: int, wide: int, us: float) -> None:
    """To a tenth, on an H200."""
    case = RegionCase("", CHUNKED, matrices(f"{rows}, {inner}"), f"self.i=nn.Linear({inner}, {2 * wide}).bfloat16()")
    (region,) = list_products(read_plan(case, H200).take_cut("i=own"))
    assert predict_kernel(region, PrecisionClass.IEEE) * 1e6 == pytest.approx(us, rel=0.1)


def test_a_call_and_a_kernel_stay_where_a_pair_is_not_clearly_faster() -> None:
    """Two layers of which the second kernel can read what the call of the first gives; the race has all three ways."""
    init = "self.g=nn.Linear(2048, 5632, bias=False).bfloat16(); self.u=nn.Linear(2048, 5632, bias=False).bfloat16()"
    plan = read_plan(RegionCase("", "return F.silu(self.g(x))*self.u(x)", matrices("2048, 2048"), init), H200)
    assert sorted(plan.called.values()) == [Choice.APART, Choice.LIBRARY]
    (part,) = list_parts(plan, CARDS["h200"])
    assert part.now is Choice.APART and {one.name for one in part.contest.alternatives} == {"apart", "own", "library"}
    assert part.choose(Choice.APART) == dict(zip(part.nodes, (Choice.APART, Choice.LIBRARY), strict=True))
    paired = plan.take_cut(" ".join(f"{node}=own" for node in part.nodes))
    assert [bool(one.partner) for one in list_products(paired)] == [True]
    (again,) = list_parts(paired, CARDS["h200"])
    assert again.now is Choice.OWN and {*again.nodes} == {*part.nodes}
    called = plan.take_cut(" ".join(f"{node}=library" for node in part.nodes))
    (again,) = list_parts(called, CARDS["h200"])
    assert again.now is Choice.LIBRARY and any(isinstance(one, PointwiseRegion) for one in called.regions)


SPLIT = RegionCase("", "return self.o(x) + y", matrices("256, 64", "256, 640"), "self.o=nn.Linear(64, 640).bfloat16()", "x, y")
ROUNDS = change_card(hardware={"processors": 4}, calls={"matrix": 1e-9})
"""Four tiles of 128 x 320 are a round; tiles of 128 x 256 would be two."""


def test_tiles_of_two_sums_fill_the_rounds(evaluator: LocalEvaluator) -> None:
    task, facts = describe_case(SPLIT)
    plan = read_regions(task, facts, ROUNDS)
    (tile,) = choose_tiles(plan)
    assert (tile.rows, tile.columns, tile.second) == (128, 256, 64)
    text = write(plan)
    assert "[(4,)]" in text and "tl.range" not in text and "BLOCK_N=256" in text and "REST=64" in text
    assert "REST" not in write(plan, form=POINTERS)
    verdict = asyncio.run(evaluator.evaluate(task, text))
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.parametrize(("rows", "columns", "expected"), [(8192, 640, 64), (4096, 4096, 0), (8192, 642, 0)])
def test_powers_of_two_stay_where_rounds_gain_little(rows: int, columns: int, expected: int) -> None:
    """640 columns in one round; 4,096 go evenly, and 642 have no even strides."""
    own = change_card(calls={"matrix": 1e-9})
    case = RegionCase("", "return self.o(x)", matrices(f"{rows}, 640"), f"self.o=nn.Linear(640, {columns}).bfloat16()")
    plan = read_plan(case, own)
    (tile,) = choose_tiles(plan)
    assert tile.second == expected and tile.shared_bytes <= own.shared_per_block


def test_the_short_erf_is_exact_enough_for_sixteen_bits() -> None:
    """1 + erf(v) by the polynomial of the kernels, in double precision, beside math.erfc."""
    text = write(read_plan(CASES["two halves"], FEW))
    body = text[text.index("    x = tl.minimum(") : text.index("    return tl.where(v < 0.0, tail")]
    for place in range(-96, 97):
        v = place / 16
        names = {"v": v, "tl": _Numbers}
        exec("\n".join(line.strip() for line in body.splitlines()), names)
        tail = float(str(names["tail"]))
        assert tail == pytest.approx(math.erfc(abs(v)), rel=4e-5 if abs(v) <= 4 else 1.5e-3)


class _Numbers:
    """The functions of Triton that the polynomial needs, for one number."""

    class PropagateNan:
        ALL = None

    @staticmethod
    def minimum(a: float, b: float, propagate_nan: object = None) -> float:
        return min(a, b)

    abs = staticmethod(abs)
    exp2 = staticmethod(lambda x: 2.0**x)
