"""The prompts with recipes, which are proven right, as worked examples: each for a small module of the same family."""

from functools import cache
from pathlib import Path

from tritonsmith.author.book import FAMILIES
from tritonsmith.author.recipe import RecipeFamily
from tritonsmith.evaluator.schema import Hardware, PrecisionClass
from tritonsmith.prompts.author import Brief, Example
from tritonsmith.prompts.kinds import Family
from tritonsmith.prompts.templates import render


class RecipeExamples:
    """The recipe book as a book of examples."""

    folder = Path(__file__).parent

    def name_examples(self, families: tuple[Family, ...]) -> tuple[str, ...]:
        """Recipes that are worth showing for a task of these families, best first; those nearest to its first family."""
        family = _own_recipes(families[0]) or next(family for family in FAMILIES if families[0] in family.nearest_to)
        return tuple(recipe.name for recipe in reversed(family.recipes) if recipe.lesson)

    def write_example(self, name: str, hardware: Hardware, precision: PrecisionClass) -> Example | None:
        """A recipe at a small size for this card and accuracy; None where it does not fit the card."""
        return _write_example(name, hardware, precision)

    def list_algorithms(self, families: tuple[Family, ...]) -> tuple[str, ...]:
        """What the recipes of the task's first family do, plainest first, for an analyst; empty without such recipes."""
        family = _own_recipes(families[0])
        return tuple(f"{recipe.name}: {recipe.describes}" for recipe in family.recipes) if family else ()


EXAMPLES = RecipeExamples()
"""The examples of the recipe book."""


def prompt_for(stage: str, brief: Brief) -> render.Prompt:
    """The prompt of a stage for a brief, with recipes as worked examples: `render.prompt_for`."""
    return render.prompt_for(stage, brief, EXAMPLES)


def digest() -> str:
    """The digest of everything that prompts are made of, recipes included: `render.digest`."""
    return render.digest(EXAMPLES.folder)


@cache
def _write_example(name: str, hardware: Hardware, precision: PrecisionClass) -> Example | None:
    family, recipe = next((family, recipe) for family in FAMILIES for recipe in family.recipes if recipe.name == name)
    model = family.example
    settings = recipe.example_settings(model.plan, hardware, precision)
    if settings is None:
        return None
    title = f"a kernel that {recipe.describes}"
    return Example(title=title, source=recipe.render(model.plan, settings), reference=model.reference.strip(), note=recipe.lesson)


def _own_recipes(kind: Family) -> RecipeFamily | None:
    return next((family for family in FAMILIES if family.kind is kind), None)
