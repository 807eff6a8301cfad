"""What the built-in author writes for each task of a folder, made ahead of the card and kept in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tritonsmith.author.book import explain_refusal, match
from tritonsmith.benchmarks.kernelbench.rows.sheet import RecordFile
from tritonsmith.evaluator.caller.questions.describe import run_probe
from tritonsmith.evaluator.errors import InfrastructureError, TaskError
from tritonsmith.evaluator.schema import Hardware, Record
from tritonsmith.evaluator.tasks.files import choose_load_size, load_task, settle_task

_PROBES = 2
"""Tasks that are traced at the same time."""
_MESSAGE_CHARACTERS = 200


class AuthorPlan(Record):
    """What the built-in author makes of a task."""

    name: str
    card: str
    """Key of the card that it is for."""
    size: str
    """`full` or `small`."""
    recipe: str = ""
    """Empty where no recipe can write it."""
    calls: tuple[str, ...] = ()
    """What stays a PyTorch call."""
    reason: str = ""
    """Why no recipe can write it."""
    text: str = ""
    seconds: float = 0.0
    """Of a processor, to read, plan and write it; the trace is not counted."""
    exact: str = ""
    """The kernel with more exact products, for one that is refused as inaccurate; empty where the recipe has none."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What a plan is found by."""
        return self.name, self.card, self.size


class PlanFile(RecordFile[AuthorPlan]):
    """A file of plans, each found by its task, the card and the size."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, AuthorPlan, lambda plan: plan.key, "plan")


def plan_task(name: str, path: Path, hardware: Hardware, size: str = "full") -> AuthorPlan:
    """The kernel for a task on a card, or the reason why there is none."""
    plan = AuthorPlan(name=name, card=hardware.key, size=size)
    try:
        task = load_task(str(path), choose_load_size(size, hardware.present))
        facts, _ = run_probe(task)
        task = settle_task(task, facts)
    except (TaskError, InfrastructureError) as error:
        return plan.model_copy(update={"reason": " ".join(str(error).split())[:_MESSAGE_CHARACTERS]})
    begun = time.thread_time()
    found = match(task, facts, hardware)
    if found is None:
        return plan.model_copy(update={"reason": f"no recipe for {explain_refusal(task, facts, hardware)}"[:_MESSAGE_CHARACTERS]})
    recipe = found.recipes[-1]
    settings = recipe.defaults(found.plan, hardware, task.precision)
    assert settings is not None, "match() keeps only recipes that have settings"
    sharper = recipe.sharpen(settings)
    text, seconds = recipe.render(found.plan, settings), time.thread_time() - begun
    exact = recipe.render(found.plan, sharper) if sharper and recipe.fits(found.plan, sharper, hardware) else ""
    written = {"recipe": recipe.name, "exact": exact, "calls": found.plan.calls, "text": text, "seconds": seconds}
    return plan.model_copy(update=written)


def plan_tasks(
    tasks: Mapping[str, Path], hardware: Hardware, size: str, kept: PlanFile | None, tell: Callable[[AuthorPlan], None]
) -> list[AuthorPlan]:
    """A plan per task, in their order. Those in `kept` are not made again, and new ones are added to it."""
    known = {plan.key: plan for plan in kept.read()} if kept else {}

    def find(name: str) -> AuthorPlan:
        return known.get((name, hardware.key, size)) or plan_task(name, tasks[name], hardware, size)

    plans: list[AuthorPlan] = []
    with ThreadPoolExecutor(_PROBES) as pool:
        for plan in pool.map(find, tasks):
            if kept and plan.key not in known:
                kept.add(plan)
            tell(plan)
            plans.append(plan)
    return plans


def count_plans(plans: Iterable[AuthorPlan]) -> list[str]:
    """For each folder of tasks: how many have kernels of their own, how many of them alone, and how many have none."""
    folders: dict[str, list[AuthorPlan]] = {}
    for plan in plans:
        folders.setdefault(plan.name.rpartition("/")[0] or "tasks", []).append(plan)
    return [
        f"{folder}: {sum(bool(one.recipe) for one in found)} of {len(found)} have kernels of their own, "
        f"{sum(bool(one.recipe) and not one.calls for one in found)} of them without PyTorch calls"
        for folder, found in sorted(folders.items())
    ]


def describe_plan(plan: AuthorPlan) -> str:
    """A plan on one line of the screen."""
    if not plan.recipe:
        return f"{plan.name}: none, {plan.reason}"
    calls = f", PyTorch does {', '.join(plan.calls)}" if plan.calls else ""
    return f"{plan.name}: {plan.recipe}{calls}"
