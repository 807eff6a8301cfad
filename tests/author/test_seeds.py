"""First kernels of the built-in author: a recipe of its own for each, then other settings."""

import asyncio

from recipe_cases.regions import RegionCase
from tritonsmith.author.built_in import RecipeAuthor
from tritonsmith.author.space import RecipeSpace, space_of
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Candidate, Stage, Task
from tritonsmith.prompts.author import Attempt, Brief


def test_each_seed_of_a_single_recipe_has_a_text_of_its_own() -> None:
    case = RegionCase("", "return torch.softmax(x, -1)", "torch.randn(32, 300)")
    task = Task(name="a_task", path="a_task.py", source=case.source())
    facts = probe(task)[0]
    briefs = [Brief(task=task, facts=facts, hardware=CARDS["h200"], branch=branch) for branch in range(3)]
    drafts = [asyncio.run(RecipeAuthor().seed(brief)) for brief in briefs]
    assert {draft.recipe for draft in drafts} == {"regions"} and len({draft.source for draft in drafts}) == 3


def test_a_seed_of_another_family_is_tuned_by_its_own_recipe() -> None:
    case = RegionCase("", "return torch.relu(x)*2", "torch.randn(32, 300)")
    task = Task(name="a_task", path="a_task.py", source=case.source())
    brief = Brief(task=task, facts=probe(task)[0], hardware=CARDS["h200"], branch=1)
    draft = asyncio.run(RecipeAuthor().seed(brief))
    candidate = Candidate(id="c", sha="0", stage=Stage.SEED, recipe=draft.recipe, settings=draft.settings)
    space = space_of(brief.model_copy(update={"current": Attempt(candidate=candidate, source=draft.source)}))
    assert draft.recipe == "regions" and isinstance(space, RecipeSpace) and space.recipe_name == "regions"
