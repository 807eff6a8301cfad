"""The built-in recipes: vetted kernel texts with the settings they can be rendered with, and the rules of where they fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Stage, Task, TaskFacts
from tritonsmith.prompts.recipes.plans import ChainPlan, GruPlan, Plan, chain_plan, gru_plan

Settings = dict[str, int | float | bool | str]

EXCHANGE_SECONDS = 1.55e-6
"""One step's exchange of a 16 x 256 row among 8 programs with a barrier, measured on an H200 (torch 2.11, triton 3.6)."""
_SHARED_SLACK = 8 << 10
"""Shared memory that a compiled kernel takes for layout changes, beyond its operand tiles."""


@dataclass(frozen=True)
class Recipe:
    """One kernel text with its tunables; levels of a family run from a plain first attempt to the best known algorithm."""

    name: str
    family: str
    level: int
    template: str
    describes: str
    """What the kernel does, as the end of a sentence."""
    defaults: Callable[[Plan, Hardware, PrecisionClass], Settings | None]
    """Plain settings for this plan, or None where the recipe does not fit the card."""
    tunables: Mapping[Stage, Mapping[str, tuple[int | str, ...]]]
    fits: Callable[[Plan, Settings, Hardware], bool]
    complete: Callable[[Plan, Settings, Hardware], Settings] = lambda plan, settings, hardware: settings
    """Brings settings that follow from others up to date after one was changed."""
    shrink: tuple[str, ...] = ()
    """Settings to halve, in this order, when a kernel needs too much of a processor."""

    def render(self, plan: Plan, settings: Settings) -> str:
        """The complete candidate module."""
        return _environment().get_template(self.template).render(plan=plan, settings=settings)


@cache
def _environment() -> Environment:
    folder = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)


def power_of_two(size: int) -> int:
    """The next power of two."""
    return 1 << max(0, size - 1).bit_length()


def wavefront_shared(plan: GruPlan, settings: Settings) -> int:
    """Bytes of shared memory of a wavefront program: its fp16 weight tile and the h (or x) it multiplies."""
    inner = max(32, power_of_two(max(plan.hidden_size, plan.input_size)))
    parts = int(settings["parts"])
    batch = max(16, power_of_two(min(plan.batch, int(settings["batch_block"]))))
    return 2 * parts * inner * (4 * int(settings["slice"]) + batch) + _SHARED_SLACK


def _wavefront_settings(plan: Plan, hardware: Hardware, precision: PrecisionClass, slice_: int) -> Settings | None:
    assert isinstance(plan, GruPlan)
    parts = 2 if precision is PrecisionClass.IEEE else 1
    warps = 8 if slice_ >= 32 else 4
    settings: Settings = {"slice": slice_, "parts": parts, "layers_per_launch": 1, "batch_block": 16, "num_warps": warps}
    settings = _wavefront_complete(plan, settings, hardware)
    return settings if _wavefront_fits(plan, settings, hardware) else None


def _wavefront_complete(plan: Plan, settings: Settings, hardware: Hardware) -> Settings:
    """As many layers in one launch as have all their programs resident, one per processor."""
    assert isinstance(plan, GruPlan)
    layers = hardware.processors // (2 * -(-plan.hidden_size // int(settings["slice"])))
    return settings | {"layers_per_launch": max(1, layers)}


def _wavefront_defaults(plan: Plan, hardware: Hardware, precision: PrecisionClass) -> Settings | None:
    found = (_wavefront_settings(plan, hardware, precision, slice_) for slice_ in (32, 16, 8))
    return next((settings for settings in found if settings), None)


