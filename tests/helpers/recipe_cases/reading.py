"""What the probe and the author say of a case."""

from dataclasses import replace

from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST, CardModel
from tritonsmith.author.compiler.plan import RegionPlan, read_regions
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task, TaskFacts


def describe_case(case: RegionCase) -> tuple[Task, TaskFacts]:
    """The task at its own precision, and the facts about it."""
    task = Task(name="a_task", path="a_task.py", source=case.source(), mode=case.mode)
    facts, _ = probe(task)
    return task.model_copy(update={"precision": facts.precision}), facts


def plan_of(forward: str, inputs: str = "torch.randn(4, 6)", **rest: str) -> RegionPlan:
    """The plan for a module of one line."""
    return read_regions(*describe_case(RegionCase("one", forward, inputs, **rest)), FIRST)  # type: ignore[arg-type]


def change_card(card: CardModel = FIRST, *, hardware: dict[str, int] | None = None, **parts: dict[str, float]) -> CardModel:
    """A card with other figures and fits, so that small tensors go the way of large ones: `change_card(rows={"l2_lost": 0.0})`."""
    fits = replace(card.fits, **{name: replace(getattr(card.fits, name), **changed) for name, changed in parts.items()})
    return CardModel(card.hardware.model_copy(update=hardware or {}), fits)


AHEAD = change_card(products={"window_flops": 0.0, "matrix_flops": 0.0, "filled_flops": 0.0})
"""A card on which a pass that splits operands ahead always pays."""
