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
from tritonsmith.prompts.recipes.regions.writing.blocks import count_shared_bytes

_ATTENTION = ("query_rows", "key_rows", "attention_warps", "attention_stages", "attention_products")
"""Settings of attention only."""
_SMALLER = ((128, 64), (128, 32), (64, 64), (64, 32), (32, 32), (16, 16))
"""Blocks of queries and keys to try, until one fits the card."""
_WIDE_HEAD = 128
"""Features of a head that leave registers for 32 keys at once."""
_SHARPER = {"tf32": "fp16x3", "fp16x3": "tf32x3", "tf32x3": "ieee"}
"""By way to multiply: the next more exact one."""


def _defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings | None:
    assert isinstance(plan, RegionPlan)
    products = "tf32" if precision.allows_tf32 else "fp16x3"
    wide = any(max(one.features, one.columns) > _WIDE_HEAD for one in plan.attentions)
    sizes = _SMALLER[1:] if wide else _SMALLER
    options = [PLAIN | {"query_rows": queries, "key_rows": keys, "attention_products": products} for queries, keys in sizes]
    return next((settings for settings in options if _fits(plan, settings, hardware)), None)


def _fits(plan: KernelPlan, settings: Settings, hardware: Hardware) -> bool:
    """Whether the card has the shared memory for every attention."""
    assert isinstance(plan, RegionPlan)
    return all(count_shared_bytes(one, settings) <= hardware.shared_per_block for one in plan.attentions)


def _uses(plan: KernelPlan, name: str) -> bool:
    assert isinstance(plan, RegionPlan)
    if name == "attention_products":
        return any("float32" in (one.query.dtype, one.value.dtype) for one in plan.attentions)
    return name not in _ATTENTION or bool(plan.attentions)


def _sharpen(settings: Settings) -> Settings | None:
    better = _SHARPER.get(str(settings["attention_products"]))
    return settings | {"attention_products": better} if better else None


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
    writes="any forward that can be traced, cut into regions: elementwise work, reductions, norms, softmax, losses, scans, pools, lookups, "
    "attention; "
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
                Stage.TUNE_BLOCK: {
                    "block": (512, 1024, 2048, 4096), "tile": (2048, 4096, 8192), "query_rows": (64, 128), "key_rows": (32, 64, 128),
                },
                Stage.TUNE_MEMORY: {
                    "whole_row": (4096, 8192, 16384, 32768), "per_thread": (8, 16, 32),
                    "attention_warps": (4, 8), "attention_stages": (1, 2, 3), "attention_products": ("fp16x3", "tf32x3"),
                },
            },
            uses=_uses,
            fits=_fits,
            sharpen=_sharpen,
            predict=_predict,
            advise=_advise,
            shrink={"attention_stages": 1, "key_rows": 16, "query_rows": 16, "tile": 256, "whole_row": 1024, "block": 64},
            lesson="Work along rows is fused: a row is read once and stays on the chip while its norm, its softmax or its sum is taken.",
        ),
    ),
    example=EXAMPLE,
    kind=Family.REDUCTION,
)
