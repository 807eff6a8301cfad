"""Small modules across all families: the built-in author's kernels are accepted without a card. `make test-all` judges all of them."""

import asyncio

import pytest

from recipe_cases.families import FAMILIES
from recipe_cases.regions import RegionCase
from recipe_cases.unseen import UNSEEN
from tritonsmith.author.book import match
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Label, Status, Task

QUICK = ("resampling",)
"""Judged in every run: elements at computed places."""


def judge(evaluator: LocalEvaluator, case: RegionCase) -> None:
    task = Task(name="a_task", path="a_task.py", source=case.source(), mode=case.mode)
    facts, _ = probe(task)
    task = task.model_copy(update={"precision": facts.precision})
    found = match(task, facts, evaluator.hardware)
    assert found is not None
    recipe = found.recipes[-1]
    settings = recipe.defaults(found.plan, evaluator.hardware, task.precision)
    assert settings is not None
    verdict = asyncio.run(evaluator.evaluate(task, recipe.render(found.plan, settings)))
    assert verdict.status is Status.OK, verdict.message
    assert verdict.facts.kernels and not verdict.facts.races
    assert found.plan.calls or verdict.label is not Label.LIBRARY


@pytest.mark.parametrize("case", [case for case in (*FAMILIES, *UNSEEN) if case.name in QUICK], ids=lambda case: case.name)
def test_computed_places_are_right(evaluator: LocalEvaluator, case: RegionCase) -> None:
    judge(evaluator, case)


@pytest.mark.parametrize(("function", "called"), [("exp", True), ("relu", False)])
def test_a_chain_imports_the_device_library_where_it_calls_it(function: str, called: bool) -> None:
    task = Task(name="a_task", path="a_task.py", source=RegionCase("one", f"return torch.{function}(x) * 2", "torch.randn(4, 6)").source())
    facts, _ = probe(task)
    found = match(task, facts, CARDS["h200"])
    assert found is not None and found.recipes[0].name == "pointwise"
    text = found.recipes[0].render(found.plan, {"block": 64, "tiles": 1, "num_warps": 1, "replayed": False})
    assert (f"libdevice.{function}(" in text) is called and ("import libdevice" in text) is called


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in (*FAMILIES, *UNSEEN) if case.name not in QUICK], ids=lambda case: case.name)
def test_every_family_is_accepted(evaluator: LocalEvaluator, case: RegionCase) -> None:
    judge(evaluator, case)