def _wavefront_fits(plan: Plan, settings: Settings, hardware: Hardware) -> bool:
    assert isinstance(plan, GruPlan)
    slices = -(-plan.hidden_size // int(settings["slice"]))
    resident = 2 * slices * min(plan.num_layers, int(settings["layers_per_launch"])) <= hardware.processors
    return resident and wavefront_shared(plan, settings) <= hardware.shared_per_block


def _always(plan: Plan, settings: Settings, hardware: Hardware) -> bool:
    return True


def _rows_fit(plan: Plan, settings: Settings, hardware: Hardware) -> bool:
    return int(settings["block_h"]) * int(settings["block_k"]) <= 1024 * int(settings["num_warps"])


def _tile_fits(plan: Plan, settings: Settings, hardware: Hardware) -> bool:
    """Operand tiles of all stages within shared memory, accumulators within registers."""
    m, n, k = (int(settings[key]) for key in ("block_m", "block_n", "block_k"))
    shared = 8 * (m + n) * k * max(1, int(settings["num_stages"]) - 1)
    accumulators = m * n / (32 * int(settings["num_warps"]))
    return shared <= hardware.shared_per_block and accumulators <= 128


def _linear_defaults(plan: Plan, hardware: Hardware, precision: PrecisionClass) -> Settings:
    scheme = "fp16x3" if precision is PrecisionClass.IEEE else "tf32"
    return {"group": 1, "block_m": 64, "block_n": 64, "block_k": 32, "num_warps": 4, "num_stages": 2, "scheme": scheme}


_BOOK = (
    Recipe(
        "gru_per_step", "gru", 0, "gru_per_step.py.j2", "launches one kernel per layer and time step, with the time loop in Python",
        lambda plan, hardware, precision: {"block_h": 32, "block_k": 64, "num_warps": 4},
        {
            Stage.TUNE_GRID: {"block_h": (16, 32, 64)},
            Stage.TUNE_BLOCK: {"block_k": (32, 64, 128)},
            Stage.TUNE_MEMORY: {"num_warps": (2, 4, 8)},
        },
        _always, shrink=("block_k", "block_h"),
    ),
    Recipe(
        "gru_persistent_batch", "gru", 1, "gru_persistent_batch.py.j2",
        "keeps the time loop in the kernel, one launch per layer, with one program per batch row",
        lambda plan, hardware, precision: {"block_h": 64, "block_k": 128, "num_warps": 16},
        {Stage.TUNE_BLOCK: {"block_h": (16, 32, 64), "block_k": (64, 128, 256)}, Stage.TUNE_MEMORY: {"num_warps": (8, 16)}},
        _rows_fit, shrink=("block_k", "block_h"),
    ),
    Recipe(
        "gru_wavefront", "gru", 2, "gru_wavefront.py.j2",
        "runs all layers as a wavefront in one cooperative launch, with the hidden units spread over the processors",
        _wavefront_defaults,
        {
            Stage.TUNE_GRID: {"slice": (8, 16, 32)},
            Stage.TUNE_BLOCK: {"batch_block": (16, 32)},
            Stage.TUNE_MEMORY: {"num_warps": (4, 8)},
        },
        _wavefront_fits, _wavefront_complete, ("slice", "layers_per_launch"),
    ),
    Recipe(
        "pointwise", "pointwise", 0, "pointwise.py.j2", "does the whole chain in one launch",
        lambda plan, hardware, precision: {"tiles": 1, "block": 256, "num_warps": 4},
        {
            Stage.TUNE_GRID: {"tiles": (1, 2, 4)},
            Stage.TUNE_BLOCK: {"block": (256, 512, 1024, 2048)},
            Stage.TUNE_MEMORY: {"num_warps": (2, 4, 8)},
        },
        _always, shrink=("block",),
    ),
    Recipe(
        "linear", "linear", 0, "linear.py.j2", "computes the product tile by tile and applies the tail to the accumulator, in one launch",
        _linear_defaults,
        {
            Stage.TUNE_GRID: {"group": (1, 4, 8)},
            Stage.TUNE_BLOCK: {"block_m": (64, 128), "block_n": (64, 128), "block_k": (32, 64)},
            Stage.TUNE_MEMORY: {"num_warps": (4, 8), "num_stages": (2, 3, 4)},
        },
        _tile_fits, shrink=("num_stages", "block_k", "block_n", "block_m"),
    ),
)  # fmt: skip

BOOK: dict[str, Recipe] = {recipe.name: recipe for recipe in _BOOK}


@dataclass(frozen=True)
class Match:
    """A task's plan and the recipes that can write it on a card, lowest level first."""

    plan: Plan
    recipes: tuple[Recipe, ...]

    def recipe(self, name: str) -> Recipe | None:
        """The recipe of that name, if it fits."""
        return next((recipe for recipe in self.recipes if recipe.name == name), None)


def match(task: Task, facts: TaskFacts, hardware: Hardware) -> Match | None:
    """Which recipes can write this task; None when none can."""
    plan: Plan | None = gru_plan(task, facts)
    family = "gru"
    if plan is None:
        plan = chain_plan(task, facts)
        family = "linear" if isinstance(plan, ChainPlan) and plan.weight else "pointwise"
    if plan is None:
        return None
    fitting = [recipe for recipe in _BOOK if recipe.family == family and recipe.defaults(plan, hardware, task.precision) is not None]
    return Match(plan, tuple(sorted(fitting, key=lambda recipe: recipe.level))) if fitting else None
