"""Writes in place: families that do not follow them leave such a forward to the one that does."""

import pytest

from recipe_cases.regions import RegionCase
from tritonsmith.author.book import match
from tritonsmith.author.writes import find_overwritten, list_given_writes
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task

GIVEN = {
    "return F.relu(x.mul_(2))": ("x",),
    "y = x.view(-1); y[2:4] = 0; z = x.exp(); z += 1; return z": ("x",),
    "y = F.relu(x, inplace=True); return y + 1": ("x",),
    "y = x.clone(); y += 1; return y": (),
}
"""By forward: the arguments that it writes to."""
SEEN = {
    "y = x * 2; z = y.add_(1); return y + z": True,
    "y = x * 2; z = y.view(-1); z.relu_(); return y": True,
    "y = x * 2; z = F.relu(y, inplace=True); return z + y": True,
    "y = x * 2; y = y.add_(1); y.clamp_(0, 1); return y.mul_(3)": True,
    "y = (x * 2).add_(1).relu_(); return y.contiguous() + 1": False,
}
"""By forward: whether it reads a tensor by its old name after a write."""


@pytest.mark.parametrize(("forward", "read_again"), SEEN.items(), ids=SEEN)
def test_readers_of_what_was_overwritten_are_found(forward: str, read_again: bool) -> None:
    task = Task(name="a_task", path="a_task.py", source=RegionCase("one", forward, "torch.randn(4, 5)").source())
    facts, _ = probe(task)
    assert (find_overwritten(facts.ops) is not None) is read_again
    matched = match(task, facts, CARDS["h200"])
    assert matched is not None and (matched.recipes[0].name == "pointwise") is not read_again


@pytest.mark.parametrize(("forward", "written"), GIVEN.items(), ids=GIVEN)
def test_arguments_get_what_forward_writes_to_them(forward: str, written: tuple[str, ...]) -> None:
    task = Task(name="a_task", path="a_task.py", source=RegionCase("one", forward, "torch.randn(4, 5)").source())
    facts, _ = probe(task)
    assert list_given_writes(facts.ops) == written
    matched = match(task, facts, CARDS["h200"])
    assert matched is not None and (matched.recipes[0].name == "regions" or not written)
    recipe = matched.recipes[0]
    settings = recipe.defaults(matched.plan, CARDS["h200"], facts.precision)
    assert settings is not None and ("detach().copy_(" in recipe.render(matched.plan, settings)) is bool(written)
