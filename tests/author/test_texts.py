"""The texts of the built-in author are those whose digests are kept: a change of a text is meant, or it is a fault.

`python tests/author/test_texts.py` brings tests/author/texts.json up to date.
"""

import json
import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from recipe_cases import attention, declared, products, regions, unseen
from tritonsmith.author.book import explain_refusal, match
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task

DIGESTS = Path(__file__).with_name("texts.json")
CARD = named_card("h200")
EVERY = 12
"""One case in so many is part of the quick tests."""


def list_cases():
    lists = [*vars(attention).values(), products.PRODUCTS, regions.MODULES, unseen.UNSEEN, declared.DECLARED]
    cases = [case for group in lists if isinstance(group, list) for case in group if hasattr(case, "source")]
    return {case.name: case for case in cases}


def digest_case(case):
    task = Task(name="task", path="task.py", source=case.source(), mode=case.mode)
    facts, _ = probe(task)
    task = task.model_copy(update={"precision": facts.precision})
    found = match(task, facts, CARD)
    if found is None:
        return text_sha(explain_refusal(task, facts, CARD))
    recipe = found.recipes[-1]
    settings = recipe.defaults(found.plan, CARD, task.precision)
    return text_sha(f"{recipe.name}\n{recipe.render(found.plan, settings)}")


CASES = list_cases()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if at % EVERY == 0 else [pytest.mark.slow]) for at, name in enumerate(sorted(CASES))]
)
def test_a_text_is_the_one_that_is_kept(name):
    assert digest_case(CASES[name]) == json.loads(DIGESTS.read_text())[name], "meant? then: python tests/author/test_texts.py"


def test_every_case_is_kept():
    assert json.loads(DIGESTS.read_text()).keys() == CASES.keys()


if __name__ == "__main__":
    DIGESTS.write_text(json.dumps({name: digest_case(case) for name, case in sorted(CASES.items())}, indent=0) + "\n")
