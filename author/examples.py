"""The prompts with worked examples: kernels written by hand that fit the task, and for recurrent layers a recipe of the book."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tritonsmith.author.book import FAMILIES
from tritonsmith.author.recipe import RecipeFamily
from tritonsmith.author.worked_examples import WORKED, choose_worked, read_worked
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Task, TaskFacts
from tritonsmith.prompts.author import Brief, Example
from tritonsmith.prompts.kinds import Family
from tritonsmith.prompts.templates import render


class WorkedExamples:
    """What prompts may show as worked examples."""

    folder = Path(__file__).parent

    def name_examples(self, families: tuple[Family, ...], task: Task, facts: TaskFacts) -> tuple[str, ...]:
        """Examples that fit a task, best first. Layers of cells in fp32 get a recipe: no short kernel has its exchange between programs."""
        chosen = choose_worked(families, task, facts)
        family = _own_recipes(families[0]) if families[0] is Family.RECURRENT and facts.serial_steps > 1 else None
        if family is None or task.precision is PrecisionClass.HALF:
            return chosen
        return (*(recipe.name for recipe in reversed(family.recipes) if recipe.lesson), *chosen)

    def write_example(self, name: str, hardware: Hardware, precision: PrecisionClass) -> Example | None:
        """An example written by hand, or a recipe at a small size for this card and accuracy; None where that does not fit the card."""
        return read_worked(name) if name in WORKED else _write_example(name, hardware, precision)

    def list_algorithms(self, families: tuple[Family, ...]) -> tuple[str, ...]:
        """What the recipes of the task's first family do, plainest first, for an analyst; empty without such recipes."""
        family = _own_recipes(families[0])
        return tuple(f"{recipe.name}: {recipe.describes}" for recipe in family.recipes) if family else ()


EXAMPLES = WorkedExamples()
"""All worked examples."""


def prompt_for(stage: str, brief: Brief, without: Sequence[str] = ()) -> render.Prompt:
    """The prompt of a stage for a brief, with the worked examples, without some of `render.BLOCKS`: `render.prompt_for`."""
    return render.prompt_for(stage, brief, EXAMPLES, without)


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
