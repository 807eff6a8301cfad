"""Worked examples: recipes, which are proven right, rendered for a small module of the same family."""

from functools import cache

from tritonsmith.evaluator.schema import Hardware, PrecisionClass
from tritonsmith.prompts.author import Example
from tritonsmith.prompts.recipes.book import FAMILIES
from tritonsmith.prompts.recipes.kinds import Family
from tritonsmith.prompts.recipes.recipe import RecipeFamily

MOST_EXAMPLES = 2
"""Worked examples of one prompt."""


@cache
def worked_example(name: str, hardware: Hardware, precision: PrecisionClass) -> Example | None:
    """A recipe at a small size for this card and accuracy; None where it does not fit the card."""
    family, recipe = next((family, recipe) for family in FAMILIES for recipe in family.recipes if recipe.name == name)
    model = family.example
    settings = recipe.example_settings(model.plan, hardware, precision)
    if settings is None:
        return None
    title = f"a kernel that {recipe.describes}"
    return Example(title=title, source=recipe.render(model.plan, settings), reference=model.reference.strip(), note=recipe.lesson)


def recipe_names(families: tuple[Family, ...]) -> tuple[str, ...]:
    """Recipes that are worth showing for a task of these families, best first; those nearest to its first family."""
    family = _own_recipes(families[0]) or next(family for family in FAMILIES if families[0] in family.nearest_to)
    return tuple(recipe.name for recipe in reversed(family.recipes) if recipe.lesson)


def known_algorithms(families: tuple[Family, ...]) -> tuple[str, ...]:
    """What the recipes of the task's first family do, plainest first, for an analyst; empty without such recipes."""
    family = _own_recipes(families[0])
    return tuple(f"{recipe.name}: {recipe.describes}" for recipe in family.recipes) if family else ()


def _own_recipes(kind: Family) -> RecipeFamily | None:
    return next((family for family in FAMILIES if family.kind is kind), None)
