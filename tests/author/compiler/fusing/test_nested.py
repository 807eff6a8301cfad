"""Values that are joined again and again are stored on the way, so that no element's place is taken apart many times."""

from recipe_cases.reading import describe_case
from recipe_cases.regions import MODULES
from tritonsmith.author.cards.model import model_card
from tritonsmith.author.compiler.plan import read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.cards.cards import CARDS


def test_shuffles_in_a_row_are_cut_apart() -> None:
    card = model_card(CARDS["h200"])
    (case,) = (case for case in MODULES if case.name == "channels that are shuffled several times")
    task, facts = describe_case(case)
    plan = read_regions(task, facts, card)
    recipe = REGIONS.recipes[0]
    settings = recipe.defaults(plan, card.hardware, plan.precision)
    assert settings is not None
    text = recipe.render(plan, settings)
    loads = [kernel.count("tl.load(") for kernel in text.split("@triton.jit")[1:]]
    assert len(loads) > 1 and max(loads) <= 8, "five in one kernel would have 32"
