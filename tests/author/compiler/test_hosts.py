"""Results that are made on the way to other results: the kernel that computes them stores them too, so nothing is read or written twice."""

import asyncio
import re

import pytest

from recipe_cases.reading import describe_case, plan_of
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.compiler.plan import RegionPlan, read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import Status

RECIPE = REGIONS.recipes[0]
TWO = "torch.empty(512, 1024, dtype=torch.{0}), torch.empty(512, 1024, dtype=torch.{0})"
PARTS = "self.n = nn.LayerNorm(1024, dtype=torch.{0}); self.r = nn.RMSNorm(1024, dtype=torch.{0}); "
PARTS += "self.w = nn.Parameter(torch.ones(1024, dtype=torch.{0})); self.l = nn.Linear(1024, 1024, dtype=torch.{0})"
BY_HAND = "v = h.float(); v = v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6); return v.to(x.dtype) * self.w, h"
ONE_LAUNCH = {
    "layer norm": "h = x + r; return self.n(h), h",
    "layer norm, the sum first": "h = x + r; return h, self.n(h)",
    "RMS norm": "h = x + r; return self.r(h), h",
    "RMS norm, a function": "h = x + r; return F.rms_norm(h, (1024,), self.w, 1e-6), h",
    "RMS norm by hand": f"h = x + r; {BY_HAND}",
    "softmax": "h = x + r; return h, torch.softmax(h, -1)",
    "a mean of a result": "y = F.gelu(x * self.w + r); return y, y.mean(-1)",
    "three results": "h = x + r; g = torch.tanh(h); return self.n(g), h, g",
    "two norms": "h = x + r; return h, torch.softmax(h, -1), self.n(h)",
    "a norm and more of it": "y = self.n(x + r); return y, y * 2",
    "a norm of a softmax": "y = torch.softmax(x + r, -1); return y, self.n(y)",
    "a running sum": "h = x + r; return h.cumsum(-1), h",
    "a sum of all": "h = torch.tanh(x + r); return h, h.sum(), h.amax()",
    "what shares an operand": "h = x + r; return torch.softmax(h, -1), x * r",
    "elements alone": "h = x + r; g = torch.tanh(h); return h, g, g * 2",
    "another shape": "h = (x + r).view(8, 64, 1024); return self.n(h), h",
    "a write in place": "x += r; return self.n(x)",
}


def plan(forward: str, dtype: str = "bfloat16", inputs: str = TWO) -> RegionPlan:
    return plan_of(forward, inputs.format(dtype), init=PARTS.format(dtype), arguments="x, r")


def write(found: RegionPlan) -> str:
    settings = RECIPE.defaults(found, CARDS["h100"], found.precision)
    assert settings is not None
    return RECIPE.render(found, settings)


@pytest.mark.parametrize("name", ONE_LAUNCH)
@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=pytest.mark.slow)])
def test_each_tensor_is_read_and_written_once_in_one_launch(name: str, dtype: str) -> None:
    found = plan(ONE_LAUNCH[name], dtype)
    (region,) = found.regions
    stored = {id(one): one for one in found.forward.stored}
    assert len(region.stores) == len(stored) and {one.name for one in region.reads.values()} <= {"x", "r", "w", "weight", "bias"}
    text = write(found)
    kernel = text[text.index("@triton.jit") : text.index("COMPILED =")]
    assert kernel.count("tl.load(x_ptr") == kernel.count("tl.load(r_ptr") == 1
    assert len(re.findall(r"tl\.store\((?!\w+_parts)", kernel)) == len(stored)


def test_what_a_product_reads_is_stored_by_the_norm() -> None:
    for forward in ("h = x + r; return self.n(h), self.l(h), h", "h = x + r; return self.l(h), self.n(h), h"):
        norm, product = plan(forward).regions
        assert [len(norm.reads), len(norm.stores)] == [4, 2] and norm.stores[0] in product.reads.values()


def test_what_a_later_norm_is_made_of_is_stored_ahead() -> None:
    """The product needs the sum, and the norm needs the product, so no kernel of the norm can store the sum in time."""
    first, *_, last = plan("h = x + r; return self.n(h + self.l(h)), h").regions
    assert [one.name for one in first.stores] == ["add"] and first is not last


