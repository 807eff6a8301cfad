"""First kernels of the built-in author: a recipe of its own for each, then other settings."""

import asyncio

from recipe_cases.regions import RegionCase
from tritonsmith.evaluator.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.recipes.author import RecipeAuthor


def test_each_seed_of_a_single_recipe_has_a_text_of_its_own() -> None:
    case = RegionCase("", "return torch.softmax(x, -1)", "torch.randn(32, 300)")
    task = Task(name="a_task", path="a_task.py", source=case.source())
    facts = probe(task)[0]
    briefs = [Brief(task=task, facts=facts, hardware=CARDS["h200"], branch=branch) for branch in range(3)]
    drafts = [asyncio.run(RecipeAuthor().seed(brief)) for brief in briefs]
    assert {draft.recipe for draft in drafts} == {"regions"} and len({draft.source for draft in drafts}) == 3
