"""What a recipe is and what a family of recipes is: the record that each folder of recipes fills in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.cost import time_launches
from tritonsmith.author.measured import Measured
from tritonsmith.author.plan import KernelPlan
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Stage, Task, TaskFacts
from tritonsmith.prompts.analysis import Analysis, Category, Complexity, Promise
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.kinds import Family
from tritonsmith.prompts.regions import RegionRow, list_kernels

Settings = dict[str, int | float | bool | str]


def fit_always(plan: KernelPlan, settings: Settings, hardware: Hardware) -> bool:
    """The rule of recipes that every card can run with every setting."""
    return True


def predict_floor(plan: KernelPlan, found: Measured, brief: Brief) -> float:
    """Milliseconds of a kernel that reaches the card's limit in one launch."""
    return max(found.floor_ms, time_launches() * 1e3)


def propose_fusion(plan: KernelPlan, found: Measured, brief: Brief) -> Analysis:
    """The proposal to do everything in one launch."""
    return Analysis(
        bottleneck=f"{found.launches} launches pass intermediate results through memory: {found.median_ms:.3g} ms, where reading every "
        f"operand and writing the result once takes {found.memory_ms:.3g} ms",
        optimisation_method="fuse the chain into one kernel",
        modification_plan="Read every operand once, keep intermediate values in registers, write the result once.",
        category=Category.FUSION,
        implementation_complexity=Complexity.LOW,
        promise=Promise(metric="launches_per_forward", before=found.launches, bound=1),
    )


@dataclass(frozen=True)
class Recipe:
    """One kernel text with its settings, its prediction and its proposal."""

    name: str
    level: int
    """From 0, a plain first attempt, to the best known algorithm of the family."""
    template: str
    """Its path below the folder of recipes."""
    describes: str
    """What the kernel does, as the end of a sentence."""
    defaults: Callable[[KernelPlan, Hardware, PrecisionClass], Settings | None]
    """Plain settings for this plan, or None where the recipe does not fit the card."""
    tunables: Mapping[Stage, Mapping[str, tuple[int | str, ...]]]
    by_processor: tuple[str, ...] = ()
    """Tunables whose values count programs for each processor of the card."""
    uses: Callable[[KernelPlan, str], bool] = lambda plan, name: True
    """Whether a setting changes the kernels of a plan."""
    own_tunables: Callable[[KernelPlan], Mapping[Stage, Mapping[str, str]]] = lambda plan: {}
    """Further settings of single parts of a plan, which only searches vary: by stage and name the tunable that holds for all parts."""
    fits: Callable[[KernelPlan, Settings, Hardware], bool] = fit_always
    complete: Callable[[KernelPlan, Settings, Hardware], Settings] = lambda plan, settings, hardware: settings
    """Brings settings that follow from others up to date after one was changed."""
    shrink: Mapping[str, int] = field(default_factory=dict)
    """Settings to halve, in this order, when a kernel needs too much of a processor; with their least values."""
    sharpen: Callable[[Settings], Settings | None] = lambda settings: None
    """Settings with the next more exact way to multiply; None where there is none."""
    predict: Callable[[KernelPlan, Measured, Brief], float] = predict_floor
    """Milliseconds that the kernel should take, by the constants of the estimate."""
    propose: Callable[[KernelPlan, Measured, Brief], Analysis] = propose_fusion
    """The analysis that proposes this kernel in place of the measured one: bottleneck, method, plan, category and promise."""
    advise: Callable[[KernelPlan, Brief], str] = lambda plan, brief: ""
    """Which part of its own kernel has most to gain, as the end of a sentence; empty where that is one part."""
    account: Callable[[KernelPlan, Brief], tuple[RegionRow, ...]] = lambda plan, brief: list_kernels(
        brief.current.verdict if brief.current else None
    )
    """What each part of its own kernel takes, and what it leaves to PyTorch."""
    lesson: str = ""
    """What to learn from it as a worked example; empty where it is not shown as one."""
    shown_with: Callable[[PrecisionClass], Settings] | None = None
    """Settings of its worked example, where the plain ones are for larger modules only."""

    def example_settings(self, plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings | None:
        """Settings with which it is shown to a model; None where it does not fit the card."""
        return self.shown_with(precision) if self.shown_with else self.defaults(plan, hardware, precision)

    def list_tunables(self, plan: KernelPlan, stage: Stage) -> dict[str, tuple[int | str, ...]]:
        """The settings that a stage varies for a plan, with their values."""
        known = {name: values for name, values in self.tunables.get(stage, {}).items() if self.uses(plan, name)}
        counts = {name: tuple(int(value) * plan.card.processors for value in known[name]) for name in self.by_processor if name in known}
        return known | counts

    def render(self, plan: KernelPlan, settings: Settings) -> str:
        """The complete candidate module."""
        plan = plan.take_cut(str(settings["cut"])) if "cut" in settings else plan
        return _environment().get_template(self.template).render(plan=plan, settings=settings)


@dataclass(frozen=True)
class WorkedExample:
    """A small module for which a family's recipes are shown to a model."""

    reference: str
    plan: KernelPlan
    """The plan that the family's reader makes of it."""


@dataclass(frozen=True)
class RecipeFamily:
    """Recipes that share a plan, and what messages and prompts need to know about them."""

    name: str
    writes: str
    """What forward may be, as docs/recipes.md tells it."""
    read: Callable[[Task, TaskFacts, CardModel], KernelPlan]
    """The plan of a task for a card; raises NoPlan where the task is not of this family."""
    recipes: tuple[Recipe, ...]
    """Lowest level first."""
    example: WorkedExample
    kind: Family
    """The kind of operation that its recipes write."""
    nearest_to: tuple[Family, ...] = ()
    """Kinds of operation without recipes of their own for which its example is the nearest."""
    updates: bool = False
    """Whether its kernels also write what forward leaves in buffers, such as running statistics."""
    misses_writes: bool = False
    """Whether its reader takes a tensor that was written in place, and is read again, as it was before."""
    covers: Callable[[KernelPlan, Task, TaskFacts], bool] = lambda plan, task, facts: True
    """Whether kernels of a plan are right for the task at another size too, whose facts these are."""
    predict: Callable[[KernelPlan, Hardware, PrecisionClass], float | None] = lambda plan, hardware, precision: None
    """Seconds of a call by its best recipe, to choose among families that can write a task; None where the first of these shall."""


@cache
def _environment() -> Environment:
    folder = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
