"""What the built-in author cannot write is named in the words of the task, with its line, and docs/recipes.md lists what it can write."""

import importlib.util
import textwrap
from types import ModuleType

import pytest

from project import ROOT
from tritonsmith.author.book import BOOK, match
from tritonsmith.author.built_in import RecipeAuthor
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.operations import OPERATIONS
from tritonsmith.author.compiler.plan import RegionPlan
from tritonsmith.author.families.chain.plan import ChainPlan
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import OpNode, Task, TaskFacts
from tritonsmith.prompts.author import AuthorError
from tritonsmith.prompts.node_names import MODULES

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
INIT

    def forward(self, x):
FORWARD


def get_inputs():
    return [INPUT]


def get_init_inputs():
    return []
"""
ROWS = "torch.rand(8, 32)"
STEPS = "torch.rand(4, 8, 32)"


def task(init: str, forward: str, given: str) -> Task:
    """A task of these lines; lines of a part are parted by semicolons."""
    lines = {"INIT": init or "pass", "FORWARD": forward}
    source = HEAD.replace("INPUT", given)
    for name, text in lines.items():
        source = source.replace(name, textwrap.indent("\n".join(text.split("; ")), " " * 8))
    return Task(name="mine", path="mine.py", source=source)


REFUSALS = [
    ("", "return torch.pinverse(x)", ROWS, "torch.pinverse (line 13: return torch.pinverse(x))"),
    ("self.c = nn.Conv3d(1, 4, 3).double()", "return self.c(x)", "torch.rand(1, 1, 5, 6, 7).double()",
     "nn.Conv3d (line 13: return self.c(x))"),
    ("", "v = torch.pinverse(x); v = torch.linalg.svdvals(v); return torch.linalg.pinv(v[None])", ROWS,
     "torch.pinverse (line 13: v = torch.pinverse(x)), torch.linalg.svdvals (line 14: v = torch.linalg.svdvals(v)), "
     "torch.linalg.pinv (line 15: "),
    ("self.a = nn.Linear(32, 16).double()", "return self.a(x)", "torch.rand(8, 32).double()", "the float64 input x"),
    ("", "return torch.bincount(x), x * 2", "torch.randint(0, 9, (40,))",
     "torch.bincount, whose values decide a shape (line 13: return torch.bincount(x), x * 2)"),
    ("", "return torch.repeat_interleave(x, torch.arange(8), 0) * 2", ROWS,
     "torch.repeat_interleave, whose values decide a shape (line 13: return torch.repeat_interleave("),
    ("self.register_buffer('n', torch.tensor(3))", "return x[:, : int(self.n)] * 2", ROWS,
     "this forward (it goes by the values of tensors, line 13: return x[:, : int(self.n)] * 2);"),
    ("", "return F.one_hot(x), x * 2", "torch.randint(0, 9, (40,))",
     "F.one_hot, whose values decide a shape (line 13: return F.one_hot(x), x * 2)"),
    ("self.c = torch.rand(32)", "return x * self.c", ROWS, "self.c, which is neither a parameter nor a persistent buffer (line 13: "),
    ("self.c = [nn.Linear(32, 32)] * 2", "for c in self.c: x = F.relu(c(x)); return x", ROWS,
     "a tensor that forward neither gets nor makes, and that is neither a parameter nor a persistent buffer (line 13: for c in"),
    ("self.c = torch.rand(8, 32)", "self.c[1:].copy_(x[1:]); return x * self.c", ROWS, "self.c, which is neither a parameter nor a"),
    ("", "return x if x.sum() > 0 else -x", ROWS,
     "this forward (it goes by the values of tensors, line 13: return x if x.sum() > 0 else -x);"),
    ("", "return F.triplet_margin_with_distance_loss(x, x, x, distance_function=nn.PairwiseDistance(p=1))", ROWS,
     "F.triplet_margin_with_distance_loss (line 13: "),
    ("self.g = nn.LSTM(32, 8, proj_size=4)", "return self.g(x)[0]", STEPS, "an nn.LSTM with proj_size (line 13: "),
    ("self.g = nn.GRU(32, 8).double()", "return self.g(x)[0]", f"{STEPS}.double()", "nn.GRU on float64 (line 13: "),
]  # fmt: skip


@pytest.mark.parametrize(("init", "forward", "given", "named"), REFUSALS, ids=[f"{one[0]} {one[1]}".strip() for one in REFUSALS])
def test_a_refusal_names_what_is_missing_and_the_way_out(init: str, forward: str, given: str, named: str) -> None:
    one = task(init, forward, given)
    facts, _ = probe(one)
    with pytest.raises(AuthorError) as refused:
        RecipeAuthor().require(one, facts, CARDS["h200"])
    said = str(refused.value)
    assert said.startswith(f"mine.py: the built-in author has no recipe for {named}")
    assert "; docs/recipes.md lists what it can; " in said and said.endswith("--model openai:NAME [--base-url URL]")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("init", "forward", "given"),
    [
        ("self.w = nn.Parameter(torch.rand(8, 8))", "return torch.addmm(x.t(), x, self.w)", "torch.rand(8, 8)"),
        ("self.c = nn.Conv3d(1, 4, 3)", "return self.c(x)", "torch.rand(1, 1, 5, 6, 7)"),
        ("", "v = torch.pinverse(x); return torch.bmm(v[None], v.t()[None])", ROWS),
    ],
)
def test_a_slow_kernel_is_written_where_there_would_be_none(init: str, forward: str, given: str) -> None:
    """Products that a library would do as fast are calls next to other kernels; alone they are kernels."""
    one = task(init, forward, given)
    found = match(one, probe(one)[0], CARDS["h200"])
    assert found is not None and isinstance(found.plan, RegionPlan)
    assert any(isinstance(region, ProductRegion) for region in found.plan.regions)


@pytest.mark.parametrize(
    ("forward", "free"), [("return torch.relu(x) + 1", 2), ("if x.shape[0] < 4: raise ValueError; return torch.relu(x) + 1", 0)]
)
def test_a_forward_that_goes_by_sizes_is_written_for_its_own_size(forward: str, free: int) -> None:
    one = task("", forward, ROWS)
    found = match(one, probe(one)[0], CARDS["h200"])
    assert found is not None and isinstance(found.plan, ChainPlan)
    assert found.plan.sizes.free == free
    assert ("x.shape != (8, 32)" in found.plan.sizes.wrong) == (free == 0)


def test_a_task_that_was_not_traced_is_refused() -> None:
    """Facts of another evaluator may hold no trace and no reason."""
    with pytest.raises(AuthorError, match=r"no recipe for this forward \(it was not traced\)"):
        RecipeAuthor().require(task("", "return x", ROWS), TaskFacts(), CARDS["h200"])
    cut = TaskFacts(ops=(OpNode(name="x", op="placeholder", target="x"),), ops_left_out=9000)
    with pytest.raises(AuthorError, match=r"no recipe for this forward \(it has 9001 operators\)"):
        RecipeAuthor().require(task("", "return x", ROWS), cut, CARDS["h200"])


def load_table() -> ModuleType:
    """The script docs/recipes.py as a module."""
    spec = importlib.util.spec_from_file_location("recipes_table", ROOT / "docs" / "recipes.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_recipes_is_the_book() -> None:
    table = load_table()
    page = (ROOT / "docs" / "recipes.md").read_text()
    written = page[page.index(table.BEGIN) : page.index(table.END) + len(table.END)]
    assert written == table.table(), "run: python docs/recipes.py --write"
    assert all(f"`{name}`" in written for name in BOOK)
    assert {*OPERATIONS, *MODULES} - {"identity"} <= {*written.split("```")[1].replace("nn.", "").split()}


CALLS = {"add": "torch.add(x, x)", "sub": "torch.sub(x, x)", "mul": "torch.mul(x, x)", "div": "torch.div(x, x)", "pow": "torch.pow(x, 2)",
         "maximum": "torch.maximum(x, x)", "minimum": "torch.minimum(x, x)", "clamp": "torch.clamp(x, 0, 1)"}  # fmt: skip


@pytest.mark.parametrize("name", sorted({*OPERATIONS, *MODULES} - {"identity"}))
def test_every_name_of_the_page_has_a_recipe(name: str) -> None:
    """Every operation that the page lists is one of torch, and gets a recipe."""
    call = CALLS.get(name) or (f"F.{name}(x)" if name not in dir(__import__("torch")) else f"torch.{name}(x)")
    one = task(f"self.m = nn.{name}()", "return self.m(x)", ROWS) if name in MODULES else task("", f"return {call}", ROWS)
    facts, _ = probe(one)
    found = match(one, facts, CARDS["h200"])
    assert found is not None and [recipe.name for recipe in found.recipes] == ["pointwise"]
