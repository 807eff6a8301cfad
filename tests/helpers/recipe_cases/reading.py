"""What the probe and the author say of a case."""

from recipe_cases.regions import RegionCase
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
    return read_regions(*describe_case(RegionCase("one", forward, inputs, **rest)))  # type: ignore[arg-type]
