"""Matrix products: every form, scheme and range of values in the interpreter; what is read, refused, and offered; the compiled text."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tritonsmith.author.book import BOOK, Match, list_matches, match
from tritonsmith.author.families.chain.product import ProductPlan
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.oracle.checks.correctness import RMS_FACTOR
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task
from tritonsmith.evaluator.texts.advice.advise import advise

FORMS = Path(__file__).parent / "product_forms.py"
H200 = CARDS["h200"]
PRODUCT = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear({inner}, {columns}){type}
    def forward(self, x):
        return nn.functional.gelu(self.fc(x))
def get_inputs():
    return [torch.randn({rows}, {inner}){type}]
def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[str, dict[str, float]]]:
    """Errors over the reference's own, by group, case and kernel; one process computes them all in the interpreter."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, FORMS], capture_output=True, text=True, check=False, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, dict[str, float]]] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_every_form_and_scheme_is_as_exact_as_its_class(errors: dict[str, dict[str, dict[str, float]]]) -> None:
    forms = errors["forms"]
    coarse = {kernel for kernel in forms["linear"] if kernel.endswith(("fp16", "tf32"))}
    for form, found in forms.items():
        for kernel, error in found.items():
            assert kernel in coarse or error <= RMS_FACTOR, (form, kernel, error)
    assert all(RMS_FACTOR < forms["linear"][kernel] <= forms["linear"]["loop tf32"] for kernel in coarse), forms["linear"]


@pytest.mark.slow
def test_every_range_of_fp32_is_as_exact_as_the_reference(errors: dict[str, dict[str, dict[str, float]]]) -> None:
    """From 1e-40 to 1e37, in rows and columns of other sizes, with zeros, infinity and NaN where the reference has them."""
    for kind, found in errors["ranges"].items():
        for kernel, error in found.items():
            assert error <= RMS_FACTOR or (kernel == "parts fp16" and error < 3e4), (kind, kernel, error)


@pytest.mark.slow
def test_parts_of_a_weight_follow_the_weight(errors: dict[str, dict[str, dict[str, float]]]) -> None:
    assert {name.partition(", ")[2] for name in errors["changes"]} == {"first", "again", "in place", "replaced"}
    assert all(error <= RMS_FACTOR for error in errors["changes"].values())  # type: ignore[operator]


def product_task(rows: int, inner: int, columns: int, precision: PrecisionClass = PrecisionClass.IEEE, half: bool = False) -> Task:
    source = PRODUCT.format(rows=rows, inner=inner, columns=columns, type=".half()" if half else "")
    return Task(name="mine", path="mine.py", source=source, precision=precision)


def match_product(task: Task) -> Match:
    """What the family of products makes of a task, whichever family writes it."""
    return next(found for found in list_matches(task, probe(task)[0], H200) if isinstance(found.plan, ProductPlan))


def offered(task: Task) -> list[str]:
    return [recipe.name for recipe in match_product(task).recipes]


def test_the_family_that_should_be_faster_writes_a_product() -> None:
    """Few tiles and a great depth are the product's; a task with several sizes gets kernels that take them."""
    large, deep = product_task(4096, 4096, 4096), product_task(256, 65536, 256)
    sized = large.model_copy(update={"source": f"rows = 4096\n{large.source}SHAPES = [{{'rows': 8}}]\n"})
    found = {name: match(task, probe(task)[0], H200) for name, task in (("large", large), ("deep", deep), ("sized", sized))}
    assert {name: isinstance(one.plan, ProductPlan) for name, one in found.items() if one} == {"large": False, "deep": True, "sized": True}


def test_operands_are_split_ahead_where_the_product_is_large() -> None:
    assert offered(product_task(4096, 4096, 4096)) == ["product", "product_in_parts"]
    assert offered(product_task(1024, 4096, 4096)) == ["product", "product_in_parts"]
    assert offered(product_task(4096, 4096, 4096, PrecisionClass.TF32)) == ["product", "product_in_parts"]
    assert offered(product_task(128, 1024, 512)) == ["product"]
    assert offered(product_task(4096, 4096, 4096, PrecisionClass.HALF, half=True)) == ["product"]


@pytest.mark.parametrize(
    ("sizes", "slices"), [((256, 65536, 256), 32), ((256, 65600, 256), 25), ((4096, 4096, 4096), 1), ((64, 256, 64), 1)]
)
def test_programs_share_the_depth_where_there_are_few_tiles(sizes: tuple[int, int, int], slices: int) -> None:
    task = product_task(*sizes)
    found = match_product(task)
    assert (found.recipes[0].defaults(found.plan, H200, PrecisionClass.IEEE) or {})["split_k"] == slices


def test_the_schemes_follow_the_class() -> None:
    for precision, loop, parts in (("ieee", "fp16x3", "fp16x3"), ("split", "fp16x3", "fp16x3"), ("tf32", "tf32", "fp16")):
        task = product_task(4096, 4096, 4096, PrecisionClass(precision))
        found = match_product(task)
        settings = [recipe.defaults(found.plan, H200, task.precision) or {} for recipe in found.recipes]
        assert [one["scheme"] for one in settings] == [loop, parts]
        assert all(recipe.fits(found.plan, one, H200) for recipe, one in zip(found.recipes, settings, strict=True))


@pytest.mark.parametrize("precision", list(PrecisionClass))
def test_the_text_gets_no_advice(precision: PrecisionClass) -> None:
    task = product_task(4096, 4096, 4096, precision)
    found = match_product(task)
    for recipe in found.recipes:
        assert advise(recipe.render(found.plan, recipe.defaults(found.plan, H200, precision) or {}), precision) == ()


def test_a_sum_in_fp32_is_no_accumulator_of_the_tensor_core() -> None:
    """Triton moves `total += tl.dot(a, w)` into the product of fp16 operands; two forms keep it out."""
    task = product_task(4096, 4096, 4096)
    found = match_product(task)
    recipe = BOOK["product_in_parts"]
    settings = recipe.defaults(found.plan, H200, PrecisionClass.IEEE) or {}
    assert "total_block = tl.dot(a_high, w_high, max_num_imprecise_acc=1)" in recipe.render(found.plan, settings)
    assert "total += tl.dot(a_high, w_high, total_rest * " in recipe.render(found.plan, settings | {"carried": False})


@pytest.mark.slow
@pytest.mark.parametrize("precision", [PrecisionClass.IEEE, PrecisionClass.TF32])
def test_the_text_of_a_large_product_fits_an_h200(precision: PrecisionClass) -> None:
    """The default tile compiles into shared memory, with hardly a register spilled; the kernel is right in the evaluator."""
    task = product_task(70, 90, 100, precision)
    found, wide = match_product(task), match_product(product_task(4096, 4096, 4096, precision))
    recipe = BOOK["product_in_parts"]
    text = recipe.render(found.plan, recipe.defaults(wide.plan, H200, precision) or {})

    async def judge() -> None:
        evaluator = LocalEvaluator("h200")
        try:
            verdict = await evaluator.evaluate(task, text)
        finally:
            await evaluator.aclose()
        assert verdict.status is Status.OK and not verdict.facts.races, verdict.message
        kernel = next(kernel for kernel in verdict.facts.kernels if kernel.name == "product")
        assert (kernel.shared_memory or 0) <= H200.shared_per_block and (kernel.spills or 0) <= 32, kernel

    asyncio.run(judge())
