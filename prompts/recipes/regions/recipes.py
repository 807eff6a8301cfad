"""The recipe of regions: its settings, what it predicts and what it teaches."""

from __future__ import annotations

from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Stage
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.recipes.kinds import Family
from tritonsmith.prompts.recipes.measured import Measured
from tritonsmith.prompts.recipes.plan import KernelPlan
from tritonsmith.prompts.recipes.recipe import Recipe, RecipeFamily, Settings
from tritonsmith.prompts.recipes.regions.example import EXAMPLE
from tritonsmith.prompts.recipes.regions.gains import describe_gain, predict_regions
from tritonsmith.prompts.recipes.regions.plan import PLAIN, RegionPlan, read_regions


def _defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings:
    return dict(PLAIN)


def _predict(plan: KernelPlan, found: Measured, brief: Brief) -> float:
    """Milliseconds of all regions at the card's bandwidth; a product that stays a call takes its arithmetic besides."""
    assert isinstance(plan, RegionPlan)
    return max(found.compute_ms, predict_regions(plan, brief.hardware))


def _advise(plan: KernelPlan, brief: Brief) -> str:
    """The region with most to gain."""
    assert isinstance(plan, RegionPlan)
    return describe_gain(plan, brief.hardware, brief.current.verdict if brief.current else None)


REGIONS = RecipeFamily(
    name="regions",
    writes="any forward that can be traced, cut into regions: elementwise work, reductions, norms, softmax, losses, scans, pools, lookups; "
    "other calls stay PyTorch calls",
    read=read_regions,
    recipes=(
        Recipe(
            name="regions",
            level=0,
            template="regions/module.py.j2",
            describes="does each region in one launch, and calls PyTorch for the rest",
            defaults=_defaults,
            tunables={
                Stage.TUNE_GRID: {"parts": (2, 4, 8)},
                Stage.TUNE_BLOCK: {"block": (512, 1024, 2048, 4096), "tile": (2048, 4096, 8192)},
                Stage.TUNE_MEMORY: {"whole_row": (4096, 8192, 16384, 32768), "per_thread": (8, 16, 32)},
            },
            predict=_predict,
            advise=_advise,
            shrink={"tile": 256, "whole_row": 1024, "block": 64},
            lesson="Work along rows is fused: a row is read once and stays on the chip while its norm, its softmax or its sum is taken.",
        ),
    ),
    example=EXAMPLE,
    kind=Family.REDUCTION,
)