def test_elements_at_other_places_are_not_stored_on_the_way() -> None:
    """A norm along columns meets the sum's elements in another order; a shifted result is read from memory, and not computed again."""
    turned = plan("h = x + r; return F.layer_norm(h.t(), (512,)), h")
    shifted = plan("h = torch.softmax(x + r, -1); return h, h.flip(-1) * 2")
    assert len(turned.regions) == len(shifted.regions) == 2


@pytest.mark.parametrize(("inputs", "launches"), [
    ("torch.empty(256, 60000, dtype=torch.{0}), torch.empty(256, 60000, dtype=torch.{0})", 1),
    ("torch.empty(2, 60000, dtype=torch.{0}), torch.empty(2, 60000, dtype=torch.{0})", 2),
    ("torch.empty(2, 1024, dtype=torch.{0}), torch.empty(2, 1024, dtype=torch.{0})", 1),
], ids=["many long rows", "two long rows", "two short rows"])  # fmt: skip
def test_two_programs_leave_long_rows_to_the_whole_card(inputs: str, launches: int) -> None:
    """A launch more costs less than the time in which two processors move what all of them could."""
    assert len(plan("h = x + r; return torch.softmax(h, -1), h", inputs=inputs).regions) == launches


def test_other_leading_sizes_stay_free() -> None:
    assert plan("h = x + r; return self.n(h), h").free is not None


@pytest.mark.parametrize(("forward", "dtype", "casts"), [
    ("h = x + r; return self.n(h), h", "bfloat16", 1),
    ("h = x + r; return self.n(h)", "bfloat16", 0),
    ("h = (x.float() + r.float()).to(x.dtype); return self.n(h), h", "bfloat16", 1),
    ("h = x + r; return self.n(h), h", "float32", 0),
    ("h = x + r; return h, h * 2", "bfloat16", 1),
    ("m = (x + r).mean(-1, keepdim=True); return x - m, m", "bfloat16", 0),
], ids=["returned too", "not returned", "rounded by forward", "fp32", "elements alone", "a number of a row"])  # fmt: skip
def test_what_others_see_rounded_is_used_rounded(forward: str, dtype: str, casts: int) -> None:
    assert write(plan(forward, dtype)).count(".to(tl.bfloat16).to(tl.float32)") == casts


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_rms_norm_adds_the_epsilon_of_the_type_that_it_computes_in(dtype: str) -> None:
    """PyTorch computes with 16 bits in fp32, and takes the epsilon of that."""
    assert f"+ {2**-23})" in write(plan("h = x + r; return self.r(h), h", dtype))


CASES = [
    RegionCase("a norm of what it returns", "h = x + r; return self.n(h), h", "torch.randn(5, 96).half() + 64, torch.randn(5, 96).half()",
               init="self.n = nn.LayerNorm(96).half()", arguments="x, r"),
    RegionCase("bf16 by hand", BY_HAND.join(["h = x + r; ", ""]), "torch.randn(7, 130).bfloat16(), torch.randn(7, 130).bfloat16()",
               init="self.w = nn.Parameter(torch.rand(130).bfloat16())", arguments="x, r"),
    RegionCase("rows in blocks", "h = x + r; return h, self.n(h)", "torch.randn(40, 20000), torch.randn(40, 20000)",
               init="self.n = nn.LayerNorm(20000)", arguments="x, r"),
    RegionCase("programs that share a row", "h = torch.tanh(x); return h, h.sum(-1), h.amax(-1)", "torch.randn(2, 70001)"),
    RegionCase("along channels", "h = x + r; return torch.softmax(h, 1), h", "torch.randn(3, 8, 6, 9), torch.randn(3, 8, 6, 9)",
               arguments="x, r"),
    RegionCase("behind a product", "y = self.l(x); h = r * 2; return y + h, h, F.relu(y)", "torch.randn(20, 32), torch.randn(20, 48)",
               init="self.l = nn.Linear(32, 48)", arguments="x, r"),
    RegionCase("statistics", "h = F.relu(x + r); return self.b(h), h", "torch.randn(4, 3, 5, 6), torch.randn(4, 3, 5, 6)",
               init="self.b = nn.BatchNorm2d(3)", arguments="x, r", mode="train"),
]  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if number else []) for number, case in enumerate(CASES)], ids=lambda one: one.name
)
def test_such_kernels_are_right(evaluator: LocalEvaluator, case: RegionCase) -> None:
    task, facts = describe_case(case)
    found = read_regions(task, facts, FIRST)
    verdict = asyncio.run(evaluator.evaluate(task, write(found)))
    assert verdict.status is Status.OK and not verdict.facts.races, verdict.message
